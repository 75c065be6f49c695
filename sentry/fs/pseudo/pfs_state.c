// SPDX-License-Identifier: Apache-2.0
/*
 * Saving inodes of pseudo file systems: the names that lead from a registered table to the node
 * ("pid/attr/current"), and the object that the inode stands for. Nothing is looked up when loading, so files
 * of processes that are gone stay what they are: files that say ESRCH.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/pseudo/pseudofs.h"
#include "sentry/vfs/vfs_state.h"

#define PFS_ROOTS_MAX 16
#define PFS_DEPTH_MAX 12
#define PFS_NAME_MAX 512

static const struct pfs_root *roots[PFS_ROOTS_MAX]; /* (c) after start */
static unsigned nroots;

void pfs_register(const struct pfs_root *root)
{
	if (nroots == PFS_ROOTS_MAX)
		panic("pseudofs: too many tables");
	roots[nroots++] = root;
}

/* Appends the way from @n to @want to the name of @len bytes. */
static bool find_node(const struct pfs_node *n, const struct pfs_node *want, char *name, size_t len,
		      unsigned depth)
{
	if (n == want)
		return true;
	if (depth == PFS_DEPTH_MAX)
		return false;
	for (const struct pfs_node *c = n->children; c && c->name; c++) {
		size_t add = strlen(c->name) + 1;

		if (len + add >= PFS_NAME_MAX)
			continue;
		name[len] = '/';
		memcpy(name + len + 1, c->name, add);
		if (find_node(c, want, name, len + add, depth + 1))
			return true;
	}
	name[len] = '\0';
	return false;
}

static bool name_of(const struct pfs_node *want, char name[PFS_NAME_MAX])
{
	for (unsigned i = 0; i < nroots; i++) {
		size_t len = strlen(roots[i]->name);

		memcpy(name, roots[i]->name, len + 1);
		if (find_node(roots[i]->node, want, name, len, 0))
			return true;
	}
	return false;
}

static const struct pfs_node *child(const struct pfs_node *n, const char *name)
{
	for (n = n->children; n && n->name; n++)
		if (strcmp(n->name, name) == 0)
			return n;
	return NULL;
}

/* The node of a name, which is cut up; NULL: this version has none such. */
static const struct pfs_node *node_of(char *name, const struct pfs_root **ret_root)
{
	char *save, *part = strtok_r(name, "/", &save);
	const struct pfs_node *n = NULL;

	for (unsigned i = 0; part && i < nroots; i++) {
		if (strcmp(roots[i]->name, part) == 0) {
			*ret_root = roots[i];
			n = roots[i]->node;
		}
	}
	while (n && (part = strtok_r(NULL, "/", &save)))
		n = child(n, part);
	return n;
}

static void *inode_alloc(struct state *s)
{
	static const struct pfs_node none = { .mode = S_IFREG };
	struct pfs_inode *pi = kzalloc(sizeof(*pi));

	(void)s;
	inode_init(&pi->inode, NULL, pfs_iops_of(&none), NULL, 0, 0, 0, 0);
	pi->node = &none;
	return &pi->inode;
}

static void node_field(struct state *s, struct pfs_inode *pi, const struct pfs_root **ret_root)
{
	char name[PFS_NAME_MAX] = "", shown[PFS_NAME_MAX];
	const struct pfs_node *n;

	if (!state_loading(s) && !name_of(pi->node, name)) {
		state_fail(s, "the pseudo file \"%s\" is in no registered table", pi->node->name);
		return;
	}
	state_str(s, name, sizeof(name));
	memcpy(shown, name, sizeof(name));
	n = node_of(name, ret_root);
	if (!n)
		state_fail(s, "there is no pseudo file %s", shown);
	else if (state_loading(s)) {
		pi->node = n;
		pi->inode.ops = pfs_iops_of(n);
	}
}

static void inode_fields(struct state *s, void *obj)
{
	struct pfs_inode *pi = pfs_of(obj);
	const struct pfs_root *root = NULL;
	bool has_ctx = pi->ctx_ops;

	inode_state_fields(s, &pi->inode);
	state_ref_in(s, &state_super_class, &pi->inode.sb);
	node_field(s, pi, &root);
	state_i64(s, &pi->num);
	state_bool(s, &has_ctx);
	if (has_ctx && root && root->ctx)
		state_ref(s, root->ctx, &pi->ctx);
	if (!state_loading(s) || !state_ok(s))
		return;
	pi->ctx_ops = has_ctx ? root->ctx_ops : NULL;
	if (has_ctx && !pi->ctx)
		state_fail(s, "a file of nothing");
	if ((pi->inode.mode ^ pi->node->mode) & S_IFMT)
		state_fail(s, "pseudo file of another kind");
	if (!pi->inode.sb || pi->inode.sb->ops->state != root->super)
		state_fail(s, "pseudo file on another file system");
}

const struct state_type state_inode_pfs = {
	.id = STATE_INODE_PFS,
	.version = 1,
	.name = "pseudo file",
	.alloc = inode_alloc,
	.fields = inode_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

/* ---- supers of sysfs and cgroup2 ---- */

static void *super_alloc(struct state *s)
{
	struct super *sb = kzalloc(sizeof(*sb));

	(void)s;
	super_init(sb, &pfs_super_ops, NULL, 0, 0);
	return sb;
}

static void super_fields(struct state *s, void *obj)
{
	super_state_fields(s, obj);
}

const struct state_type state_super_pfs = {
	.id = STATE_SUPER_PFS,
	.version = 1,
	.name = "pseudo file system",
	.alloc = super_alloc,
	.fields = super_fields,
	.get = super_state_get,
	.put = super_state_put,
	.phase = 1,
};

static void dir_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_pfs) && !S_ISDIR(f->inode->mode))
		state_fail(s, "listing of what is no directory");
}

const struct file_state file_state_pfs_dir = {
	.id = FILE_PFS_DIR,
	.ops = &pfs_dir_fops,
	.finish = dir_finish,
};
