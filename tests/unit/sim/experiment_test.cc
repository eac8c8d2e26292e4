// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/experiment.h"

#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "sim/report.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim;
using support::near;

namespace {

Experiment small() {
  Experiment experiment;
  experiment.cluster = std::make_shared<cluster::Cluster>(cluster::preset("2x8-h100").value());
  experiment.generator.hours = 2;
  experiment.generator.jobs_per_hour = 6;
  experiment.policies = {"fifo", "sjf", "fewest-first"};
  experiment.seeds = 3;
  experiment.fixed_decision_time = true;
  return experiment;
}

}  // namespace

Test(experiment, a_seed_gives_the_same_bytes_with_any_number_of_threads) {
  Experiment experiment = small();
  const auto one = sim::run(experiment);
  experiment.threads = 2;
  const auto two = sim::run(experiment);
  cr_assert(one.ok() && two.ok());
  cr_assert(results_json(*one, true).dump() == results_json(*two, true).dump());
  cr_assert(results_csv(*one) == results_csv(*two));
}

Test(experiment, fifo_is_compared_with_itself) {
  const auto results = sim::run(small());
  cr_assert(results.ok());
  cr_assert_eq(results->metrics[0].max_delay_vs_fifo_s.mean, 0);
  cr_assert_eq(results->metrics[0].reconfigurations.mean, 0);
  cr_assert(results->metrics[2].avg_jct_s.mean < results->metrics[0].avg_jct_s.mean,
            "idle GPUs help");
}

Test(experiment, an_unknown_policy_is_named_before_anything_runs) {
  Experiment experiment = small();
  experiment.policies = {"fifo", "lifo"};
  const auto results = sim::run(experiment);
  cr_assert_not(results.ok());
  cr_assert(results.error().message().starts_with("there is no policy \"lifo\"; there are: "));
}

Test(report, says_what_changes_of_plan_cost_and_where_that_is_from) {
  Experiment experiment = small();
  const auto says = [&](const char* words) {
    const std::string text = redeployment_text(experiment);
    cr_assert_neq(text.find(words), std::string::npos, "%s", text.c_str());
  };
  says("cost what a model of Suika's published figures says");
  experiment.redeployment = redeploy::Measured::live;
  says("cost what live switches took");
  says("0.54 s to grow (tests/bench/frameworks, DDP, 2026-11-24)");
  says("0.67 s to give back (tests/bench/frameworks, DDP, 2026-11-24)");
  experiment.redeployment = redeploy::Measured::restart;
  says("cost what restarts took");
  says("33.7 s to grow (tests/bench/frameworks");
  says("under policies that slurmctld runs: ");
  says("Under other policies they cost what a model");
  experiment.rivals_as_measured = true;
  says("under all policies: ");
  cr_assert_eq(redeployment_text(experiment).find("Suika"), std::string::npos);
}

Test(report, says_how_many_of_the_trace_and_by_which_option) {
  Experiment experiment = small();  // 16 GPUs
  Results results;
  results.jobs = 10;
  cr_assert(jobs_text(results, experiment) == "10 jobs");
  experiment.trace = Trace(400);
  cr_assert(jobs_text(results, experiment) ==
            "10 of 400 jobs of the trace (--sample --trace-gpus 2490: drawn in proportion to the "
            "cluster's 16)");
  experiment.workload.trace_gpus = 8;
  results.jobs = 800;
  cr_assert(jobs_text(results, experiment).starts_with("800 jobs drawn from 400 of the trace ("));
  experiment.workload.sample = false;
  experiment.workload.hours = 2;
  results.jobs = 60;
  experiment.workload.max_jobs = 60;
  cr_assert(jobs_text(results, experiment) == "60 of 400 jobs of the trace (--hours 2; --jobs 60)");
  results.jobs = 400;
  cr_assert(jobs_text(results, experiment) == "400 jobs of the trace");
}

Test(metrics, ratios_are_paired_by_seed) {
  // Seeds differ by ten times, the policies by a tenth in each.
  const Ratio paired = ratio({110, 1100, 11}, {100, 1000, 10});
  cr_assert(near(paired.mean, 1.1));
  cr_assert_lt(paired.high - paired.low, 1e-9);
  const Ratio open = ratio({2, 1}, {1, 2});
  cr_assert(near(open.mean, 1));
  cr_assert(open.low < 1 && open.high > 1);
}

