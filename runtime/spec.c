// SPDX-License-Identifier: Apache-2.0
/*
 * Parsing of config.json. A small reader type carries the first error, so that the parsers read as a
 * list of fields; every message names the field by its path in the document.
 */
#include "runtime/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/size.h"

struct reader {
	const char *file;
	char *why; /* heap; first error */
};

static void complain(struct reader *r, const char *field, const char *what)
{
	if (!r->why)
		r->why = kasprintf("%s: %s %s", r->file, field, what);
}

static const json_t *get(struct reader *r, const json_t *o, const char *key, const char *field,
			 json_type type)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return NULL;
	if (json_typeof(v) == type)
		return v;
	if (type == JSON_TRUE && json_is_boolean(v))
		return v;
	complain(r, field,
		 type == JSON_OBJECT  ? "is not an object" :
		 type == JSON_ARRAY   ? "is not an array" :
		 type == JSON_STRING  ? "is not a string" :
		 type == JSON_INTEGER ? "is not an integer" :
					"is not a boolean");
	return NULL;
}

static const char *get_str(struct reader *r, const json_t *o, const char *key, const char *field)
{
	const json_t *v = get(r, o, key, field, JSON_STRING);

	if (!v)
		return NULL;
	if (strlen(json_string_value(v)) != json_string_length(v)) {
		complain(r, field, "contains a NUL byte");
		return NULL;
	}
	return json_string_value(v);
}

static bool get_bool(struct reader *r, const json_t *o, const char *key, const char *field)
{
	return json_is_true(get(r, o, key, field, JSON_TRUE));
}

/* An integer within [min, max]; @dflt when absent. */
static int64_t get_int(struct reader *r, const json_t *o, const char *key, const char *field,
		       int64_t min, int64_t max, int64_t dflt)
{
	const json_t *v = get(r, o, key, field, JSON_INTEGER);
	int64_t n;

	if (!v)
		return dflt;
	n = json_integer_value(v);
	if (n < min || n > max) {
		complain(r, field, "is out of range");
		return dflt;
	}
	return n;
}

/* An array of strings as a NULL-terminated heap vector. */
static const char **get_strv(struct reader *r, const json_t *o, const char *key, const char *field,
			     unsigned *ret_n)
{
	const json_t *v = get(r, o, key, field, JSON_ARRAY);
	size_t n = json_array_size(v);
	const char **out = kcalloc(n + 1, sizeof(*out));

	*ret_n = 0;
	if (n > SPEC_MAX_ITEMS * 16) {
		complain(r, field, "has too many elements");
		return out;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_array_get(v, i);

		if (!json_is_string(s) || strlen(json_string_value(s)) != json_string_length(s)) {
			complain(r, field, "has an element that is not a plain string");
			return out;
		}
		out[i] = json_string_value(s);
	}
	*ret_n = (unsigned)n;
	return out;
}

/* ---- capabilities and rlimits ---- */

static const char *const cap_names[] = {
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
	"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
	"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
	"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
	"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
	"WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
};

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
static uint64_t get_caps(struct reader *r, const json_t *o, const char *key, const char *field)
{
	unsigned n;
	AUTO_FREE const char **v = get_strv(r, o, key, field, &n);
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
static uint64_t rlimit_value(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v))
		return (uint64_t)json_integer_value(v);
	return UINT64_MAX;
}

static void parse_rlimits(struct reader *r, const json_t *p, struct spec_process *ret)
{
	const json_t *a = get(r, p, "rlimits", "process.rlimits", JSON_ARRAY);
	size_t n = json_array_size(a);

	if (n > SPEC_MAX_ITEMS) {
		complain(r, "process.rlimits", "has too many elements");
		return;
	}
	ret->rlimits = kcalloc(n + 1, sizeof(ret->rlimits[0]));
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(a, i);
		const char *type = get_str(r, o, "type", "process.rlimits[].type");
		struct spec_rlimit *l = &ret->rlimits[ret->nrlimits];
		bool known = false;

		for (unsigned k = 0; type && k < ARRAY_SIZE(rlimit_names); k++)
			if (!strcmp(type, rlimit_names[k].name)) {
				l->resource = rlimit_names[k].resource;
				known = true;
			}
		if (!known) {
			complain(r, "process.rlimits[].type", "names no resource limit");
			return;
		}
		l->soft = rlimit_value(o, "soft");
		l->hard = rlimit_value(o, "hard");
		if (l->soft > l->hard) {
			complain(r, "process.rlimits[].soft", "is above the hard limit");
			return;
		}
		ret->nrlimits++;
	}
}

/* ---- process ---- */

