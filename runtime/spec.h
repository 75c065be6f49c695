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
	const char *cwd;
	bool has_caps;
	uint64_t caps_bounding, caps_effective, caps_inheritable, caps_permitted, caps_ambient;
	struct spec_rlimit *rlimits;
	unsigned nrlimits;
	bool no_new_privs;
	int oom_score_adj;
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
	json_t *annotations; /* borrowed; may be NULL */
};

/* Reads and checks DIR/config.json. On failure *ret_why (heap) says what is wrong, with the path. */
struct spec *spec_load(const char *bundle, char **ret_why);
/* The same from text (boot configuration, exec process). @name is for messages. */
struct spec *spec_parse(const char *text, size_t len, const char *name, char **ret_why);
/* A process object alone (exec --process). */
struct spec *spec_parse_process(const char *text, size_t len, const char *name, char **ret_why);
void spec_free(struct spec *s);
DEFINE_AUTO(struct spec, spec_free)

/* "CAP_X" to its number, -1 if unknown. */
int spec_cap_number(const char *name);
/* The default config.json of `holdfast spec`, to be dumped. New reference. */
json_t *spec_default(bool rootless);

#endif
