// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/coordinator/leavers.h"

#include <criterion/criterion.h>
#include <vector>

using namespace swell::runtime;

namespace {

/// Bytes that only leavers have, others, and what has come.
Leavers judge(const std::vector<Progress>& shims, double elapsed_s, double left_s) {
  return judge_leavers(shims, elapsed_s, left_s);
}

}  // namespace

Test(leavers, stay_as_long_as_a_rate_says_little) {
  cr_assert_eq(judge({{1000, 1000, 0}}, 4.9, 5.1), Leavers::wait);
}

Test(leavers, stay_until_the_commit_where_all_comes_in_time) {
  // 10 bytes a second.
  cr_assert_eq(judge({{30, 20, 60}}, 6, 3), Leavers::wait);
  cr_assert_eq(judge({{0, 30, 60}, {0, 0, 0}}, 6, 3), Leavers::wait);
}

Test(leavers, are_let_go_where_the_rest_alone_is_late) {
  cr_assert_eq(judge({{0, 31, 60}, {0, 0, 90}}, 6, 3), Leavers::let_go);
  cr_assert_eq(judge({{1, 500, 60}}, 6, 3), Leavers::wait, "what only they have comes first");
}

Test(leavers, are_late_with_what_nobody_else_has) {
  cr_assert_eq(judge({{31, 0, 60}, {0, 0, 90}}, 6, 3), Leavers::late);
  cr_assert_eq(judge({{1, 0, 0}}, 6, 3), Leavers::late, "nothing has come");
}

Test(leavers, have_no_time_beyond_their_own) {
  cr_assert_eq(judge({{0, 0, 60}}, 6, -1), Leavers::wait, "all is there");
  cr_assert_eq(judge({{0, 1, 60}}, 6, -1), Leavers::let_go);
  cr_assert_eq(judge({{1, 1, 60}}, 6, 0), Leavers::late);
}
