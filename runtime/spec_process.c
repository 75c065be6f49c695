// SPDX-License-Identifier: Apache-2.0
/* The process object of config.json (and of exec --process). */
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "runtime/spec.h"
#include "runtime/spec_reader.h"

/* ---- capabilities and rlimits ---- */

static const char *const cap_names[] = {
	"CHOWN",
	"DAC_OVERRIDE",
	"DAC_READ_SEARCH",
	"FOWNER",
	"FSETID",
	"KILL",
	"SETGID",
	"SETUID",
	"SETPCAP",
	"LINUX_IMMUTABLE",
	"NET_BIND_SERVICE",
	"NET_BROADCAST",
	"NET_ADMIN",
	"NET_RAW",
	"IPC_LOCK",
	"IPC_OWNER",
	"SYS_MODULE",
	"SYS_RAWIO",
	"SYS_CHROOT",
	"SYS_PTRACE",
	"SYS_PACCT",
	"SYS_ADMIN",
	"SYS_BOOT",
	"SYS_NICE",
	"SYS_RESOURCE",
	"SYS_TIME",
	"SYS_TTY_CONFIG",
	"MKNOD",
	"LEASE",
	"AUDIT_WRITE",
	"AUDIT_CONTROL",
	"SETFCAP",
	"MAC_OVERRIDE",
	"MAC_ADMIN",
	"SYSLOG",
	"WAKE_ALARM",
	"BLOCK_SUSPEND",
	"AUDIT_READ",
	"PERFMON",
	"BPF",
	"CHECKPOINT_RESTORE",
};

const char *spec_cap_name(unsigned nr)
{
	static char name[32] = "CAP_";

	if (nr >= ARRAY_SIZE(cap_names))
		return NULL;
	strncpy(name + 4, cap_names[nr], sizeof(name) - 5);
	return name;
}

int spec_cap_number(const char *name)
{
	if (!strncasecmp(name, "CAP_", 4))
		name += 4;
	for (unsigned i = 0; i < ARRAY_SIZE(cap_names); i++)
		if (!strcasecmp(name, cap_names[i]))
			return (int)i;
	return -1;
}

/* Unknown names are ignored, as the runtime-spec has it for capabilities that the host lacks. */
static uint64_t get_caps(struct spec_reader *r, const json_t *o, const char *key,
			 const char *field)
{
	unsigned n;
	AUTO_FREE const char **v = spec_get_strv(r, o, key, field, &n);
	uint64_t set = 0;

	for (unsigned i = 0; i < n; i++) {
		int c = spec_cap_number(v[i]);

		if (c >= 0)
			set |= 1ULL << c;
	}
	return set;
}

static const struct {
	const char *name;
	int resource;
} rlimit_names[] = {
	{ "RLIMIT_CPU", RLIMIT_CPU },
	{ "RLIMIT_FSIZE", RLIMIT_FSIZE },
	{ "RLIMIT_DATA", RLIMIT_DATA },
	{ "RLIMIT_STACK", RLIMIT_STACK },
	{ "RLIMIT_CORE", RLIMIT_CORE },
	{ "RLIMIT_RSS", RLIMIT_RSS },
	{ "RLIMIT_NPROC", RLIMIT_NPROC },
	{ "RLIMIT_NOFILE", RLIMIT_NOFILE },
	{ "RLIMIT_MEMLOCK", RLIMIT_MEMLOCK },
	{ "RLIMIT_AS", RLIMIT_AS },
	{ "RLIMIT_LOCKS", RLIMIT_LOCKS },
	{ "RLIMIT_SIGPENDING", RLIMIT_SIGPENDING },
	{ "RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE },
	{ "RLIMIT_NICE", RLIMIT_NICE },
	{ "RLIMIT_RTPRIO", RLIMIT_RTPRIO },
	{ "RLIMIT_RTTIME", RLIMIT_RTTIME },
};

/* JSON integers are signed 64-bit here; -1 and 2^64-1 (which jansson reads as a real) mean no limit. */
static bool rlimit_value(const json_t *o, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	*ret = json_is_integer(v) ? (uint64_t)json_integer_value(v) : UINT64_MAX;
	return json_is_number(v);
}

static void parse_rlimits(struct spec_reader *r, const json_t *p,
			  struct spec_process *ret)
{
	const json_t *a = spec_get(r, p, "rlimits", "process.rlimits", JSON_ARRAY);
	size_t n = json_array_size(a);

	if (n > SPEC_MAX_ITEMS) {
		spec_complain(r, "process.rlimits", "has too many elements");
		return;
	}
	ret->rlimits = kcalloc(n + 1, sizeof(ret->rlimits[0]));
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(a, i);
		const char *type = spec_get_str(r, o, "type", "process.rlimits[].type");
		struct spec_rlimit *l = &ret->rlimits[ret->nrlimits];
		bool known = false;

		for (unsigned k = 0; type && k < ARRAY_SIZE(rlimit_names); k++)
			if (!strcmp(type, rlimit_names[k].name)) {
				l->resource = rlimit_names[k].resource;
				known = true;
			}
		if (!known) {
			AUTO_FREE char *what = kasprintf("wrong rlimit value: %s", type ?: "");

			spec_complain(r, "process.rlimits[].type:", what);
			return;
		}
		if (!rlimit_value(o, "soft", &l->soft) || !rlimit_value(o, "hard", &l->hard)) {
			spec_complain(r, "process.rlimits[]", "has no number as soft or hard limit");
			return;
		}
		if (l->soft > l->hard) {
			spec_complain(r, "process.rlimits[].soft",
				      "is above the hard limit");
			return;
		}
		ret->nrlimits++;
	}
}

