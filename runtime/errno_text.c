// SPDX-License-Identifier: Apache-2.0
/* See errno_text.h. */
#include "runtime/errno_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 64 /* glibc's longest has 50 */

const char *errno_text(int err)
{
	static _Thread_local char text[TEXT_MAX];
	const char *s = strerrordesc_np(err);

	if (!s)
		snprintf(text, sizeof(text), "errno %d", err);
	else
		snprintf(text, sizeof(text), "%s", s);
	/* Not of an abbreviation ("RPC ..."). */
	if (islower((unsigned char)text[1]))
		text[0] = (char)tolower((unsigned char)text[0]);
	return text;
}
