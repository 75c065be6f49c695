// SPDX-License-Identifier: Apache-2.0
/* linux.sysctl: settings of the guest's kernel, made before its first process runs. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/errno_text.h"
#include "runtime/container.h"
#include "sentry/fs/proc/proc.h"

int container_sysctls(struct container *c, char **ret_why)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)c->boot->spec->sysctl, name, v) {
		int r = strcmp(name, "kernel.domainname") ? /* that is the UTS namespace's */
				proc_sysctl_set(name, json_string_value(v)) :
				0;

		if (r) {
			*ret_why = kasprintf("sysctl \"%s\": %s", name,
					     r == -ENOENT ? "the guest's kernel has no such setting" :
					     r == -EROFS ? "can't be set to this value in a guest" :
							   errno_text(-r));
			return -1;
		}
	}
	return 0;
}
