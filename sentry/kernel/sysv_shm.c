// SPDX-License-Identifier: Apache-2.0
/*
 * System V shared memory (man 2 shmget, shmat, shmctl). A segment is a vm_object of its own that passes
 * translate() on to an anonymous shared object (mm/shmem.h) and counts its mappings, which are nattch.
 *
 * IPC_RMID unlinks the segment from the key and marks it; it goes with the last detach, and can still be
 * attached by id until then, as on Linux. So such a segment keeps its table slot (key 0).
 *
 * Lock: sysv_mu. The object's get and put are called with mm.mu held, which ranks above; the memory itself is
 * freed after the lock is dropped.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/size.h"
#include "sentry/kernel/sysv_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/shmem.h"
#include "sentry/mm/usermem.h"
#include "sentry/vfs/vfs.h"

#define L_SHM_LOCKED 02000u
#define L_SHM_HUGETLB 04000
#define L_SHM_NORESERVE 010000
#define L_SHM_STAT_ANY 15

static struct shm_segment *to_shm(struct ipc_obj *o)
{
	return (struct shm_segment *)(void *)o;
}

static uint64_t pages(const struct shm_segment *s)
{
	return page_up(s->size) >> PAGE_SHIFT;
}

/* Last reference: no table, no mapping, no user. Context: no sysv_mu; mm.mu maybe. */
void shm_put(struct shm_segment *s)
{
	if (!ref_put(&s->o.ref))
		return;
	s->mem->ops->put(s->mem);
	free(s);
}

/* Out of the table if it is marked and unused. True: the caller drops the table's reference. */
static bool reap_locked(struct shm_segment *s)
{
	if (!s->ns || s->nattch || !(s->o.mode & L_SHM_DEST))
		return false;
	ipc_unlink_locked(s->ns, IPC_SHM, &s->o);
	s->ns->total_shm_pages -= pages(s);
	s->ns = NULL;
	return true;
}

static void detach(struct shm_segment *s)
{
	struct task *t = current_task();
	bool reaped;

	mutex_lock(&sysv_mu);
	s->nattch--;
	s->dtime_s = ipc_now_s();
	if (t)
		s->lpid = task_tgid(t);
	reaped = reap_locked(s);
	mutex_unlock(&sysv_mu);
	if (reaped)
		shm_put(s);
	shm_put(s);
}

static void attach_locked(struct shm_segment *s)
{
	struct task *t = current_task();

	ref_get(&s->o.ref);
	s->nattch++;
	s->atime_s = ipc_now_s();
	if (t)
		s->lpid = task_tgid(t);
}

/* ---- the object ---- */

static void obj_get(struct vm_object *o)
{
	struct shm_segment *s = container_of(o, struct shm_segment, obj);
	AUTO_LOCK(&sysv_mu);

	attach_locked(s);
}

static void obj_put(struct vm_object *o)
{
	detach(container_of(o, struct shm_segment, obj));
}

static int obj_translate(struct vm_object *o, uint64_t off, uint64_t *len, bool write,
			 struct mfile **ret_mf, uint64_t *ret_off)
{
	struct shm_segment *s = container_of(o, struct shm_segment, obj);

	return s->mem->ops->translate(s->mem, off, len, write, ret_mf, ret_off);
}

const struct vm_object_ops shm_vm_ops = {
	.get = obj_get,
	.put = obj_put,
	.translate = obj_translate,
};

/* ---- shmget ---- */

static struct shm_segment *segment_create(struct task *t, int32_t key, uint64_t size)
{
	struct vm_object *mem = shmem_object_create(page_up(size));
	struct shm_segment *s;

	if (is_err(mem))
		return err_ptr(ptr_err(mem));
	s = kzalloc(sizeof(*s));
	ref_init(&s->o.ref);
	s->obj.ops = &shm_vm_ops;
	s->mem = mem;
	s->size = size;
	s->cpid = task_tgid(t);
	(void)snprintf(s->name, sizeof(s->name), "/SYSV%08x (deleted)", (unsigned)key);
	return s;
}

