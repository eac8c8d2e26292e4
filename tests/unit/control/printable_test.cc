// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/printable.h"

#include <criterion/criterion.h>

using swell::control::printable;

Test(printable, keeps_text_as_it_is) {
  cr_assert_eq(printable("job 17: needed by \"train\" (größer)"),
               "job 17: needed by \"train\" (größer)");
}

Test(printable, shows_what_would_begin_a_line_or_command_a_terminal) {
  cr_assert_eq(printable("a\n[2026-01-01] error: b\r\x1b[2J\x7f"),
               "a\\x0a[2026-01-01] error: b\\x0d\\x1b[2J\\x7f");
  cr_assert_eq(printable("\xc2\x9b"
                         "2J"),
               "\\x9b2J");
  cr_assert_eq(printable(std::string_view("\0", 1)), "\\x00");
}

Test(printable, cuts_what_is_long) {
  cr_assert_eq(printable("abcdef", 3), "abc...");
  cr_assert_eq(printable("abc", 3), "abc");
}
