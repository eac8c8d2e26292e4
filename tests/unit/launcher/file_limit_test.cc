// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/file_limit.h"

#include <criterion/criterion.h>
#include <sys/resource.h>

#include "launcher/children.h"

using namespace swell::launcher;

Test(file_limit, workers_come_first_and_strangers_are_few) {
  const FileBudget large = file_budget(524288, 64, 8);
  cr_assert(large.problem.empty());
  cr_assert_eq(large.max_strangers, 256);
  cr_assert_eq(large.max_strangers_per_address, 128);
  cr_assert_geq(large.max_connections, 64 + 256);
  const FileBudget small = file_budget(1024, 600, 8);
  cr_assert(small.problem.empty());
  cr_assert_leq(600 + small.max_strangers + 128, 1024);
  cr_assert_eq(file_budget(524288, 64, 100).max_strangers_per_address, 200);
}

Test(file_limit, a_limit_that_is_too_low_for_all_workers_is_said_in_one_line) {
  const FileBudget budget = file_budget(1024, 1000, 8);
  cr_assert_eq(
      budget.problem,
      std::string("1000 workers need 1144 open files on this machine, 1024 are allowed: raise the "
                  "hard limit (ulimit -Hn) where the job script runs"));
  cr_assert_geq(budget.max_connections, 1000);
}

Test(file_limit, programs_see_the_limit_that_they_would_have_seen) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit low{200, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  cr_assert_eq(raise_file_limit(), limit.rlim_max);
  const auto seen = Children::output_of({"sh", "-c", "ulimit -Sn"}, {"PATH=/usr/bin:/bin"}, 20);
  cr_assert_eq(*seen, std::string("200\n"));
  getrlimit(RLIMIT_NOFILE, &limit);
  cr_assert_eq(limit.rlim_cur, limit.rlim_max);
}

Test(children, a_program_that_is_not_there_is_named) {
  cr_assert_eq(Children::output_of({"no-such-program"}, {}, 20).error().message(),
               std::string("starting no-such-program: No such file or directory"));
}
