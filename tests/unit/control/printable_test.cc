// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/printable.h"

#include <criterion/criterion.h>

using swell::control::printable;
using swell::control::printable_lines;

Test(printable, keeps_text_as_it_is) {
  for (const char* text :
       {"job 17: needed by \"train\" (größer)", "模型", "e\u0301", "🙂", "a\\x1b"})
    cr_assert_eq(printable(text), text, "%s", text);
}

Test(printable, shows_what_would_begin_a_line_or_command_a_terminal) {
  cr_assert_eq(printable("a\n[2026-01-01] error: b\r\x1b[2J\x7f"),
               "a\\x0a[2026-01-01] error: b\\x0d\\x1b[2J\\x7f");
  cr_assert_eq(printable("\xc2\x9b"
                         "2J"),
               "\\x9b2J");
  cr_assert_eq(printable(std::string_view("\0", 1)), "\\x00");
}

Test(printable, shows_what_hides_or_reverses_text) {
  cr_assert_eq(printable("\u202egnp.exe"), "\\u202egnp.exe");
  cr_assert_eq(printable("a\u2066b\u2069\u200b\ufeff\u2028"),
               "a\\u2066b\\u2069\\u200b\\ufeff\\u2028");
  cr_assert_eq(printable("\U000e0041"), "\\U000e0041");
}

Test(printable, shows_bytes_that_are_not_utf_8) {
  cr_assert_eq(printable("bad\xff"), "bad\\xff");
  cr_assert_eq(printable("\x9b"
                         "2J"),
               "\\x9b2J");                                     // the 8-bit form of ESC [
  cr_assert_eq(printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  cr_assert_eq(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  cr_assert_eq(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  cr_assert_eq(printable("cut \xe6\xa8"), "cut \\xe6\\xa8");
}

Test(printable, cuts_what_is_long_between_characters) {
  cr_assert_eq(printable("abcdef", 3), "abc...");
  cr_assert_eq(printable("abc", 3), "abc");
  cr_assert_eq(printable("模型模型", 4), "模型...");
}

Test(printable, changes_nothing_the_second_time) {
  const std::string once = printable("\x1b[31m\xff\u202e\n模");
  cr_assert_eq(printable(once), once);
}

Test(printable, keeps_the_line_ends_that_swell_wrote) {
  cr_assert_eq(printable_lines("one\ntwo\r\n\x1b[A\n"), "one\ntwo\\x0d\n\\x1b[A\n");
}
