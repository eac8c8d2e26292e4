// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/lists.h"

#include <criterion/criterion.h>
#include <string_view>

using namespace swell::slurm_text;

Test(lists, commas_within_brackets_and_parentheses_belong_to_an_entry) {
  const std::vector<std::string_view> entries = split_list("gpu:a:1(IDX:0,2),,n[1-2,4],x");
  cr_assert(entries == (std::vector<std::string_view>{"gpu:a:1(IDX:0,2)", "n[1-2,4]", "x"}));
  cr_assert(split_list("").empty());
  cr_assert(split_list("a)],b") == (std::vector<std::string_view>{"a)]", "b"}),
            "what closes nothing opens nothing");
}

Test(lists, indices_are_counted_by_ranges) {
  cr_assert_eq(count_indices("0-3,6"), 5);
  cr_assert_eq(count_indices("7"), 1);
  cr_assert_eq(count_indices(""), 0);
  cr_assert_eq(count_indices("N/A"), 0);
  cr_assert_eq(count_indices("3-1,x-2,-4"), 0);
  cr_assert_eq(count_indices("0-9223372036854775807,0-9223372036854775807"), 1'000'000,
               "bounded, whatever is written");
}

Test(lists, indices_are_listed_in_their_order_and_bounded) {
  cr_assert(expand_indices("6-7,0", 64) == (std::vector<int>{6, 7, 0}));
  cr_assert(expand_indices("3-1,x,-4", 64).empty());
  cr_assert(expand_indices("0-9223372036854775807", 3) == (std::vector<int>{0, 1, 2}));
}

Test(lists, indices_become_a_list_of_ranges) {
  for (const char* list : {"", "7", "0-3,6", "0,2,4-5", "0-63"})
    cr_assert(list_of_indices(expand_indices(list, 64)) == list, "%s", list);
}