/* ---- process ---- */

static void parse_user(struct spec_reader *r, const json_t *p, struct spec_process *ret)
{
	const json_t *u = spec_get(r, p, "user", "process.user", JSON_OBJECT);
	const json_t *g = spec_get(r, u, "additionalGids", "process.user.additionalGids",
				   JSON_ARRAY);
	size_t n = json_array_size(g);

	ret->uid = (uid_t)spec_get_int(r, u, "uid", "process.user.uid", 0, UINT32_MAX - 1,
				       0);
	ret->gid = (gid_t)spec_get_int(r, u, "gid", "process.user.gid", 0, UINT32_MAX - 1,
				       0);
	ret->umask = (int)spec_get_int(r, u, "umask", "process.user.umask", 0, 0777, -1);
	if (n > 65536) {
		spec_complain(r, "process.user.additionalGids", "has too many elements");
		return;
	}
	ret->additional_gids = kcalloc(n + 1, sizeof(gid_t));
	for (size_t i = 0; i < n; i++) {
		json_int_t v = json_integer_value(json_array_get(g, i));

		if (!json_is_integer(json_array_get(g, i)) || v < 0 || v >= UINT32_MAX) {
			spec_complain(r, "process.user.additionalGids",
				      "has an element that is no gid");
			return;
		}
		ret->additional_gids[ret->nadditional_gids++] = (gid_t)v;
	}
}

void spec_parse_process_fields(struct spec_reader *r, const json_t *p,
			       struct spec_process *ret)
{
	const json_t *caps =
		spec_get(r, p, "capabilities", "process.capabilities", JSON_OBJECT);
	const json_t *size =
		spec_get(r, p, "consoleSize", "process.consoleSize", JSON_OBJECT);

	const char *label;

	ret->terminal = spec_get_bool(r, p, "terminal", "process.terminal");
	ret->width = (unsigned)spec_get_int(r, size, "width", "process.consoleSize.width",
					    0, 65535, 0);
	ret->height = (unsigned)spec_get_int(r, size, "height",
					     "process.consoleSize.height", 0, 65535, 0);
	parse_user(r, p, ret);
	ret->args = spec_get_strv(r, p, "args", "process.args", &ret->nargs);
	ret->env = spec_get_strv(r, p, "env", "process.env", &ret->nenv);
	ret->cwd = spec_get_str(r, p, "cwd", "process.cwd");
	if (!ret->nargs)
		spec_complain(r, "process.args", "is missing or empty");
	if (!ret->cwd)
		spec_complain(r, "process.cwd", "is missing");
	else if (ret->cwd[0] != '/')
		spec_complain(r, "process.cwd", "is not an absolute path");
	if (caps) {
		ret->has_caps = true;
		ret->caps_bounding =
			get_caps(r, caps, "bounding", "process.capabilities.bounding");
		ret->caps_effective =
			get_caps(r, caps, "effective", "process.capabilities.effective");
		ret->caps_inheritable = get_caps(r, caps, "inheritable",
						 "process.capabilities.inheritable");
		ret->caps_permitted =
			get_caps(r, caps, "permitted", "process.capabilities.permitted");
		ret->caps_ambient =
			get_caps(r, caps, "ambient", "process.capabilities.ambient");
	}
	parse_rlimits(r, p, ret);
	ret->no_new_privs =
		spec_get_bool(r, p, "noNewPrivileges", "process.noNewPrivileges");
	ret->oom_score_adj = (int)spec_get_int(r, p, "oomScoreAdj", "process.oomScoreAdj",
					       -1000, 1000, 0);
	ret->apparmor_profile =
		spec_get_str(r, p, "apparmorProfile", "process.apparmorProfile");
	label = spec_get_str(r, p, "selinuxLabel", "process.selinuxLabel");
	if (label && label[0])
		spec_complain(r, "process.selinuxLabel:",
			      "selinux label is specified in config, but selinux is disabled or not supported");
	spec_parse_sched(r, p, ret);
}

void spec_free_process_fields(struct spec_process *p)
{
	free(p->args);
	free(p->env);
	free(p->additional_gids);
	free(p->rlimits);
}
