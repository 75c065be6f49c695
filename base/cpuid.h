// SPDX-License-Identifier: Apache-2.0
/*
 * What the CPUID instruction says, asked once: in a virtual machine it is an exit to the hypervisor (20 to 70 us),
 * longer than most calls take.
 */
#ifndef BASE_CPUID_H
#define BASE_CPUID_H

#include <stdbool.h>
#include <stdint.h>

enum cpuid_reg { EAX, EBX, ECX, EDX };

/* Leaf @leaf, @sub of this CPU in @r; false when it has no such leaf. For leaves that are the same on all CPUs. */
bool cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]);
/* One bit of a leaf; false, too, when there is none. */
bool cpuid_bit(uint32_t leaf, uint32_t sub, enum cpuid_reg reg, unsigned bit);

#endif