static void parse_user(struct reader *r, const json_t *p, struct spec_process *ret)
{
	const json_t *u = get(r, p, "user", "process.user", JSON_OBJECT);
	const json_t *g = get(r, u, "additionalGids", "process.user.additionalGids", JSON_ARRAY);
	size_t n = json_array_size(g);

	ret->uid = (uid_t)get_int(r, u, "uid", "process.user.uid", 0, UINT32_MAX - 1, 0);
	ret->gid = (gid_t)get_int(r, u, "gid", "process.user.gid", 0, UINT32_MAX - 1, 0);
	ret->umask = (int)get_int(r, u, "umask", "process.user.umask", 0, 0777, -1);
	if (n > 65536) {
		complain(r, "process.user.additionalGids", "has too many elements");
		return;
	}
	ret->additional_gids = kcalloc(n + 1, sizeof(gid_t));
	for (size_t i = 0; i < n; i++) {
		json_int_t v = json_integer_value(json_array_get(g, i));

		if (!json_is_integer(json_array_get(g, i)) || v < 0 || v >= UINT32_MAX) {
			complain(r, "process.user.additionalGids", "has an element that is no gid");
			return;
		}
		ret->additional_gids[ret->nadditional_gids++] = (gid_t)v;
	}
}

static void parse_process(struct reader *r, const json_t *p, struct spec_process *ret)
{
	const json_t *caps = get(r, p, "capabilities", "process.capabilities", JSON_OBJECT);
	const json_t *size = get(r, p, "consoleSize", "process.consoleSize", JSON_OBJECT);

	ret->terminal = get_bool(r, p, "terminal", "process.terminal");
	ret->width = (unsigned)get_int(r, size, "width", "process.consoleSize.width", 0, 65535, 0);
	ret->height =
		(unsigned)get_int(r, size, "height", "process.consoleSize.height", 0, 65535, 0);
	parse_user(r, p, ret);
	ret->args = get_strv(r, p, "args", "process.args", &ret->nargs);
	ret->env = get_strv(r, p, "env", "process.env", &ret->nenv);
	ret->cwd = get_str(r, p, "cwd", "process.cwd");
	if (!ret->nargs)
		complain(r, "process.args", "is missing or empty");
	if (!ret->cwd)
		complain(r, "process.cwd", "is missing");
	else if (ret->cwd[0] != '/')
		complain(r, "process.cwd", "is not an absolute path");
	if (caps) {
		ret->has_caps = true;
		ret->caps_bounding = get_caps(r, caps, "bounding", "process.capabilities.bounding");
		ret->caps_effective =
			get_caps(r, caps, "effective", "process.capabilities.effective");
		ret->caps_inheritable =
			get_caps(r, caps, "inheritable", "process.capabilities.inheritable");
		ret->caps_permitted =
			get_caps(r, caps, "permitted", "process.capabilities.permitted");
		ret->caps_ambient = get_caps(r, caps, "ambient", "process.capabilities.ambient");
	}
	parse_rlimits(r, p, ret);
	ret->no_new_privs = get_bool(r, p, "noNewPrivileges", "process.noNewPrivileges");
	ret->oom_score_adj =
		(int)get_int(r, p, "oomScoreAdj", "process.oomScoreAdj", -1000, 1000, 0);
}

/* ---- the rest of the document ---- */

static void parse_mounts(struct reader *r, const json_t *root, struct spec *s)
{
	const json_t *a = get(r, root, "mounts", "mounts", JSON_ARRAY);
	size_t n = json_array_size(a);

	if (n > SPEC_MAX_ITEMS) {
		complain(r, "mounts", "has too many elements");
		return;
	}
	s->mounts = kcalloc(n + 1, sizeof(s->mounts[0]));
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(a, i);
		struct spec_mount *m = &s->mounts[i];

		m->destination = get_str(r, o, "destination", "mounts[].destination");
		m->type = get_str(r, o, "type", "mounts[].type");
		m->source = get_str(r, o, "source", "mounts[].source");
		m->options = get_strv(r, o, "options", "mounts[].options", &m->noptions);
		if (!m->destination || !m->destination[0])
			complain(r, "mounts[].destination", "is missing");
		s->nmounts++;
	}
}

