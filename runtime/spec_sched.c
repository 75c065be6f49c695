// SPDX-License-Identifier: Apache-2.0
/* Of the process object: scheduler, ioPriority, execCPUAffinity. */
#include <ctype.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/spec.h"
#include "runtime/spec_reader.h"

#define IO_CLASS_SHIFT 13

struct name_value {
	const char *name;
	int value;
};

/* The value of @name, or -1. */
static int find(const struct name_value *t, size_t n, const char *name)
{
	for (size_t i = 0; name && i < n; i++)
		if (!strcmp(t[i].name, name))
			return t[i].value;
	return -1;
}

static void parse_scheduler(struct spec_reader *r, const json_t *p, struct spec_process *ret)
{
	static const struct name_value policies[] = {
		{ "SCHED_OTHER", SCHED_OTHER }, { "SCHED_FIFO", SCHED_FIFO },
		{ "SCHED_RR", SCHED_RR },	{ "SCHED_BATCH", SCHED_BATCH },
		{ "SCHED_IDLE", SCHED_IDLE },
	};
	const json_t *o = spec_get(r, p, "scheduler", "process.scheduler", JSON_OBJECT), *v;
	const char *name = spec_get_str(r, o, "policy", "process.scheduler.policy");
	size_t i;

	if (!o)
		return;
	ret->sched_policy = find(policies, ARRAY_SIZE(policies), name);
	ret->nice = (int)spec_get_int(r, o, "nice", "process.scheduler.nice", -20, 19, 0);
	ret->sched_prio =
		(int)spec_get_int(r, o, "priority", "process.scheduler.priority", 0, 99, 0);
	if (name && !strcmp(name, "SCHED_DEADLINE"))
		spec_complain(r, "process.scheduler.policy", "SCHED_DEADLINE is not supported");
	else if (ret->sched_policy < 0)
		spec_complain(r, "process.scheduler.policy", "is missing or no policy");
	if ((ret->sched_policy == SCHED_FIFO || ret->sched_policy == SCHED_RR) != !!ret->sched_prio)
		spec_complain(r, "process.scheduler.priority", "does not fit the policy");
	json_array_foreach(spec_get(r, o, "flags", "process.scheduler.flags", JSON_ARRAY), i, v) {
		if (json_is_string(v) &&
		    !strcmp(json_string_value(v), "SCHED_FLAG_RESET_ON_FORK"))
			ret->sched_reset_on_fork = true;
		else
			spec_complain(r, "process.scheduler.flags", "has a flag that is not supported");
	}
}

static void parse_io_priority(struct spec_reader *r, const json_t *p, struct spec_process *ret)
{
	static const struct name_value classes[] = {
		{ "IOPRIO_CLASS_RT", 1 }, { "IOPRIO_CLASS_BE", 2 }, { "IOPRIO_CLASS_IDLE", 3 },
	};
	const json_t *o = spec_get(r, p, "ioPriority", "process.ioPriority", JSON_OBJECT);
	const char *name = spec_get_str(r, o, "class", "process.ioPriority.class");
	int class = find(classes, ARRAY_SIZE(classes), name);
	int64_t prio =
		spec_get_int(r, o, "priority", "process.ioPriority.priority", 0, 7, 0);

	if (o && class < 0)
		spec_complain(r, "process.ioPriority.class", "is missing or no class");
	else if (o)
		ret->ioprio = (unsigned)class << IO_CLASS_SHIFT | (unsigned)prio;
}

/* "0-3,7" as a mask of the first 64; false when it is no list of CPUs. */
bool spec_parse_cpus(const char *list, uint64_t *ret)
{
	uint64_t mask = 0;

	while (*list) {
		char *end;
		unsigned long a, b;

		if (!isdigit((unsigned char)*list))
			return false;
		a = b = strtoul(list, &end, 10);
		if (*end == '-') {
			if (!isdigit((unsigned char)end[1]))
				return false;
			b = strtoul(end + 1, &end, 10);
		}
		if (b < a || b > 4095 || (*end && *end != ',') || (*end && !end[1]))
			return false;
		for (; a <= b && a < 64; a++)
			mask |= 1ULL << a;
		list = *end ? end + 1 : end;
	}
	*ret = mask;
	return true;
}

static uint64_t get_cpus(struct spec_reader *r, const json_t *o, const char *key, const char *field)
{
	const char *list = spec_get_str(r, o, key, field);
	uint64_t mask = 0;

	if (list && !spec_parse_cpus(list, &mask))
		spec_complain(r, field, "is no list of CPUs");
	return mask;
}

void spec_parse_sched(struct spec_reader *r, const json_t *p, struct spec_process *ret)
{
	const json_t *aff =
		spec_get(r, p, "execCPUAffinity", "process.execCPUAffinity", JSON_OBJECT);

	parse_scheduler(r, p, ret);
	parse_io_priority(r, p, ret);
	/* "initial" is for the time before the process is in the container's cgroup: it never isn't. */
	ret->exec_cpus = get_cpus(r, aff, "initial", "process.execCPUAffinity.initial");
	if (json_object_get(aff, "final"))
		ret->exec_cpus = get_cpus(r, aff, "final", "process.execCPUAffinity.final");
}
