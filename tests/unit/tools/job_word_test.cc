// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/job_word.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::tools;

namespace {

/// Task 1 of array 27 is job 29.
Result<slurm::JobId> find(slurm::JobId array, std::uint32_t task) {
  if (array == 27 && task == 1) return slurm::JobId{29};
  return Error("there is no such task");
}

}  // namespace

Test(job_word, a_number_is_itself_and_a_task_is_looked_up) {
  cr_assert_eq(job_of("31", find).value(), 31u);
  cr_assert_eq(job_of("27_1", find).value(), 29u);
  cr_assert_eq(job_of("27_2", find).error().message(), std::string("there is no such task"));
}

Test(job_word, words_that_name_no_job_are_answered_with_what_would) {
  for (const char* word : {"31", "27_1", "27_0"}) cr_assert(wrong_job_word(word).empty());
  for (const char* word : {"", "x", "27_", "_1", "27_x", "27_1_2", "-3", "27+1", "99999999999"}) {
    const std::string said = wrong_job_word(word);
    cr_assert(said.find("is not a job: give its number, such as 31, or ARRAY_TASK, such as 27_1") !=
                  std::string::npos,
              "%s: %s", word, said.c_str());
    cr_assert_not(job_of(word, find).ok());
  }
}