Test(metrics, quantiles_and_confidence) {
  cr_assert_eq(quantile({3, 1, 2}, 0.5), 2);
  cr_assert_eq(quantile({1, 2}, 0.25), 1.25);
  cr_assert_eq(quantile({}, 0.5), 0);
  const Estimate made = estimate({1, 2, 3});
  cr_assert_eq(made.mean, 2);
  cr_assert(near(made.ci95, 4.303 / std::sqrt(3.0), 1e-9));
  cr_assert_eq(estimate({5}).ci95, 0);
}

Test(metrics, weighted_times_count_gpus) {
  Outcome outcome;
  outcome.gpus = 8;
  outcome.makespan_s = 100;
  outcome.used_gpu_s = 400;
  outcome.jobs = {{1, 0, 1, true, 0, 0, 10, 0, 0}, {2, 0, 3, false, 0, 40, 50, 40, 0}};
  const Metrics metrics = measure({&outcome}, {&outcome});
  cr_assert_eq(metrics.avg_jct_s.mean, 30);
  cr_assert_eq(metrics.avg_wjct_s.mean, 40);
  cr_assert_eq(metrics.gpu_utilization.mean, 0.5);
  cr_assert_eq(metrics.avg_queue_s.mean, 20);
  cr_assert_eq(metrics.avg_queue_rigid_s.mean, 40);
}

Test(metrics, counts_jobs_that_took_longer_than_on_their_basic_demand) {
  Outcome outcome;
  // Waiting counts for nothing; up to a tenth is what a slow node costs.
  outcome.jobs = {{.id = 1, .start_s = 50, .end_s = 150, .basic_s = 100},
                  {.id = 2, .end_s = 109, .basic_s = 100},
                  {.id = 3, .end_s = 111, .basic_s = 100}};
  cr_assert_eq(measure({&outcome}, {&outcome}).slower_than_basic.mean, 1);
}

Test(consent, compares_each_job_that_consents_with_itself) {
  Outcome with, without;
  for (std::uint32_t id = 1; id <= 40; ++id) {
    with.jobs.push_back({.id = id, .basic_gpus = 4, .end_s = 100.0 + id, .consents = id > 20});
    without.jobs.push_back({.id = id, .basic_gpus = 4, .end_s = 100});
  }
  with.jobs.back().end_s = 300;
  const ConsentCost cost = consent_cost({with}, {without});
  cr_assert_eq(cost.jobs.size(), 20);
  cr_assert_eq(cost.jobs[0].job, 21);
  cr_assert(near(cost.jobs[0].ratio(), 1.21));
  cr_assert(near(cost.median, 1.305));
  cr_assert(near(cost.worst, 3) && near(cost.worst_twentieth, 3), "one of twenty");
  cr_assert_gt(cost.all.jct.mean, 1, "the mean of all jobs, consenting or not");
  cr_assert(consent_cost({without}, {without}).jobs.empty());
}

Test(consent, is_compared_with_a_run_in_which_nobody_consents) {
  Experiment experiment = small();
  experiment.seeds = 2;
  experiment.policies = {"fewest-first", "sjf"};
  const auto usual = sim::run(experiment);
  experiment.workload.consent_share = 1;
  const auto results = sim::run(experiment);
  cr_assert(usual.ok() && results.ok());
  cr_assert_not(usual->consent[0].has_value(), "nobody consents");
  cr_assert_not(results->consent[1].has_value(), "it does not honour consent");
  const ConsentCost& cost = results->consent[0].value();
  cr_assert_gt(cost.jobs.size(), 4);
  for (const ConsentPair& pair : cost.jobs) {
    cr_assert_eq(pair.without_s, usual->outcomes[0][pair.seed].jobs[pair.job - 1].jct_s());
    cr_assert_eq(pair.with_s, results->outcomes[0][pair.seed].jobs[pair.job - 1].jct_s());
  }
  const std::string json = results_json(*results, true).dump();
  for (const char* word : {"\"worst_twentieth\"", "\"jct_without_s\"", "\"slower_than_basic\""})
    cr_assert_neq(json.find(word), std::string::npos, "%s", word);
}
