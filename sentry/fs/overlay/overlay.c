// SPDX-License-Identifier: Apache-2.0
/*
 * The overlay root: fs/tmpfs with a lower. See fs/tmpfs/priv.h for how the two meet, and
 * lower.h for the image's side. It isn't a type that mount(2) knows: a guest's own
 * overlay mounts are another thing.
 */
#include "sentry/fs/overlay/overlay.h"

#include "sentry/fs/tmpfs/priv.h"

const struct fs_type overlay_fs_type = { .name = "overlay", .nodev = true };

struct super *overlay_create_super(struct gofer_client *c, unsigned attach, unsigned long flags, uint64_t disk_size)
{
	struct super *sb = tm_super_create(&overlay_fs_type, OVERLAYFS_MAGIC_G, flags, NULL,
					   lower_root(c, attach));

	if (!is_err(sb) && disk_size) {
		TM_SB(sb)->on_disk = true;
		TM_SB(sb)->max_pages = disk_size >> PAGE_SHIFT;
	}
	return sb;
}
