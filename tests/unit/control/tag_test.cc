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

Test(tag, a_sentence_is_read_as_it_was_said) {
  for (const std::string sentence :
       {"torchrun runs python with RANK=1, WORLD_SIZE=2", "Swell's runtime can't be found: no_file",
        "needed by job 30 (50 %)"}) {
    Tag tag;
    tag.set("no_growth", as_word(sentence)).set("lent", "4");
    const auto read = Tag::find(tag.put_into("of the site's own"));
    cr_assert(read.has_value());
    cr_assert_eq(as_sentence(read->get("no_growth")), sentence, "%s", tag.text().c_str());
    cr_assert_eq(*read->number("lent"), 4);
  }
  cr_assert_eq(as_sentence("needed_by_job_30"), "needed by job 30", "as older versions wrote it");
}
