// SPDX-License-Identifier: Apache-2.0
/* features: the runtime-spec's features.md document, from what the parsers know. */
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/mount_options.h"
#include "runtime/seccomp_profile.h"

static json_t *names(const char *(*name)(unsigned i))
{
	json_t *a = json_array();
	const char *n;

	for (unsigned i = 0; (n = name(i)); i++)
		json_array_append_new(a, json_string(n));
	return a;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* @name's names in their order. */
static json_t *sorted(const char *(*name)(unsigned i))
{
	json_t *all = names(name), *out = json_array();
	size_t n = json_array_size(all);
	AUTO_FREE const char **v = kcalloc(n + 1, sizeof(*v));

	for (size_t i = 0; i < n; i++)
		v[i] = json_string_value(json_array_get(all, i));
	qsort(v, n, sizeof(*v), by_text);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(out, json_string(v[i]));
	json_decref(all);
	return out;
}

static const char *hook_name(unsigned i)
{
	return i < HOOK_COUNT ? spec_hook_name(i) : NULL;
}

static const char *namespace_name(unsigned i)
{
	static const enum spec_namespace_kind kinds[] = { NAMESPACE_CGROUP, NAMESPACE_IPC, NAMESPACE_MNT,
							  NAMESPACE_NET,    NAMESPACE_PID, NAMESPACE_USER,
							  NAMESPACE_UTS };

	return i < ARRAY_SIZE(kinds) ? spec_namespace_type(kinds[i]) : NULL;
}

static json_t *seccomp_features(void)
{
	return json_pack("{s:b, s:o, s:o, s:o, s:o, s:o}", "enabled", 1, "actions",
			 sorted(seccomp_profile_action), "operators", sorted(seccomp_profile_operator),
			 "archs", sorted(seccomp_profile_arch), "knownFlags", sorted(seccomp_profile_flag),
			 "supportedFlags", sorted(seccomp_profile_flag));
}

static json_t *linux_features(void)
{
	return json_pack("{s:o, s:o, s:{s:b,s:b,s:b,s:b,s:b}, s:o, s:{s:b}, s:{s:b}, s:{s:b}, s:{s:{s:b}}, s:{s:b}}",
			 "namespaces", names(namespace_name), "capabilities", names(spec_cap_name),
			 "cgroup", "v1", 1, "v2", 1, "systemd", 1, "systemdUser", 1, "rdma", 0, "seccomp",
			 seccomp_features(), "apparmor", "enabled", 0, "selinux", "enabled", 0, "intelRdt",
			 "enabled", 0, "mountExtensions", "idmap", "enabled", 0, "netDevices", "enabled", 0);
}

static int features(int argc, char **argv)
{
	const struct scmp_version *v = seccomp_version();
	AUTO_FREE char *libseccomp = kasprintf("%u.%u.%u", v->major, v->minor, v->micro);
	json_t *j = json_pack("{s:s, s:s, s:o, s:o, s:o, s:{s:s, s:s}}", "ociVersionMin", "1.0.0",
			      "ociVersionMax", OCI_SPEC_VERSION, "hooks", names(hook_name),
			      "mountOptions", sorted(mount_options_name), "linux", linux_features(),
			      "annotations", "io.github.seccomp.libseccomp.version", libseccomp,
			      "org.holdfast.version", HOLDFAST_VERSION);

	(void)argc;
	(void)argv;
	json_dumpf(j, stdout, JSON_INDENT(4));
	putchar('\n');
	json_decref(j);
	return 0;
}

static const struct opt no_opts[] = { { 0 } };

const struct command cmd_features = {
	.name = "features",
	.synopsis = "",
	.summary = "print what this runtime supports as JSON",
	.details = "  The runtime-spec's features document, which callers use to choose options.",
	.opts = no_opts,
	.max_args = 0,
	.run = features,
};
