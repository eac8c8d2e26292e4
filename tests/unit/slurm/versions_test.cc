// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/versions.h"

#include <criterion/criterion.h>

using namespace swell::slurm;

Test(versions, the_cpus_of_a_task_are_told_from_its_gpus) {
  struct {
    const char *said, *gres;
    int cpus;
  } const cases[] = {
      {"", "", 0},
      {"cpu=8", "", 8},  // as 24.11 and 26.05 write --cpus-per-task=8
      {"cpu:8", "", 8},
      {"gres/gpu:h100:1", "gres/gpu:h100:1", 0},
      {"cpu=4,gres/gpu=2", "gres/gpu=2", 4},
      {"gres/gpu=2,cpu=4,license/x=1", "gres/gpu=2,license/x=1", 4},
      {"cpu=4,cpu=64", "", 64},
  };
  for (const auto& each : cases) {
    const PerTask task = per_task_of(each.said);
    cr_assert_eq(task.gres, each.gres, "%s: %s", each.said, task.gres.c_str());
    cr_assert_eq(task.cpus, each.cpus, "%s: %d", each.said, task.cpus);
  }
}

Test(versions, cpus_of_a_task_that_are_no_number_are_not_swallowed) {
  for (const char* said : {"cpu=", "cpu=x", "cpu=8x", "cpu=-1", "cpu=99999999999999999999"})
    cr_assert_eq(per_task_of(said).gres, std::string(said));
}
