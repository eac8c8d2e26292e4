// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/output_names.h"

#include <criterion/criterion.h>
#include <set>

using namespace swell::launcher;

namespace {

const RunNames run{71, "70", "3", 2, "pre\\train", "ann"};

}  // namespace

Test(output_names, a_companion_s_files_have_the_job_s_numbers_and_tasks_of_their_own) {
  cr_assert_eq(companion_output("log.%t", run, 1, 2), "log.1%1t");
  cr_assert_eq(companion_output("log.%4t", run, 1, 2), "log.001%1t");
  cr_assert_eq(companion_output("%j/%A_%a.%n", run, 4, 2), "71/70_3.4");
  cr_assert_eq(companion_output("%6j.%J", run, 4, 2), "000071.71.%s");
  cr_assert_eq(companion_output("%N.log", run, 4, 2), "%N-4.log");
  cr_assert_eq(companion_output("%x.%u.%%t", run, 4, 2), "%x.%u.%%t");
  // Three digits where some allocation has more than a hundred workers.
  cr_assert_eq(companion_output("%t", {71, "", "", 101}, 2, 8), "2%3t");
  cr_assert_eq(companion_output("%t", {71, "", "", 10}, 2, 8), "2%1t");
  cr_assert_eq(companion_output("%A.%a", {71, "", "", 2}, 2, 8), "71.%a");
  cr_assert_eq(companion_output("a\\%t", run, 1, 2), "a\\%t");
  cr_assert_eq(companion_output("log", run, 1, 2), "log");
  cr_assert_eq(companion_output("50%", run, 1, 2), "50%");
  // The output of task 0 alone.
  cr_assert_eq(companion_output("0", run, 1, 2), "none");
}

Test(output_names, no_two_workers_of_a_run_have_one_number) {
  for (const int own : {1, 2, 8, 9, 10, 11, 64, 100, 101}) {
    std::set<std::string> seen;
    for (int task = 0; task < own; ++task) seen.insert(std::to_string(task));
    std::size_t there = seen.size();
    for (int node = 1; node < 30; ++node)
      for (int task = 0; task < 8; ++task, ++there) {
        // As Slurm does: "%3t" is the task with three digits at least.
        std::string name = companion_output("%t", {1, "", "", own}, node, 8);
        const auto at = name.find('%');
        std::string digits = std::to_string(task);
        digits.insert(0, static_cast<std::size_t>(name[at + 1] - '0') - digits.size(), '0');
        seen.insert(name.substr(0, at) + digits);
      }
    cr_assert_eq(seen.size(), there, "%d workers", own);
  }
}

Test(output_names, a_file_of_all_steps_is_told_from_files_of_each) {
  cr_assert_eq(shared_output("log.%j_%5a", run).value(), "log.71_00003");
  cr_assert_eq(shared_output("100%%", run).value(), "100%");
  cr_assert_eq(shared_output("%x of %u", run).value(), "pre\\train of ann");
  for (const char* name : {"log.%t", "%n", "%N", "none", "all", "3", "/dev/null", "", "a\\b"}) {
    cr_assert_not(shared_output(name, run).has_value(), "%s", name);
    cr_assert_not(may_share_output(name), "%s", name);
  }
}

Test(output_names, a_file_that_is_there_is_emptied_where_srun_would) {
  for (const char* mode : {"append", "a", "A", "Append"}) cr_assert(appends(mode, false));
  for (const char* mode : {"truncate", "t"}) cr_assert_not(appends(mode, true));
  cr_assert(appends("", true));
  cr_assert_not(appends("", false));
}

Test(output_names, a_file_that_steps_of_companions_share_need_not_be_known_by_name) {
  const RunNames alone{71, "", "", 2, "", ""};
  for (const char* name : {"log.%s", "%J", "%5a", "%x", "%u", "100%%%s"}) {
    cr_assert(may_share_output(name), "%s", name);
    cr_assert_not(shared_output(name, alone).has_value(), "%s", name);
  }
}
