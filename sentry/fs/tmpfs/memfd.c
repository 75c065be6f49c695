// SPDX-License-Identifier: Apache-2.0
/*
 * memfds and seals (man 2 memfd_create, F_ADD_SEALS in man 2 fcntl). A memfd is a
 * nameless file of a tmpfs instance that is mounted nowhere.
 *
 * Left out: with F_SEAL_FUTURE_WRITE or F_SEAL_WRITE set, Linux also stops mprotect()
 * from making an older read-only shared mapping of a writable descriptor writable; here
 * only new mappings are refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/kernel/task.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/vfs_state.h"

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define ALL_SEALS                                                                        \
	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE |  \
	 F_SEAL_EXEC)

static struct super *_Atomic shm_super; /* set once; reference */

/* Linux's internal mount has no limits either: the sandbox's memory limit is the limit. */
static struct super *shm_get(void)
{
	struct super *sb = shm_super, *none = NULL;

	if (sb)
		return sb;
	sb = tmpfs_create_super(0, "size=0,nr_inodes=0");
	if (is_err(sb))
		panic("tmpfs: no instance for memfds: %ld", ptr_err(sb));
	if (!atomic_compare_exchange_strong(&shm_super, &none, sb)) {
		super_put(sb); /* somebody was faster */
		sb = none;
	}
	return sb;
}

void tmpfs_state_globals(struct state *s)
{
	struct super *sb = shm_super;

	state_ref(s, &state_super_tmpfs, &sb);
	shm_super = sb;
}

/* May the size change so, and (@write) may content change? 0 or -EPERM. */
int tm_check_seals(struct tm_file *f, uint64_t old_size, uint64_t new_size, bool write)
{
	unsigned seals = READ_ONCE(f->seals); /* bits are only ever added */

	if (likely(seals == F_SEAL_SEAL || seals == 0))
		return 0;
	if (write && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return -EPERM;
	if (new_size < old_size && (seals & F_SEAL_SHRINK))
		return -EPERM;
	if (new_size > old_size && (seals & F_SEAL_GROW))
		return -EPERM;
	return 0;
}

struct file *memfd_create_file(const char *name, unsigned flags)
{
	uint32_t mode = (flags & MFD_NOEXEC_SEAL) ? 0666 : 0777;
	const struct cred *c = current_task() ? task_cred(current_task()) : NULL;
	struct inode *inode = tm_inode_create(shm_get(), S_IFREG | mode, 0, c ? c->fsuid : 0,
					      c ? c->fsgid : 0);
	if (is_err(inode))
		return (void *)inode;
	struct tm_file *f = TM(inode)->file;
	inode->nlink = 0;
	if (flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL))
		f->seals = 0;
	if (flags & MFD_NOEXEC_SEAL)
		f->seals |= F_SEAL_EXEC;
	AUTO_FREE char *path = kasprintf("/memfd:%s (deleted)", name);
	return file_create_pseudo(inode, &tm_file_fops, NULL, O_RDWR | O_LARGEFILE, path);
}

static long add_seals(struct file *file, unsigned add)
{
	struct inode *inode = file->inode;
	struct tm_file *f = TM(inode)->file;

	if (!(file->fmode & FMODE_WRITE))
		return -EPERM;
	if (add & ~(unsigned)ALL_SEALS)
		return -EINVAL;
	AUTO_LOCK(&inode->mu); /* no write is under way */
	AUTO_LOCK(&f->mu);
	if (f->seals & F_SEAL_SEAL)
		return -EPERM;
	if ((add & F_SEAL_WRITE) && !(f->seals & F_SEAL_WRITE) && f->writable_maps)
		return -EBUSY;
	/* An executable that can't be made non-executable later shouldn't be changed
	 * either. */
	if ((add & F_SEAL_EXEC) && (inode->mode & 0111))
		add |= F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
	f->seals |= add;
	return 0;
}

long memfd_fcntl(struct file *file, unsigned cmd, unsigned long arg)
{
	if (file->ops != &tm_file_fops)
		return -EINVAL;
	if (cmd == F_GET_SEALS)
		return (long)READ_ONCE(TM(file->inode)->file->seals);
	if (cmd != F_ADD_SEALS || arg > UINT32_MAX)
		return -EINVAL;
	return add_seals(file, (unsigned)arg);
}
