// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading System V IPC: namespaces with their tables, semaphore sets, undo lists, message queues,
 * shared segments. While the sandbox is frozen nobody sleeps on them, so counts of sleepers are zero.
 *
 * A table owns its objects; it names them as borrowed and takes its references in finish(). What state_ref()
 * takes on a segment is an attachment (nattch), as it is address spaces that refer to segments; their pointer
 * is the segment's vm_object, so that is the object here, too.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/sysv_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/shmem.h"
#include "sentry/state/state.h"

#define SEQ_MAX (INT32_MAX >> IPC_INDEX_BITS)

static void pid_number(struct state *s, pid_t *p)
{
	int64_t v = *p;

	state_range_i64(s, &v, 0, PID_MAX_DEFAULT);
	*p = (pid_t)v;
}

static void obj_fields(struct state *s, struct ipc_obj *o, uint32_t modes)
{
	int64_t id = o->id;

	state_range_i64(s, &id, 0, INT32_MAX);
	o->id = (int)id;
	o->seq = (uint16_t)(o->id >> IPC_INDEX_BITS);
	state_i32(s, &o->key);
	state_u32(s, &o->uid);
	state_u32(s, &o->gid);
	state_u32(s, &o->cuid);
	state_u32(s, &o->cgid);
	state_u32(s, &o->mode);
	if (o->mode & ~modes)
		state_fail(s, "mode %o", o->mode);
	state_i64(s, &o->ctime_s);
}

/* ---- namespaces ---- */

static const struct state_type *const kinds[IPC_KIND_COUNT] = {
	[IPC_SEM] = &state_sysv_sem,
	[IPC_MSG] = &state_sysv_msg,
	[IPC_SHM] = &state_sysv_shm,
};

static void *ns_alloc(struct state *s)
{
	struct ipcns *ns = kzalloc(sizeof(*ns));

	(void)s;
	sysv_init();
	ref_init(&ns->ref);
	return ns;
}

/* Between fields() and finish() the slots are filled without gaps. */
static void table_fields(struct state *s, struct ipc_ids *ids, enum ipc_kind kind)
{
	uint32_t n = state_count(s, ids->in_use, IPC_INDEX_MASK + 1);
	unsigned at = 0;

	state_u16(s, &ids->seq);
	if (state_loading(s)) {
		ids->slot = n ? kcalloc(n, sizeof(ids->slot[0])) : NULL;
		ids->nslots = ids->in_use = n;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct ipc_obj *o = NULL;
		void *p;

		if (!state_loading(s)) {
			while (!ids->slot[at])
				at++;
			o = ids->slot[at++];
		}
		p = o && kind == IPC_SHM ? (void *)&((struct shm_segment *)(void *)o)->obj : o;
		state_ptr(s, kinds[kind], &p);
		if (!state_loading(s))
			continue;
		if (!p)
			state_fail(s, "an empty place in a table");
		else if (kind == IPC_SHM)
			ids->slot[i] = &container_of((struct vm_object *)p, struct shm_segment, obj)->o;
		else
			ids->slot[i] = p;
	}
}

static void ns_fields(struct state *s, void *obj)
{
	struct ipcns *ns = obj;

	state_ref(s, &state_userns, &ns->userns);
	state_u64(s, &ns->inum);
	for (int k = 0; k < IPC_KIND_COUNT; k++)
		table_fields(s, &ns->ids[k], (enum ipc_kind)k);
}

static void add_totals(struct state *s, struct ipcns *ns, enum ipc_kind kind, struct ipc_obj *o)
{
	if (kind == IPC_SEM)
		ns->total_sems += ((struct sem_set *)(void *)o)->nsems;
	if (kind == IPC_SHM) {
		struct shm_segment *seg = (struct shm_segment *)(void *)o;

		if (seg->ns)
			state_fail(s, "a segment in two tables");
		seg->ns = ns;
		ns->total_shm_pages += page_up(seg->size) >> PAGE_SHIFT;
	}
}

static void spread(struct state *s, struct ipcns *ns, enum ipc_kind kind)
{
	struct ipc_ids *ids = &ns->ids[kind];
	struct ipc_obj **from = ids->slot;
	unsigned n = ids->in_use, max = 0;

	for (unsigned i = 0; i < n; i++)
		max = MAX(max, (unsigned)(from[i]->id & IPC_INDEX_MASK));
	ids->nslots = n ? max + 1 : 0;
	ids->slot = n ? kcalloc(ids->nslots, sizeof(ids->slot[0])) : NULL;
	for (unsigned i = 0; i < n; i++) {
		struct ipc_obj **to = &ids->slot[from[i]->id & IPC_INDEX_MASK];

		if (*to)
			state_fail(s, "two objects with one id");
		*to = from[i];
		ref_get(&from[i]->ref);
		add_totals(s, ns, kind, from[i]);
	}
	free(from);
}