static long find_or_insert(struct task *t, struct shm_segment **fresh, int32_t key, uint64_t size,
			   int flags)
{
	struct ipcns *ns = task_ipcns(t);
	struct ipc_obj *o;
	long r;
	AUTO_LOCK(&sysv_mu);

	r = ipc_get_existing_locked(t, ns, IPC_SHM, key, flags, &o);
	if (o)
		return to_shm(o)->size < size ? -EINVAL : r;
	if (r < 0)
		return r;
	if (!*fresh)
		return -EAGAIN; /* to be made: not under the lock */
	if (ns->total_shm_pages + pages(*fresh) > (uint64_t)sysv_limits.shmall)
		return -ENOSPC;
	r = ipc_insert_locked(t, ns, IPC_SHM, &(*fresh)->o, key, flags,
			      (unsigned)sysv_limits.shmmni);
	if (r < 0)
		return r;
	(*fresh)->ns = ns;
	ns->total_shm_pages += pages(*fresh);
	*fresh = NULL;
	return r;
}

long sysv_shmget(struct task *t, int32_t key, uint64_t size, int flags)
{
	struct shm_segment *fresh = NULL;
	long r = find_or_insert(t, &fresh, key, size, flags);

	if (r != -EAGAIN)
		return r;
	if (size == 0 || size > (uint64_t)sysv_limits.shmmax)
		return -EINVAL;
	if (flags & L_SHM_HUGETLB) /* as without CONFIG_HUGETLBFS */
		return -EINVAL;
	fresh = segment_create(t, key, size);
	if (is_err(fresh))
		return ptr_err(fresh);
	r = find_or_insert(t, &fresh, key, size, flags);
	if (fresh)
		shm_put(fresh);
	return r;
}

/* ---- shmat, shmdt ---- */

static int fix_address(gaddr_t *addr, int flags)
{
	uint64_t a = gaddr_u64(*addr);

	if (!a)
		return flags & SHM_REMAP ? -EINVAL : 0;
	if (!page_aligned(a)) {
		if (!(flags & SHM_RND))
			return -EINVAL;
		a = page_down(a);
		if (!a && (flags & SHM_REMAP))
			return -EINVAL;
	}
	*addr = gaddr(a);
	return 0;
}

long sysv_shmat(struct task *t, int id, gaddr_t addr, int flags)
{
	int prot = PROT_READ, mflags = MAP_SHARED, r = fix_address(&addr, flags);
	struct shm_segment *s;
	uint32_t want = 0444;
	long a;

	if (r < 0)
		return r;
	if (!(flags & SHM_RDONLY)) {
		prot |= PROT_WRITE;
		want |= 0222;
	}
	if (flags & SHM_EXEC) {
		prot |= PROT_EXEC;
		want |= 0111;
	}
	if (!gaddr_is_null(addr))
		mflags |= flags & SHM_REMAP ? MAP_FIXED : MAP_FIXED_NOREPLACE;
	mutex_lock(&sysv_mu);
	s = to_shm(ipc_find_locked(task_ipcns(t), IPC_SHM, id));
	r = s ? ipc_access(t, &s->o, want) : -EINVAL;
	if (r == 0)
		attach_locked(s); /* so that it stays while we map */
	mutex_unlock(&sysv_mu);
	if (r < 0)
		return r;
	a = mm_map_object(t, t->mm, addr, page_up(s->size), prot, mflags, &s->obj, 0, s->name);
	detach(s);
	return a == -EEXIST ? -EINVAL : a;
}

/* The segment behind a mapping that starts at @addr: a reference, or NULL. Looked up by comparing, as the
 * mapping may go away under us. */
static struct shm_segment *segment_at(struct task *t, gaddr_t addr)
{
	struct ipcns *ns = task_ipcns(t);
	struct vma_info vi;
	bool found = mm_find(t->mm, addr, &vi);
	AUTO_LOCK(&sysv_mu);

