// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of an OCI runtime-spec bundle (config.json) that holdfast acts on, checked and in C form.
 * Unknown fields are ignored, wrong types and absurd values are refused by name.
 */
#ifndef RUNTIME_SPEC_H
#define RUNTIME_SPEC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define SPEC_MAX_BYTES (8u << 20)
#define SPEC_MAX_ITEMS 4096

struct spec_mount {
	const char *destination, *type, *source;
	const char **options;
	unsigned noptions;
};

struct spec_rlimit {
	int resource;
	uint64_t soft, hard;
};

struct spec_process {
	bool terminal;
	unsigned width, height;
	uid_t uid;
	gid_t gid;
	gid_t *additional_gids;
	unsigned nadditional_gids;
	int umask; /* -1: not given */
	const char **args, **env; /* NULL terminated */
	unsigned nargs, nenv;
	const char *program; /* where it is not args[0] (hooks), or NULL */
	const char *cwd;
	bool has_caps;
	uint64_t caps_bounding, caps_effective, caps_inheritable, caps_permitted, caps_ambient;
	struct spec_rlimit *rlimits;
	unsigned nrlimits;
	bool no_new_privs;
	int oom_score_adj;
	const char *apparmor_profile; /* named only: there is none in a guest */
	int sched_policy, sched_prio, nice;
	bool sched_reset_on_fork;
	unsigned ioprio;    /* as ioprio_set(2) takes it; 0: not given */
	uint64_t exec_cpus; /* of processes that join later; 0: all */
	/* not of the document: descriptors of the host that become 3, 4 ... (borrowed array) */
	const int *extra_fds;
	unsigned nextra_fds;
};

enum spec_namespace_kind {
	NAMESPACE_PID,
	NAMESPACE_NET,
	NAMESPACE_MNT,
	NAMESPACE_IPC,
	NAMESPACE_UTS,
	NAMESPACE_USER,
	NAMESPACE_CGROUP,
	NAMESPACE_TIME,
	NAMESPACE_COUNT
};

struct spec_namespace {
	bool listed;
	const char *path; /* NULL: a new one */
};

struct spec_id_map {
	uint32_t container, host, size;
};

struct spec_device {
	const char *path;
	uint32_t mode; /* with its type */
	unsigned major, minor;
	uid_t uid;
	gid_t gid;
};

enum spec_hook_kind {
	HOOK_PRESTART,
	HOOK_CREATE_RUNTIME,
	HOOK_CREATE_CONTAINER,
	HOOK_START_CONTAINER,
	HOOK_POSTSTART,
	HOOK_POSTSTOP,
	HOOK_COUNT
};

struct spec_hook {
	const char *path;
	const char **args, **env; /* NULL terminated */
	unsigned nargs, nenv;
	bool has_env;
	int timeout; /* seconds; 0: none */
};

struct spec_hooks {
	struct spec_hook_list {
		struct spec_hook *v;
		unsigned n;
	} list[HOOK_COUNT];
};

struct spec {
	json_t *json; /* owns every string here */
	const char *oci_version;
	const char *root_path;
	bool root_readonly;
	const char *hostname, *domainname;
	struct spec_process process;
	struct spec_mount *mounts;
	unsigned nmounts;
	const char **masked_paths, **readonly_paths;
	unsigned nmasked, nreadonly;
	uint64_t memory_limit, cpu_quota, cpu_period, pids_limit; /* 0: none */
	struct spec_namespace namespaces[NAMESPACE_COUNT];
	struct spec_id_map *uid_map, *gid_map;
	unsigned nuid_map, ngid_map;
	struct spec_device *devices;
	unsigned ndevices;
	const json_t *sysctl;             /* object of strings, borrowed; or NULL */
	unsigned long rootfs_propagation; /* MS_* for mount(2); 0: not given */
	uint32_t personality;
	struct spec_hooks hooks;
	json_t *annotations; /* borrowed; may be NULL */
};

/* Reads and checks DIR/config.json. On failure *ret_why (heap) says what is wrong, with the path. */
struct spec *spec_load(const char *bundle, char **ret_why);
/* The same from text (boot configuration, exec process). @name is for messages. */
struct spec *spec_parse(const char *text, size_t len, const char *name, char **ret_why);
/* A process object alone (exec --process). */
struct spec *spec_parse_process(const char *text, size_t len, const char *name, char **ret_why);
/* Adds an annotation, or changes it. */
void spec_annotate(struct spec *s, const char *name, const char *value);
void spec_free(struct spec *s);

/* spec_json.c: documents as JSON, with Go's unsigned numbers as the signed ones of the same bits. New reference
 * or NULL with *ret_why (heap). */
json_t *spec_json_parse(const char *text, size_t len, const char *name, char **ret_why);
json_t *spec_json_load(const char *path, char **ret_why);
/* The text of a document (heap), or NULL with *ret_why. */
char *spec_json_read(const char *path, size_t *ret_len, char **ret_why);

/* A hooks object alone, which has to outlive *ret. 0, or -1 when it is none (spec_hooks_fini() in any case). */
int spec_load_hooks(const json_t *hooks, struct spec_hooks *ret);
void spec_hooks_fini(struct spec_hooks *h);
const char *spec_hook_name(enum spec_hook_kind kind);
DEFINE_AUTO(struct spec, spec_free)

/* What clone(2) and config.json call a namespace. */
int spec_namespace_flag(enum spec_namespace_kind kind);
const char *spec_namespace_type(enum spec_namespace_kind kind);
/* "0-3,7" as a mask of the first 64 CPUs; false when it is no list of CPUs. */
bool spec_parse_cpus(const char *list, uint64_t *ret);

/* "CAP_X" to its number, -1 if unknown. */
int spec_cap_number(const char *name);
/* "CAP_X" of a number, NULL behind the last. */
const char *spec_cap_name(unsigned nr);
/* The default config.json of `holdfast spec`, to be dumped. New reference. */
json_t *spec_default(bool rootless);

#endif
