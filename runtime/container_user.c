// SPDX-License-Identifier: Apache-2.0
/*
 * Users and groups by name, for `exec --user NAME[:GROUP]`, and homes: looked up in the container's own
 * /etc/passwd and /etc/group (man 5 passwd, man 5 group), which only its kernel can read. The files are
 * the guest's: whatever is in them decides nothing but which of the guest's users it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "sentry/kernel/cred.h"

#define DATABASE_MAX (1u << 20) /* bytes of a file that are looked at */
#define GROUPS_MAX   1024

/* A file of the container as text (heap); empty when there is none. */
static char *read_file(struct container *c, const char *name)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	char *text = kzalloc(DATABASE_MAX + 1);
	struct path at = { 0 };
	size_t used = 0;
	int64_t pos = 0;
	ssize_t n;

	if (path_lookup_from(NULL, root, &c->root, &c->root, name, LOOKUP_FOLLOW, &at))
		return text;
	if (S_ISREG(dentry_inode(at.dentry)->mode)) {
		AUTO_FILE struct file *f = file_open_path(NULL, &at, O_RDONLY, root);

		do {
			struct iter it;

			iter_init_kernel(&it, text + used, DATABASE_MAX - used);
			n = is_err(f) ? 0 : file_read(NULL, f, &it, &pos);
			used += n > 0 ? (size_t)n : 0;
		} while (n > 0 && used < DATABASE_MAX);
	}
	path_put(&at);
	return text;
}

/* Splits the line at *text off, into @n fields at colons; the last takes the rest. False at the end. */
static bool next_line(char **text, char **field, unsigned n)
{
	static char empty[1]; /* for what a short line lacks; nobody writes to it */
	char *line = strsep(text, "\n");

	if (!line)
		return false;
	for (unsigned i = 0; i < n; i++) {
		field[i] = i + 1 < n ? strsep(&line, ":") : line;
		if (!field[i])
			field[i] = empty;
	}
	return true;
}

/* A number below 2^32 - 1, or -1. */
static int64_t number(const char *s)
{
	char *end;
	unsigned long v;

	if (*s < '0' || *s > '9')
		return -1;
	errno = 0;
	v = strtoul(s, &end, 10);
	return errno || *end || v >= UINT32_MAX ? -1 : (int64_t)v;
}

static bool find_user(char *text, const char *name, struct spec_process *p)
{
	char *f[5];

	while (next_line(&text, f, 5)) {
		if (strcmp(f[0], name) != 0 || number(f[2]) < 0 || number(f[3]) < 0)
			continue;
		p->uid = (uid_t)number(f[2]);
		p->gid = (gid_t)number(f[3]);
		return true;
	}
	return false;
}

static bool find_group(char *text, const char *name, struct spec_process *p)
{
	char *f[4];

	while (next_line(&text, f, 4)) {
		if (strcmp(f[0], name) != 0 || number(f[2]) < 0)
			continue;
		p->gid = (gid_t)number(f[2]);
		return true;
	}
	return false;
}

static bool is_member(char *list, const char *name)
{
	char *m;

	while ((m = strsep(&list, ",")))
		if (!strcmp(m, name))
			return true;
	return false;
}

/* As initgroups(3): the user's own group and all that list it. */
static void add_groups(char *text, const char *name, struct spec_process *p)
{
	unsigned n = p->nadditional_gids;
	gid_t *v = krealloc_array(p->additional_gids, n + GROUPS_MAX, sizeof(*v));
	char *f[4];

	v[n++] = p->gid;
	while (next_line(&text, f, 4) && n < p->nadditional_gids + GROUPS_MAX)
		if (number(f[2]) >= 0 && is_member(f[3], name) && number(f[2]) != p->gid)
			v[n++] = (gid_t)number(f[2]);
	p->additional_gids = v;
	p->nadditional_gids = n;
}

int container_find_user(struct container *c, const char *who, struct spec_process *p, char **ret_why)
{
	AUTO_FREE char *name = kstrdup(who);
	char *colon = strchr(name, ':');
	const char *group = colon ? colon + 1 : NULL;

	if (colon)
		*colon = 0;
	if (number(name) >= 0) {
		p->uid = (uid_t)number(name);
		p->gid = 0;
	} else {
		AUTO_FREE char *passwd = read_file(c, "/etc/passwd");

		if (!find_user(passwd, name, p)) {
			*ret_why = kasprintf("unable to find user %s: no matching entries in passwd file",
					     name);
			return -1;
		}
	}
	if (group && number(group) >= 0) {
		p->gid = (gid_t)number(group);
	} else if (group) {
		AUTO_FREE char *groups = read_file(c, "/etc/group");

		if (!find_group(groups, group, p)) {
			*ret_why = kasprintf("unable to find group %s: no matching entries in group file",
					     group);
			return -1;
		}
	} else if (number(name) < 0) {
		AUTO_FREE char *groups = read_file(c, "/etc/group");

		add_groups(groups, name, p);
	}
	return 0;
}

char *container_home(struct container *c, uid_t uid)
{
	AUTO_FREE char *passwd = read_file(c, "/etc/passwd");
	char *rest = passwd, *f[7];

	while (next_line(&rest, f, 7))
		if (number(f[2]) == (int64_t)uid)
			return kstrdup(f[5]);
	return kstrdup("/");
}
