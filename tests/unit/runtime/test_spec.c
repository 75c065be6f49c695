// SPDX-License-Identifier: Apache-2.0
/* The parsers of config.json: what they make of it, and what they say of what they don't take. */
#include <linux/filter.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "runtime/mount_options.h"
#include "runtime/seccomp_profile.h"
#include "runtime/spec.h"

#define BASE "\"ociVersion\":\"1.0.2\",\"root\":{\"path\":\"r\"},\"process\":{\"args\":[\"a\"],\"cwd\":\"/\""
#define DOC(process, rest) "{" BASE process "}" rest "}"

static struct spec *parse(const char *text)
{
	char *why = NULL;
	struct spec *s = spec_parse(text, strlen(text), "c", &why);

	if (!s)
		fail_msg("%s: %s", text, why);
	return s;
}

static void refused(const char *text, const char *words)
{
	char *why = NULL;
	struct spec *s = spec_parse(text, strlen(text), "c", &why);

	assert_null(s);
	if (!strstr(why, words))
		fail_msg("%s: %s", text, why);
	free(why);
}

static void unsigned_numbers(void **state)
{
	static const struct {
		const char *text;
		json_int_t want;
	} cases[] = {
		{ "[9223372036854775807]", INT64_MAX },
		{ "[9223372036854775808]", INT64_MIN },
		{ "[18446744073709551615]", -1 },
		{ "[ 18446744073709551614 ]", -2 },
		{ "[-9223372036854775808]", INT64_MIN },
	};
	static const char *const bad[] = { "[18446744073709551616]", "[-18446744073709551615]",
					   "18446744073709551615", "[1", "\"18446744073709551615" };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		char *why = NULL;
		json_t *j = spec_json_parse(cases[i].text, strlen(cases[i].text), "n", &why);

		assert_non_null(j);
		assert_true(json_integer_value(json_array_get(j, 0)) == cases[i].want);
		json_decref(j);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		char *why = NULL;

		assert_null(spec_json_parse(bad[i], strlen(bad[i]), "n", &why));
		free(why);
	}
	const char *text = "[\"18446744073709551615\\\"\", 1.18446744073709551615]";
	char *why = NULL;
	json_t *j = spec_json_parse(text, strlen(text), "n", &why);

	assert_non_null(j);
	assert_string_equal(json_string_value(json_array_get(j, 0)), "18446744073709551615\"");
	json_decref(j);
}

static void rlimits(void **state)
{
	struct spec *s = parse(DOC(",\"rlimits\":[{\"type\":\"RLIMIT_CORE\",\"soft\":0,\"hard\":18446744073709551615}]", ""));

	(void)state;
	assert_int_equal(s->process.nrlimits, 1);
	assert_true(s->process.rlimits[0].hard == UINT64_MAX && s->process.rlimits[0].soft == 0);
	spec_free(s);
	refused(DOC(",\"rlimits\":[{\"type\":\"X\",\"soft\":0,\"hard\":1}]", ""), "wrong rlimit value: X");
	refused(DOC(",\"rlimits\":[{\"type\":\"RLIMIT_CPU\",\"soft\":2,\"hard\":1}]", ""), "above the hard limit");
}

static void namespaces_and_mappings(void **state)
{
	struct spec *s = parse(DOC("", ",\"linux\":{\"namespaces\":[{\"type\":\"network\",\"path\":\"/n\"},{\"type\":\"user\"}],"
				       "\"uidMappings\":[{\"containerID\":0,\"hostID\":100,\"size\":10}],"
				       "\"gidMappings\":[{\"containerID\":0,\"hostID\":200,\"size\":10}]}"));

	(void)state;
	assert_true(s->namespaces[NAMESPACE_NET].listed && s->namespaces[NAMESPACE_USER].listed);
	assert_string_equal(s->namespaces[NAMESPACE_NET].path, "/n");
	assert_false(s->namespaces[NAMESPACE_PID].listed);
	assert_int_equal(s->gid_map[0].host, 200);
	spec_free(s);
	refused(DOC("", ",\"linux\":{\"namespaces\":[{\"type\":\"foo\"}]}"), "\"foo\" does not exist");
	refused(DOC("", ",\"linux\":{\"namespaces\":[{}]}"), "does not exist");
	refused(DOC("", ",\"linux\":{\"namespaces\":[{\"type\":\"user\"}]}"), "no mappings found");
	refused(DOC("", ",\"linux\":{\"namespaces\":[{\"type\":\"user\"}],"
			"\"uidMappings\":[{\"containerID\":4294967290,\"hostID\":100,\"size\":10}],"
			"\"gidMappings\":[{\"containerID\":0,\"hostID\":200,\"size\":10}]}"), "beyond the ids");
}

static void cpu_lists(void **state)
{
	static const char *const bad[] = { ",", "1,", "a", "3-1", "1-", "-1", "1 2", "0,99999" };
	uint64_t mask;

	(void)state;
	assert_true(spec_parse_cpus("0-2,5", &mask) && mask == 0x27);
	assert_true(spec_parse_cpus("63,64-70", &mask) && mask == 1ULL << 63);
	assert_true(spec_parse_cpus("", &mask) && mask == 0);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(spec_parse_cpus(bad[i], &mask));
}

