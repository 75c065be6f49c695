// SPDX-License-Identifier: Apache-2.0
/* Entry of the one binary: a role of a sandbox, or the command line. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cli.h"
#include "runtime/roles.h"

#ifdef HF_SANITIZE
/* Leaks are looked for by the unit tests; the roles are killed with all they hold. */
const char *__asan_default_options(void);
__attribute__((visibility("default"), used)) const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], ROLE_SENTRY))
		return role_sentry(argv[3][0] == '1');
	if (argc == 4 && !strcmp(argv[1], ROLE_GOFER))
		return role_gofer(argv[2], argv[3][0] == '1');
	return cli_main(argc - 1, argv + 1);
}
