// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/tag.h"

#include <algorithm>
#include <criterion/criterion.h>

using namespace swell::control;

namespace {

const std::string kHostile[] = {"]",
                                " ] swell[elastic=max=99 basic=1 ",
                                "a b\tc\nd\r\n]\x1b[31m",
                                "x=1 own_max=64 paused=1",
                                std::string("nul\0]swell[", 11),
                                "\xc3\xa9\xff]\"'`$(id)\\",
                                std::string(100'000, ']')};

}  // namespace

Test(tag, a_sentence_of_anybodys_becomes_one_harmless_word) {
  for (const std::string& sentence : kHostile) {
    const std::string word = as_word(sentence);
    cr_assert_leq(word.size(), 200u);
    cr_assert_eq(word.find_first_of("[]= \t\r\n\"'`$\\<>;&|"), std::string::npos, "%s",
                 word.c_str());
    cr_assert(
        std::all_of(word.begin(), word.end(), [](char each) { return each > ' ' && each < 127; }));
  }
  cr_assert_eq(as_word("needed by job 30"), "needed_by_job_30");
  cr_assert_eq(as_word(std::string(300, 'a')), std::string(200, 'a'));
}