static void mounts(void **state)
{
	static const char *opts[] = { "rbind", "rro", "nosuid", "rw", "rslave", "size=1m", "mode=700", "tmpcopyup", "rnodev" };
	struct spec_mount m = { .destination = "/d", .options = opts, .noptions = ARRAY_SIZE(opts) };
	struct mount_options o;

	(void)state;
	mount_options_parse(&m, &o);
	assert_int_equal(o.flags, MS_BIND | MS_REC | MS_NOSUID | MS_NODEV);
	assert_int_equal(o.propagation, MS_SLAVE | MS_REC);
	assert_string_equal(o.data, "size=1m,mode=700");
	assert_true(o.copy_up && mount_is_bind(&m) && !mount_options_refused(&m));
	mount_options_fini(&o);
	opts[0] = "ridmap";
	assert_string_equal(mount_options_refused(&m), "ridmap");
	assert_false(mount_is_bind(&m));
	refused(DOC("", ",\"mounts\":[{\"destination\":\"/a\",\"options\":[\"idmap\"]}]"), "id-mapped mounts");
	refused(DOC("", ",\"mounts\":[{\"type\":\"tmpfs\"}]"), "destination is missing");
}

static void hooks(void **state)
{
	struct spec *s = parse(DOC("", ",\"hooks\":{\"prestart\":[{\"path\":\"/h\",\"args\":[\"h\",\"x\"],\"env\":[],\"timeout\":3}],"
				       "\"poststop\":[{\"path\":\"/a\"},{\"path\":\"/b\"}]}"));

	(void)state;
	assert_int_equal(s->hooks.list[HOOK_PRESTART].n, 1);
	assert_int_equal(s->hooks.list[HOOK_PRESTART].v[0].timeout, 3);
	assert_true(s->hooks.list[HOOK_PRESTART].v[0].has_env && !s->hooks.list[HOOK_POSTSTOP].v[0].has_env);
	assert_string_equal(s->hooks.list[HOOK_POSTSTOP].v[1].path, "/b");
	spec_free(s);
	refused(DOC("", ",\"hooks\":{\"poststart\":[{}]}"), "hooks.poststart[].path is missing");
	refused(DOC("", ",\"hooks\":{\"poststart\":[{\"path\":\"/x\",\"timeout\":0}]}"), "timeout is out of range");
	refused(DOC("", ",\"hooks\":[]"), "hooks is not an object");
	refused(DOC("", ",\"hooks\":{\"prestart\":[1]}"), "not an object");
}

static void devices_and_the_rest(void **state)
{
	struct spec *s = parse(DOC(",\"ioPriority\":{\"class\":\"IOPRIO_CLASS_BE\",\"priority\":4}",
				   ",\"linux\":{\"devices\":[{\"path\":\"/dev/x\",\"type\":\"b\",\"major\":7,\"fileMode\":33188}],"
				   "\"rootfsPropagation\":\"rshared\",\"personality\":{\"domain\":\"LINUX32\"}}"));

	(void)state;
	assert_int_equal(s->devices[0].mode, S_IFBLK | 0644); /* only permissions count */
	assert_int_equal(s->devices[0].major, 7);
	assert_int_equal(s->process.ioprio, 2u << 13 | 4);
	assert_int_equal(s->rootfs_propagation, MS_SHARED | MS_REC);
	assert_int_equal(s->personality, 8);
	spec_free(s);
	refused(DOC("", ",\"linux\":{\"devices\":[{\"path\":\"/dev/x\",\"type\":\"x\"}]}"), "none of c, u, b, p");
	refused(DOC("", ",\"linux\":{\"devices\":[{\"path\":\"x\",\"type\":\"c\"}]}"), "not an absolute path");
	refused(DOC("", ",\"linux\":{\"sysctl\":{\"vm.x\":\"1\"}}"), "not in a separate kernel namespace");
	refused(DOC("", ",\"linux\":{\"sysctl\":{\"net.x\":1}}"), "is not a string");
}

static json_t *profile(const char *text, char **why)
{
	json_t *p = json_loads(text, 0, NULL), *program;

	assert_non_null(p);
	program = seccomp_profile_compile(p, why);
	json_decref(p);
	return program;
}

static void seccomp(void **state)
{
	static const char *const bad[] = {
		"{}", "{\"defaultAction\":\"SCMP_ACT_NOTIFY\"}", "{\"defaultAction\":7}",
		"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":{}}",
		"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[1],\"action\":\"SCMP_ACT_KILL\"}]}",
		"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[7]}",
	};
	char *why = NULL;
	json_t *program = profile("{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"read\",\"write\"],"
				  "\"action\":\"SCMP_ACT_ALLOW\"}]}", &why);
	unsigned n;
	struct sock_filter *f = seccomp_profile_load(program, &n);

	(void)state;
	assert_non_null(f);
	/* calls beyond write: ENOSYS */
	assert_true(n > 6 && f[1].code == (BPF_JMP | BPF_JGT | BPF_K) && f[1].k == 1);
	free(f);
	json_decref(program);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		why = NULL;
		assert_null(profile(bad[i], &why));
		assert_non_null(why);
		free(why);
	}
	program = seccomp_profile_compile(NULL, &why);
	assert_true(json_is_null(program));
	assert_null(seccomp_profile_load(program, &n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unsigned_numbers),
		cmocka_unit_test(rlimits),
		cmocka_unit_test(namespaces_and_mappings),
		cmocka_unit_test(cpu_lists),
		cmocka_unit_test(mounts),
		cmocka_unit_test(hooks),
		cmocka_unit_test(devices_and_the_rest),
		cmocka_unit_test(seccomp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
