// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/accounts.h"

#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "sim/experiment.h"

using namespace swell;
using namespace swell::sim;

namespace {

JobOutcome job(std::uint32_t id, int gpus, bool elastic, double end_s, double waited_s) {
  JobOutcome made;
  made.id = id;
  made.basic_gpus = gpus;
  made.elastic = elastic;
  made.end_s = end_s;
  made.waited_s = waited_s;
  return made;
}

JobSpec spec(std::uint32_t id, const char* account) {
  JobSpec made;
  made.id = id;
  made.account = account;
  return made;
}

}  // namespace

Test(accounts, each_account_has_its_own_jobs_and_what_they_were_lent) {
  Workload workload{{}, {spec(1, "a"), spec(2, "b"), spec(3, "b")}};
  Outcome fifo, with;
  fifo.jobs = {job(1, 2, true, 1000, 0), job(2, 4, false, 1500, 500), job(3, 1, true, 400, 0)};
  with.jobs = {job(1, 2, true, 500, 0), job(2, 4, false, 1510, 510), job(3, 1, true, 400, 0)};
  with.holdings = {{0, 1, 2, 0}, {100, 1, 2, 2}, {300, 1, 2, 6}, {500, 1, 0, 0}};
  const auto rows = account_rows(workload, with, fifo);
  cr_assert_eq(rows.size(), 3u);
  cr_expect_eq(rows[0].account, "b", "it has most GPU-time");
  cr_expect_eq(rows[0].jobs, 2);
  cr_expect_eq(rows[0].elastic, 1);
  cr_expect_float_eq(rows[0].rigid_wait_without_s, 500, 1e-9);
  cr_expect_float_eq(rows[0].rigid_wait_with_s, 510, 1e-9);
  cr_expect_float_eq(rows[0].most_rigid_delay_s, 10, 1e-9);
  cr_expect_float_eq(rows[0].elastic_jct_with_s, 400, 1e-9);
  cr_expect_eq(rows[1].account, "a");
  cr_expect_float_eq(rows[1].lent_gpu_s, 2 * 200 + 6 * 200, 1e-9);
  cr_expect_float_eq(rows[1].elastic_jct_without_s / rows[1].elastic_jct_with_s, 2, 1e-9);
  cr_expect_eq(rows[2].jobs, 3);
  cr_expect_float_eq(rows[2].basic_gpu_s, 2 * 1000 + 4 * 1000 + 400, 1e-9);
}

Test(accounts, jobs_keep_their_own_gpus_and_their_account) {
  Experiment experiment;
  experiment.cluster = std::make_shared<cluster::Cluster>(*cluster::preset("2x8-h100"));
  // 2 nodes of 8 have no even spread of 11 GPUs.
  experiment.trace =
      Trace{{0, 1, 600, "a"}, {10, 3, 600, "b"}, {20, 11, 600, "c"}, {30, 16, 600, "a"}};
  experiment.workload.sample = false;
  experiment.workload.own_gpus = true;
  experiment.policies = {"fewest-first"};
  experiment.fixed_decision_time = true;
  const auto results = run(experiment);
  cr_assert(results.ok(), "%s", results.error().message().c_str());
  cr_expect_eq(results->without_plan, 1);
  cr_assert_eq(results->workload.jobs.size(), 3u);
  const int gpus[] = {1, 3, 16};
  const char* accounts[] = {"a", "b", "a"};
  for (std::size_t i = 0; i < 3; ++i) {
    cr_expect_eq(results->outcomes[0][0].jobs[i].basic_gpus, gpus[i]);
    cr_expect_eq(results->workload.jobs[i].account, accounts[i]);
    cr_expect_float_eq(results->workload.jobs[i].basic_s, 600, 1e-6);
  }
}