static void ns_finish(struct state *s, void *obj)
{
	struct ipcns *ns = obj;

	if (!ns->userns)
		state_fail(s, "no owner");
	for (int k = 0; k < IPC_KIND_COUNT; k++)
		spread(s, ns, (enum ipc_kind)k);
}

static void *ns_get(void *obj)
{
	return ipcns_get(obj);
}

static void ns_put(void *obj)
{
	ipcns_put(obj);
}

const struct state_type state_ipcns = {
	.id = STATE_IPCNS,
	.version = 1,
	.name = "IPC namespace",
	.alloc = ns_alloc,
	.fields = ns_fields,
	.finish = ns_finish,
	.get = ns_get,
	.put = ns_put,
};

/* ---- semaphores ---- */

static void *sem_alloc(struct state *s)
{
	(void)s;
	return sem_set_alloc();
}

static void sem_fields(struct state *s, void *obj)
{
	struct sem_set *set = obj;

	obj_fields(s, &set->o, 0777);
	set->nsems = state_count(s, set->nsems, SEMMSL_G);
	if (state_loading(s))
		set->sem = kcalloc(set->nsems + 1, sizeof(set->sem[0]));
	for (unsigned i = 0; i < set->nsems; i++) {
		int64_t val = set->sem[i].val;

		state_range_i64(s, &val, 0, SEMVMX_G);
		set->sem[i].val = (uint16_t)val;
		pid_number(s, &set->sem[i].pid);
	}
	state_i64(s, &set->otime_s);
}

static void sem_finish(struct state *s, void *obj)
{
	struct sem_set *set = obj;

	if (!set->nsems)
		state_fail(s, "a set of no semaphores");
}

static void *sem_get(void *obj)
{
	struct sem_set *set = obj;

	ref_get(&set->o.ref);
	return set;
}

static void sem_put(void *obj)
{
	sem_set_put(obj);
}

const struct state_type state_sysv_sem = {
	.id = STATE_SYSV_SEM,
	.version = 1,
	.name = "semaphore set",
	.alloc = sem_alloc,
	.fields = sem_fields,
	.finish = sem_finish,
	.get = sem_get,
	.put = sem_put,
};

/* ---- undo lists ---- */

#define UNDOS_MAX SEMMNI_G

static void *undo_alloc(struct state *s)
{
	struct sem_undo_list *l = kzalloc(sizeof(*l));

	(void)s;
	ref_init(&l->ref);
	list_init(&l->undos);
	return l;
}

static void undo_one(struct state *s, struct sem_undo_list *l, struct sem_undo *u)
{
	struct sem_set *set = u ? u->set : NULL;
	uint32_t n;

	state_ptr(s, &state_sysv_sem, &set);
	n = state_count(s, u ? u->n : 0, SEMMSL_G);
	if (state_loading(s)) {
		u = kzalloc(sizeof(*u) + n * sizeof(u->adj[0]));
		u->set = set;
		u->n = n;
		list_add_tail(&l->undos, &u->node);
		list_init(&u->set_node);
	}
	state_bytes(s, u->adj, n * sizeof(u->adj[0]));
}

/* Those of removed sets have nothing to say any more. */
static void undo_fields(struct state *s, void *obj)
{
	struct sem_undo_list *l = obj;
	struct sem_undo *u;
	uint32_t n = 0;

	if (state_loading(s)) {
		n = state_count(s, 0, UNDOS_MAX);
		while (n--)
			undo_one(s, l, NULL);
		return;
	}
	list_for_each(u, &l->undos, node)
		n += u->set != NULL;
	(void)state_count(s, n, UNDOS_MAX);
	list_for_each(u, &l->undos, node)
		if (u->set)
			undo_one(s, l, u);
}

static void undo_finish(struct state *s, void *obj)
{
	struct sem_undo_list *l = obj;
	struct sem_undo *u;

	list_for_each(u, &l->undos, node) {
		if (!u->set || u->n != u->set->nsems) {
			state_fail(s, "adjustments that don't fit their set");
			return;
		}
		list_add_tail(&u->set->undos, &u->set_node);
	}
}

static void *undo_get(void *obj)
{
	struct sem_undo_list *l = obj;

	ref_get(&l->ref);
	return l;
}

