// SPDX-License-Identifier: Apache-2.0
/* Saving instances of devpts: options, and which number is whose. */
#include "sentry/fs/devpts/devpts_priv.h"

#include "base/alloc.h"
#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/vfs/vfs_state.h"

/* ---- inodes: the root, ptmx, slaves ---- */

static void *inode_alloc(struct state *s)
{
	struct inode *inode = kzalloc(sizeof(*inode));

	(void)s;
	inode_init(inode, NULL, &devpts_node_iops, NULL, 0, 0, 0, 0);
	return inode;
}

static void inode_fields(struct state *s, void *obj)
{
	struct inode *inode = obj;

	inode_state_fields(s, inode);
	state_ref(s, &state_super_devpts, &inode->sb);
	if (!state_loading(s))
		return;
	if (!inode->sb || (!S_ISDIR(inode->mode) && !S_ISCHR(inode->mode)))
		state_fail(s, "impossible inode");
	if (S_ISDIR(inode->mode)) {
		inode->ops = &devpts_root_iops;
		inode->fops = &devpts_root_fops;
	}
}

const struct state_type state_inode_devpts = {
	.id = STATE_INODE_DEVPTS,
	.version = 1,
	.name = "inode on devpts",
	.alloc = inode_alloc,
	.fields = inode_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

/* ---- instances ---- */

static void *super_alloc(struct state *s)
{
	struct devpts *dp = kzalloc(sizeof(*dp));

	(void)s;
	super_init(&dp->sb, &devpts_sops, NULL, 0, 0);
	mutex_init(&dp->mu, RANK_FS);
	return &dp->sb;
}

static void slot_fields(struct state *s, struct devpts *dp, uint32_t i)
{
	struct tty *tty = NULL;
	struct inode *node = NULL;

	if (!state_loading(s)) {
		tty = dp->slot[i];
		node = dp->node[i];
	}
	state_u32(s, &i);
	state_weak(s, &state_tty, &tty);
	state_ref(s, &state_inode_devpts, &node);
	if (!state_loading(s) || !state_ok(s))
		return;
	if (i >= DEVPTS_MAX || dp->slot[i] || !tty || !node) {
		state_fail(s, "impossible terminal number %u", i);
		return;
	}
	dp->slot[i] = tty;
	dp->node[i] = node;
}

static void slots_fields(struct state *s, struct devpts *dp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < DEVPTS_MAX; i++)
		n += dp->slot[i] != NULL;
	n = state_count(s, n, DEVPTS_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		slot_fields(s, dp, 0);
	for (uint32_t i = 0; i < DEVPTS_MAX && !state_loading(s); i++)
		if (dp->slot[i])
			slot_fields(s, dp, i);
}

static void super_fields(struct state *s, void *obj)
{
	struct devpts *dp = devpts_of(obj);
	int64_t max = dp->max;

	super_state_fields(s, &dp->sb);
	state_u32(s, &dp->owner);
	state_u32(s, &dp->group);
	state_u32(s, &dp->uid);
	state_u32(s, &dp->gid);
	state_bool(s, &dp->set_uid);
	state_bool(s, &dp->set_gid);
	state_u32(s, &dp->mode);
	state_u32(s, &dp->ptmxmode);
	state_range_i64(s, &max, 0, DEVPTS_MAX);
	dp->max = (int)max;
	slots_fields(s, dp);
}

/* Each terminal is where it says it is. */
static void super_finish(struct state *s, void *obj)
{
	struct devpts *dp = devpts_of(obj);

	for (int i = 0; i < DEVPTS_MAX; i++) {
		const struct tty *tty = dp->slot[i];

		if (tty && (tty->index != i || tty->sb != &dp->sb || !tty->master_open))
			state_fail(s, "terminal %d is another one", i);
	}
}

const struct state_type state_super_devpts = {
	.id = STATE_SUPER_DEVPTS,
	.version = 1,
	.name = "devpts",
	.alloc = super_alloc,
	.fields = super_fields,
	.finish = super_finish,
	.get = super_state_get,
	.put = super_state_put,
	.phase = 1,
};

static void root_file_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_devpts) && !S_ISDIR(f->inode->mode))
		state_fail(s, "listing of what is no directory");
}

const struct file_state file_state_devpts_root = {
	.id = FILE_DEVPTS_ROOT,
	.ops = &devpts_root_fops,
	.finish = root_file_finish,
};
