// SPDX-License-Identifier: Apache-2.0
/* What saving and loading need of address spaces, beside state_mm and state_shmem. */
#ifndef SENTRY_MM_MM_STATE_H
#define SENTRY_MM_MM_STATE_H

struct mm;

/* Makes every address space copy-on-write, before anything is saved; and when everything has been. 0 or -errno:
 * it can't be saved now, but goes on. Context: the sandbox is frozen. */
int mm_freeze_all(void);
void mm_freeze_done(void);
/* A loaded task runs in @mm: one more use, beside the reference that state_ref() has taken. */
void mm_state_use(struct mm *mm);

#endif