	if (!found || !vi.object || vi.off != 0 || !gaddr_eq(vi.start, addr))
		return NULL;
	for (unsigned i = 0; i < ns->ids[IPC_SHM].nslots; i++) {
		struct ipc_obj *o = ns->ids[IPC_SHM].slot[i];

		if (o && &to_shm(o)->obj == vi.object) {
			ref_get(&o->ref);
			return to_shm(o);
		}
	}
	return NULL;
}

long sysv_shmdt(struct task *t, gaddr_t addr)
{
	struct shm_segment *s;
	struct vma_info vi;
	gaddr_t end, at = addr;

	if (!page_aligned(gaddr_u64(addr)))
		return -EINVAL;
	s = segment_at(t, addr);
	if (!s)
		return -EINVAL;
	/* mprotect may have split the attachment: all pieces at their places go */
	end = gaddr_off(addr, page_up(s->size));
	while (gaddr_u64(at) < gaddr_u64(end)) {
		uint64_t len = PAGE_SIZE;

		if (mm_find(t->mm, at, &vi)) {
			uint64_t stop = MIN(gaddr_u64(vi.end), gaddr_u64(end));

			len = stop - gaddr_u64(at);
			if (vi.object == &s->obj &&
			    vi.off == gaddr_u64(vi.start) - gaddr_u64(addr))
				(void)mm_munmap(t, at, len); /* only table limits could fail it */
		}
		at = gaddr_off(at, len);
	}
	shm_put(s);
	return 0;
}

/* ---- shmctl ---- */

static void show_locked(struct task *t, struct shm_segment *s, struct l_shmid_ds *ds)
{
	*ds = (struct l_shmid_ds){
		.segsz = s->size,
		.atime = s->atime_s,
		.dtime = s->dtime_s,
		.ctime = s->o.ctime_s,
		.cpid = s->cpid,
		.lpid = s->lpid,
		.nattch = s->nattch,
	};
	ipc_show_perm(t, &s->o, &ds->perm);
}

static long ctl_stat(struct task *t, int id, int cmd, gaddr_t buf)
{
	struct l_shmid_ds ds;
	struct ipc_obj *o;
	long r;

	mutex_lock(&sysv_mu);
	r = ipc_find_stat_locked(t, IPC_SHM, id, cmd == IPC_STAT, cmd == L_SHM_STAT_ANY, &o);
	if (r == 0) {
		show_locked(t, to_shm(o), &ds);
		r = cmd == IPC_STAT ? 0 : o->id;
	}
	mutex_unlock(&sysv_mu);
	if (r >= 0 && copyout_obj(t, buf, &ds) < 0)
		return -EFAULT;
	return r;
}

static long ctl_info(struct task *t, int cmd, gaddr_t buf)
{
	struct ipcns *ns = task_ipcns(t);
	struct shminfo si = { .shmmax = (uint64_t)sysv_limits.shmmax,
			      .shmmin = 1,
			      .shmmni = (uint64_t)sysv_limits.shmmni,
			      .shmseg = (uint64_t)sysv_limits.shmmni,
			      .shmall = (uint64_t)sysv_limits.shmall };
	struct shm_info info = { 0 };
	int max, r;

	mutex_lock(&sysv_mu);
	info.used_ids = (int)ns->ids[IPC_SHM].in_use;
	info.shm_tot = ns->total_shm_pages;
	info.shm_rss = ns->total_shm_pages;
	max = ipc_max_index_locked(&ns->ids[IPC_SHM]);
	mutex_unlock(&sysv_mu);
	r = cmd == IPC_INFO ? copyout_obj(t, buf, &si) : copyout_obj(t, buf, &info);
	return r < 0 ? r : max;
}