static void parse_linux(struct reader *r, const json_t *root, struct spec *s)
{
	const json_t *l = get(r, root, "linux", "linux", JSON_OBJECT);
	const json_t *res = get(r, l, "resources", "linux.resources", JSON_OBJECT);
	const json_t *mem = get(r, res, "memory", "linux.resources.memory", JSON_OBJECT);
	const json_t *cpu = get(r, res, "cpu", "linux.resources.cpu", JSON_OBJECT);
	const json_t *pids = get(r, res, "pids", "linux.resources.pids", JSON_OBJECT);
	int64_t v;

	s->masked_paths = get_strv(r, l, "maskedPaths", "linux.maskedPaths", &s->nmasked);
	s->readonly_paths = get_strv(r, l, "readonlyPaths", "linux.readonlyPaths", &s->nreadonly);
	(void)get_str(r, l, "cgroupsPath", "linux.cgroupsPath"); /* its type is checked */
	v = get_int(r, mem, "limit", "linux.resources.memory.limit", -1, INT64_MAX, 0);
	s->memory_limit = v > 0 ? (uint64_t)v : 0;
	v = get_int(r, cpu, "quota", "linux.resources.cpu.quota", -1, INT64_MAX, 0);
	s->cpu_quota = v > 0 ? (uint64_t)v : 0;
	v = get_int(r, cpu, "period", "linux.resources.cpu.period", 0, INT64_MAX, 100000);
	s->cpu_period = v > 0 ? (uint64_t)v : 100000;
	v = get_int(r, pids, "limit", "linux.resources.pids.limit", INT64_MIN, INT64_MAX, 0);
	s->pids_limit = v > 0 ? (uint64_t)v : 0;
}

static void parse_document(struct reader *r, struct spec *s)
{
	const json_t *root = get(r, s->json, "root", "root", JSON_OBJECT);
	const json_t *process = get(r, s->json, "process", "process", JSON_OBJECT);

	s->oci_version = get_str(r, s->json, "ociVersion", "ociVersion");
	if (!s->oci_version)
		complain(r, "ociVersion", "is missing");
	else if (strncmp(s->oci_version, "1.", 2) != 0)
		complain(r, "ociVersion", "is not 1.x");
	if (!root)
		complain(r, "root", "is missing");
	s->root_path = get_str(r, root, "path", "root.path");
	if (root && (!s->root_path || !s->root_path[0]))
		complain(r, "root.path", "is missing");
	s->root_readonly = get_bool(r, root, "readonly", "root.readonly");
	s->hostname = get_str(r, s->json, "hostname", "hostname");
	if (s->hostname && strlen(s->hostname) > 64)
		complain(r, "hostname", "is longer than 64 bytes");
	s->domainname = get_str(r, s->json, "domainname", "domainname");
	if (s->domainname && strlen(s->domainname) > 64)
		complain(r, "domainname", "is longer than 64 bytes");
	if (process)
		parse_process(r, process, &s->process);
	else
		complain(r, "process", "is missing");
	parse_mounts(r, s->json, s);
	parse_linux(r, s->json, s);
	s->annotations = json_object_get(s->json, "annotations");
}

typedef void (*parse_fn)(struct reader *r, struct spec *s);

static struct spec *parse_with(const char *text, size_t len, const char *name, parse_fn fn,
			       char **ret_why)
{
	struct reader r = { .file = name };
	json_error_t err;
	struct spec *s;
	json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES,
				  &err);

	if (!json) {
		*ret_why = kasprintf("%s: not valid JSON: line %d: %s", name, err.line, err.text);
		return NULL;
	}
	s = kzalloc(sizeof(*s));
	s->json = json;
	if (json_is_object(json))
		fn(&r, s);
	else
		complain(&r, "the document", "is not an object");
	if (r.why) {
		*ret_why = r.why;
		spec_free(s);
		return NULL;
	}
	return s;
}

struct spec *spec_parse(const char *text, size_t len, const char *name, char **ret_why)
{
	return parse_with(text, len, name, parse_document, ret_why);
}

static void parse_process_document(struct reader *r, struct spec *s)
{
	parse_process(r, s->json, &s->process);
}

struct spec *spec_parse_process(const char *text, size_t len, const char *name, char **ret_why)
{
	return parse_with(text, len, name, parse_process_document, ret_why);
}

struct spec *spec_load(const char *bundle, char **ret_why)
{
	AUTO_FREE char *path = kasprintf("%s/config.json", bundle);
	AUTO_FREE char *text = NULL;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;
	size_t used = 0;

	if (fd < 0 || fstat(fd, &st)) {
		*ret_why = kasprintf("%s: %s", path, strerror(errno));
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > SPEC_MAX_BYTES) {
		*ret_why = kasprintf("%s: not a regular file of at most %u bytes", path,
				     SPEC_MAX_BYTES);
		return NULL;
	}
	text = kzalloc((size_t)st.st_size + 1);
	while (used < (size_t)st.st_size) {
		ssize_t n = read(fd, text + used, (size_t)st.st_size - used);

		if (n <= 0)
			break;
		used += (size_t)n;
	}
	return spec_parse(text, used, path, ret_why);
}

void spec_free(struct spec *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->nmounts; i++)
		free(s->mounts[i].options);
	free(s->mounts);
	free(s->process.args);
	free(s->process.env);
	free(s->process.additional_gids);
	free(s->process.rlimits);
	free(s->masked_paths);
	free(s->readonly_paths);
	json_decref(s->json);
	free(s);
}