/* Never the last: every list that is saved has a task. */
static void undo_put(void *obj)
{
	struct sem_undo_list *l = obj;

	if (ref_put(&l->ref))
		ref_init(&l->ref); /* a hostile image's: leaks */
}

const struct state_type state_sem_undo = {
	.id = STATE_SEM_UNDO,
	.version = 1,
	.name = "semaphore undo list",
	.alloc = undo_alloc,
	.fields = undo_fields,
	.finish = undo_finish,
	.get = undo_get,
	.put = undo_put,
};

/* ---- message queues ---- */

static void *msg_alloc_obj(struct state *s)
{
	(void)s;
	return msg_queue_alloc();
}

static void msg_one(struct state *s, struct msg_queue *q, struct msg *m)
{
	uint32_t size = state_count(s, m ? (uint32_t)m->size : 0, INT32_MAX);

	if (state_loading(s)) {
		m = state_ok(s) ? msg_alloc(size) : NULL;
		if (!m) {
			state_fail(s, "no memory for a message");
			return;
		}
		list_add_tail(&q->msgs, &m->node);
		q->cbytes += size;
		q->qnum++;
	}
	state_i64(s, &m->type);
	state_bytes(s, m->data, size);
	if (m->type < 1)
		state_fail(s, "a message of type %lld", (long long)m->type);
}

static void msg_fields(struct state *s, void *obj)
{
	struct msg_queue *q = obj;
	struct msg *m;
	uint32_t n;

	obj_fields(s, &q->o, 0777);
	state_u64(s, &q->qbytes);
	state_i64(s, &q->stime_s);
	state_i64(s, &q->rtime_s);
	pid_number(s, &q->lspid);
	pid_number(s, &q->lrpid);
	n = state_count(s, (uint32_t)q->qnum, INT32_MAX);
	if (state_loading(s)) {
		while (n-- && state_ok(s))
			msg_one(s, q, NULL);
		return;
	}
	list_for_each(m, &q->msgs, node)
		msg_one(s, q, m);
}

static void *msg_get(void *obj)
{
	struct msg_queue *q = obj;

	ref_get(&q->o.ref);
	return q;
}

static void msg_put(void *obj)
{
	msg_queue_put(obj);
}

const struct state_type state_sysv_msg = {
	.id = STATE_SYSV_MSG,
	.version = 1,
	.name = "message queue",
	.alloc = msg_alloc_obj,
	.fields = msg_fields,
	.get = msg_get,
	.put = msg_put,
};

/* ---- shared segments; the object is &segment->obj ---- */

static struct shm_segment *segment_of(void *obj)
{
	return container_of((struct vm_object *)obj, struct shm_segment, obj);
}

static void *shm_alloc(struct state *s)
{
	struct shm_segment *seg = kzalloc(sizeof(*seg));

	(void)s;
	ref_init(&seg->o.ref);
	seg->obj.ops = &shm_vm_ops;
	return &seg->obj;
}

static void shm_fields(struct state *s, void *obj)
{
	struct shm_segment *seg = segment_of(obj);

	obj_fields(s, &seg->o, 0777 | L_SHM_DEST | 02000 /* locked */);
	state_ref(s, &state_shmem, &seg->mem);
	state_u64(s, &seg->size);
	if (!state_loading(s))
		seg->load_atime_s = seg->atime_s;
	state_i64(s, &seg->load_atime_s);
	state_i64(s, &seg->dtime_s);
	pid_number(s, &seg->cpid);
	pid_number(s, &seg->lpid);
	state_str(s, seg->name, sizeof(seg->name));
}

static void shm_finish(struct state *s, void *obj)
{
	struct shm_segment *seg = segment_of(obj);

	seg->atime_s = seg->load_atime_s;
	if (!seg->mem || !seg->size || seg->size > (uint64_t)SHMMAX_G ||
	    shmem_object_size(seg->mem) != page_up(seg->size))
		state_fail(s, "a segment of the wrong size");
}

/* An address space maps it. */
static void *shm_get(void *obj)
{
	struct vm_object *o = obj;

	o->ops->get(o);
	return o;
}

/* The load's own reference is no attachment. */
static void shm_put_obj(void *obj)
{
	shm_put(segment_of(obj));
}

const struct state_type state_sysv_shm = {
	.id = STATE_SYSV_SHM,
	.version = 1,
	.name = "shared segment",
	.alloc = shm_alloc,
	.fields = shm_fields,
	.finish = shm_finish,
	.get = shm_get,
	.put = shm_put_obj,
	.phase = 6, /* after the last attachment */
};