static long ctl_change_locked(struct task *t, struct shm_segment *s, int cmd,
			      const struct l_shmid_ds *ds, bool *ret_reaped)
{
	long r = ipc_owner(t, &s->o);

	if (cmd == SHM_LOCK || cmd == SHM_UNLOCK) {
		if (r < 0 && !task_capable(t, CAP_IPC_LOCK))
			return r;
		if (cmd == SHM_LOCK && task_rlimit(t, RLIMIT_MEMLOCK) == 0 &&
		    !task_capable(t, CAP_IPC_LOCK))
			return -EPERM;
		/* nothing is ever swapped by us: only the flag */
		s->o.mode = cmd == SHM_LOCK ? s->o.mode | L_SHM_LOCKED
					    : s->o.mode & ~L_SHM_LOCKED;
		return 0;
	}
	if (r < 0)
		return r;
	if (cmd == IPC_SET)
		return ipc_set_perm(t, &s->o, &ds->perm);
	s->o.mode |= L_SHM_DEST;
	s->o.key = IPC_PRIVATE; /* no longer found by key */
	*ret_reaped = reap_locked(s);
	return 0;
}

static long ctl_change(struct task *t, int id, int cmd, gaddr_t buf)
{
	struct l_shmid_ds ds = { 0 };
	struct shm_segment *s;
	bool reaped = false;
	long r = -EINVAL;

	if (cmd == IPC_SET && copyin_obj(t, &ds, buf) < 0)
		return -EFAULT;
	mutex_lock(&sysv_mu);
	s = to_shm(ipc_find_locked(task_ipcns(t), IPC_SHM, id));
	if (s)
		r = ctl_change_locked(t, s, cmd, &ds, &reaped);
	mutex_unlock(&sysv_mu);
	if (reaped)
		shm_put(s);
	return r;
}

long sysv_shmctl(struct task *t, int id, int cmd, gaddr_t buf)
{
	if (id < 0)
		return -EINVAL;
	switch (cmd) {
	case IPC_INFO:
	case SHM_INFO:
		return ctl_info(t, cmd, buf);
	case IPC_STAT:
	case SHM_STAT:
	case L_SHM_STAT_ANY:
		return ctl_stat(t, id, cmd, buf);
	case IPC_SET:
	case IPC_RMID:
	case SHM_LOCK:
	case SHM_UNLOCK:
		return ctl_change(t, id, cmd, buf);
	default:
		return -EINVAL;
	}
}

/* The namespace goes: what is still mapped lives on without a table. */
void shm_destroy_all(struct ipcns *ns)
{
	for (unsigned i = 0; i < ns->ids[IPC_SHM].nslots; i++) {
		struct shm_segment *s;

		mutex_lock(&sysv_mu);
		s = to_shm(ns->ids[IPC_SHM].slot[i]);
		if (s) {
			ipc_unlink_locked(ns, IPC_SHM, &s->o);
			s->ns = NULL;
		}
		mutex_unlock(&sysv_mu);
		if (s)
			shm_put(s);
	}
}

void sysv_show_shm(struct ipcns *ns, struct seqbuf *out)
{
	AUTO_LOCK(&sysv_mu);

	seq_printf(out, "       key      shmid perms                  size  cpid  lpid nattch   uid   gid"
			"  cuid  cgid      atime      dtime      ctime                   rss"
			"                  swap\n");
	for (unsigned i = 0; i < ns->ids[IPC_SHM].nslots; i++) {
		const struct ipc_obj *o = ns->ids[IPC_SHM].slot[i];
		const struct shm_segment *s;

		if (!o)
			continue;
		s = to_shm(ns->ids[IPC_SHM].slot[i]);
		seq_printf(out, "%10d %10d  %4o %21llu %5d %5d  %5llu %5u %5u %5u %5u %10lld %10lld "
				"%10lld %21llu %21d\n",
			   o->key, o->id, o->mode, (unsigned long long)s->size, s->cpid, s->lpid,
			   (unsigned long long)s->nattch, o->uid, o->gid, o->cuid, o->cgid,
			   (long long)s->atime_s, (long long)s->dtime_s, (long long)o->ctime_s,
			   (unsigned long long)page_up(s->size), 0);
	}
}
