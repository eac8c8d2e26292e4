// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/versions.h"
#include "slurm/release.h"

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

// As of 22.05 and 24.11, and as of 26.05.
struct IdInRecord {
  JobId job_id = 0;
};
struct IdInStep {
  struct {
    JobId job_id = 0;
  } step_id;
};

Test(versions, a_job_id_is_found_where_the_record_has_it) {
  IdInRecord older;
  IdInStep newer;
  set_job_id(older, 7);
  set_job_id(newer, 8);
  cr_assert_eq(older.job_id, 7u);
  cr_assert_eq(newer.step_id.job_id, 8u);
  cr_assert_eq(job_id_of(older), 7u);
  cr_assert_eq(job_id_of(newer), 8u);
}

Test(versions, a_running_slurm_is_told_by_its_version) {
  struct {
    const char* version;
    bool preempt_parameters, held_up, changes_types;
  } const cases[] = {{"22.05.8", false, false, false},    {"22.05", false, false, false},
                     {"23.02.7", true, true, false},      {"24.05.9", true, true, false},
                     {"24.11.5", true, true, true},       {"26.05.5", true, true, true},
                     {"", false, false, false},           {"unknown", false, false, false},
                     {"22.05.8-rc1", false, false, false}};
  for (const auto& each : cases) {
    cr_assert_eq(has_preempt_parameters(each.version), each.preempt_parameters, "%s", each.version);
    cr_assert_eq(higher_tiers_hold_companions_up(each.version), each.held_up, "%s", each.version);
    cr_assert_eq(changes_gpu_types(each.version), each.changes_types, "%s", each.version);
  }
}
