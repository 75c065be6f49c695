// SPDX-License-Identifier: Apache-2.0
/* /proc/PID/mountinfo and /proc/PID/mounts (man 5 proc), in Linux's format. */
#include "base/alloc.h"

#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "sentry/vfs/vfs_priv.h"

#define ESCAPES " \t\n\\#"
#ifndef MS_NOSYMFOLLOW
# define MS_NOSYMFOLLOW 256
#endif

static void show_mnt_flags(struct seqbuf *out, unsigned long flags)
{
	static const struct {
		unsigned long flag;
		const char *text;
	} names[] = {
		{ MS_NOSUID, ",nosuid" },	  { MS_NODEV, ",nodev" },
		{ MS_NOEXEC, ",noexec" },	  { MS_NOATIME, ",noatime" },
		{ MS_NODIRATIME, ",nodiratime" }, { MS_RELATIME, ",relatime" },
		{ MS_NOSYMFOLLOW, ",nosymfollow" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (flags & names[i].flag)
			seq_printf(out, "%s", names[i].text);
}

static void show_sb_flags(struct seqbuf *out, const struct super *sb)
{
	if (sb->flags & MS_SYNCHRONOUS)
		seq_printf(out, ",sync");
	if (sb->flags & MS_DIRSYNC)
		seq_printf(out, ",dirsync");
	if (sb->flags & MS_LAZYTIME)
		seq_printf(out, ",lazytime");
}

static void show_sb_options(struct seqbuf *out, struct super *sb)
{
	struct seqbuf o;

	if (!sb->ops->show_options)
		return;
	seq_init(&o);
	sb->ops->show_options(sb, &o);
	if (o.len && o.buf[0] != ',')
		seq_putc(out, ',');
	seq_write(out, o.buf ? o.buf : "", o.len);
	seq_fini(&o);
}

static void show_source(struct seqbuf *out, const struct super *sb)
{
	seq_escape(out, sb->source && *sb->source ? sb->source : "none", ESCAPES);
}

static void show_path(struct seqbuf *out, char *path)
{
	seq_escape(out, path, ESCAPES);
	free(path);
}

/* Of a bind mount the place on the host comes first, as if the guest had that file system. */
static void show_root(struct seqbuf *out, const struct mount *m)
{
	char *root = path_string(&(struct path){ NULL, m->root }, NULL, NULL);

	if (m->sb->shown_root)
		seq_escape(out, m->sb->shown_root, ESCAPES);
	if (m->sb->shown_root && !strcmp(root, "/"))
		free(root);
	else
		show_path(out, root);
}

/* Where @m is, seen from @root; NULL when it can't be reached from there. */
static char *mountpoint_string(struct mount *m, const struct path *root)
{
	bool unreachable;
	char *s = path_string(&(struct path){ m, m->root }, root, &unreachable);

	if (!unreachable)
		return s;
	free(s);
	return NULL;
}

static void show_optional(struct seqbuf *out, const struct mount *m)
{
	switch (m->prop) {
	case MNT_SHARED:
		seq_printf(out, " shared:%d", m->peer_group);
		break;
	case MNT_SLAVE:
		seq_printf(out, " master:%d", m->peer_group);
		break;
	case MNT_UNBINDABLE:
		seq_printf(out, " unbindable");
		break;
	case MNT_PRIVATE:
		break;
	}
}

void mntns_show_mountinfo(struct mntns *ns, const struct path *root, struct seqbuf *out)
{
	struct mount *m;
	AUTO_LOCK(&mount_mu);

	list_for_each(m, &ns->mounts, ns_node) {
		char *where = mountpoint_string(m, root);

		if (!where)
			continue;
		seq_printf(out, "%d %d %u:%u ", m->id, m->parent ? m->parent->id : m->id,
			   major(m->sb->dev), minor(m->sb->dev));
		show_root(out, m);
		seq_putc(out, ' ');
		show_path(out, where);
		seq_printf(out, atomic_load(&m->flags) & MS_RDONLY ? " ro" : " rw");
		show_mnt_flags(out, atomic_load(&m->flags));
		show_optional(out, m);
		seq_printf(out, " - %s ", m->sb->type ? m->sb->type->name : "none");
		show_source(out, m->sb);
		seq_printf(out, m->sb->flags & MS_RDONLY ? " ro" : " rw");
		show_sb_flags(out, m->sb);
		show_sb_options(out, m->sb);
		seq_putc(out, '\n');
	}
}

void mntns_show_mounts(struct mntns *ns, const struct path *root, struct seqbuf *out)
{
	struct mount *m;
	AUTO_LOCK(&mount_mu);

	list_for_each(m, &ns->mounts, ns_node) {
		char *where = mountpoint_string(m, root);

		if (!where)
			continue;
		show_source(out, m->sb);
		seq_putc(out, ' ');
		show_path(out, where);
		seq_printf(out, " %s %s", m->sb->type ? m->sb->type->name : "none",
			   mount_is_readonly(m) ? "ro" : "rw");
		show_sb_flags(out, m->sb);
		show_mnt_flags(out, atomic_load(&m->flags));
		show_sb_options(out, m->sb);
		seq_printf(out, " 0 0\n");
	}
}
