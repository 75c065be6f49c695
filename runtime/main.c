// SPDX-License-Identifier: Apache-2.0
/* Entry of the one binary: a role of a sandbox, or the command line. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cli.h"
#include "runtime/launch.h"
#include "runtime/roles.h"

#ifdef HF_SANITIZE
/* Leaks are looked for by the unit tests; the roles are killed with all they hold. */
const char *__asan_default_options(void);
__attribute__((visibility("default"), used)) const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

/* A role's fd 2 is /dev/null; what the sanitizer has to say belongs into the log. */
static void report_to_log(void)
{
	(void)dup2(ROLE_LOG_FD, 2);
}
#else
static void report_to_log(void)
{
}
#endif

int main(int argc, char **argv)
{
	if (argc == 5 && strstr(argv[1], "-role"))
		report_to_log();
	if (argc == 5 && !strcmp(argv[1], ROLE_SENTRY))
		return role_sentry(argv[3][0] == '1');
	if (argc == 5 && !strcmp(argv[1], ROLE_GOFER))
		return role_gofer(argv[2], argv[3][0] == '1', argv[4]);
	return cli_main(argc - 1, argv + 1);
}
