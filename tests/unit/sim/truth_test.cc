// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/truth.h"

#include <algorithm>
#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "core/perf/profile_json.h"
#include "core/perf/solve.h"
#include "sim/basic_plan.h"

using namespace swell;
using namespace swell::sim;

Test(truth, each_process_of_a_job_sees_the_same_profile_and_it_has_what_policies_know) {
  const auto cluster = cluster::preset("2x8-h100").value();
  const auto types = job_types(cluster, {}).value();
  const JobType& type = types.front();
  const auto layout =
      basic_layout(type, first_gpus(type.gpus, cluster, 0).value(), cluster).value();
  const Truth one(type, cluster, 1, 7), other(type, cluster, 1, 7), another(type, cluster, 1, 8);
  const auto text = [&](const Truth& truth) {
    return perf::to_json(truth.observed(layout)).dump();
  };
  cr_assert_eq(text(one), text(other));
  cr_assert_neq(text(one), text(another));
  const auto solved = perf::solve(one.observed(layout), cluster);
  cr_assert(solved.ok());
  cr_assert(*solved == *one.profile(layout, 0));
}

namespace {

/// A job that communicates, on the nodes of an idle cluster.
struct Communicating {
  cluster::Cluster cluster = cluster::preset("2x8-h100").value();
  std::vector<JobType> types = job_types(cluster, {}).value();
  const JobType& type = *std::find_if(
      types.begin(), types.end(), [](const JobType& each) { return each.dp > 1 && each.pp == 1; });
  plan::Layout layout =
      basic_layout(type, first_gpus(type.gpus, cluster, 0).value(), cluster).value();
  perf::Profile observed(std::uint32_t job, const Reporting& reporting = {}) const {
    return Truth(type, cluster, 1, job).observed(layout, reporting);
  }
};

}  // namespace

Test(truth, a_program_may_report_what_appendix_a2_needs_alone) {
  const Communicating job;
  const Truth truth(job.type, job.cluster, 1, 7);
  cr_assert_gt(truth.profile(job.layout, 0)->types[0].launch_s, 0);
  const auto solved = truth.profile(job.layout, 0, {.a2_only = true});
  cr_assert_eq(solved->types[0].launch_s, 0);
  cr_assert_eq(solved->head_layers, 0);
}

Test(truth, a_plan_over_two_allocations_of_a_node_is_another_plan) {
  const Communicating job;
  Truth truth(job.type, job.cluster, 1, 7);
  plan::Layout apart = job.layout;
  auto& groups = apart.stages[0].groups;
  for (std::size_t group = groups.size() / 2; group < groups.size(); ++group)
    groups[group].part = 1;
  const double together = truth.iteration_s(job.layout);
  cr_assert_gt(truth.iteration_s(apart), together,
               "what is remembered of one plan is not the other's");
}

Test(truth, a_profile_that_lies_hides_what_more_gpus_would_cost) {
  const Communicating job;
  const perf::Profile honest = job.observed(7), lie = job.observed(7, {.lying_share = 1});
  cr_assert_gt(honest.groups[0].commu_extra_s, 0);
  cr_assert_eq(lie.groups[0].commu_extra_s, 0);
  cr_assert_eq(lie.groups[0].fwd_commu_s, 0);
  cr_assert_eq(lie.layer_launch_s, 0);
  cr_assert_eq(lie.groups[0].fwd_s, honest.groups[0].fwd_s, "what the controller can check");
}

Test(truth, as_many_jobs_lie_as_are_asked_for) {
  const Communicating job;
  int lies = 0;
  for (std::uint32_t id = 1; id <= 100; ++id)
    lies += job.observed(id, {.lying_share = 0.3}).layer_launch_s == 0 ? 1 : 0;
  cr_assert(lies > 15 && lies < 45, "%d", lies);
}
