// SPDX-License-Identifier: GPL-2.0-or-later
//
// The select plugin's jumps in the assembly language of each processor; included once, by
// forward.cc. Includes no system header, so that a test can assemble the jumps of another processor
// (tests/contrib/aarch64_test.sh).

// A stub begins with a landing mark for indirect calls, counts the call if requested, and jumps. It
// changes no register that may hold an argument.
#if defined(__x86_64__)
#define ENTER "endbr64\n"
#define COUNT "lock incl swell_node_table_changes(%rip)\n"
#define JUMP(name) "jmp *swell_to_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define ENTER "hint #34\n"
#define COUNT                                                                            \
  "adrp x16, swell_node_table_changes\n add x16, x16, #:lo12:swell_node_table_changes\n" \
  "ldr w17, [x16]\n add w17, w17, #1\n str w17, [x16]\n"
#define JUMP(name) \
  "adrp x16, swell_to_" #name "\n ldr x16, [x16, #:lo12:swell_to_" #name "]\n br x16\n"
#else
#error "write the three pieces of a stub for this kind of processor"
#endif
#define STUB(name, begin)                                                                       \
  asm(".pushsection .text\n .p2align 4\n .globl " #name "\n .type " #name ", %function\n" #name \
      ":\n" begin JUMP(name) ".size " #name ", . - " #name "\n .popsection\n");

#define FORWARD(name) STUB(name, ENTER)
#define COUNT_AND_FORWARD(name) STUB(name, ENTER COUNT)
#include "forwarded.h"
#undef FORWARD
#undef COUNT_AND_FORWARD
