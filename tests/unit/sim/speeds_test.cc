// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/speeds.h"

#include <criterion/criterion.h>

#include "core/cluster/presets.h"

using namespace swell;
using namespace swell::sim;

namespace {

struct Site {
  cluster::Cluster cluster = cluster::preset("8x8-h100").value();
  Workload workload = {job_types(cluster, {.leave_out_large = true}).value(), {}};

  /// Adds a job of the first type that asks for so many GPUs.
  void add(int gpus, bool elastic) {
    for (int type = 0; type < static_cast<int>(workload.types.size()); ++type)
      if (workload.types[static_cast<std::size_t>(type)].gpus == gpus) {
        workload.jobs.push_back({.id = static_cast<std::uint32_t>(workload.jobs.size() + 1),
                                 .type = type,
                                 .elastic = elastic});
        return;
      }
    cr_assert(false, "no model asks for %d GPUs", gpus);
  }
};

}  // namespace

Test(speeds, rise_with_the_gpus_up_to_the_limit_of_an_elastic_job) {
  Site site;
  site.add(4, true);
  const auto speeds = speeds_of(site.workload, site.cluster, 1, 4);
  cr_assert_geq(speeds.size(), 3u);
  cr_assert_eq(speeds.front().gpus, 4);
  cr_assert_eq(speeds.front().speedup, 1);
  for (std::size_t i = 1; i < speeds.size(); ++i) cr_assert_gt(speeds[i].gpus, speeds[i - 1].gpus);
  cr_assert_leq(speeds.back().gpus, 16);
  cr_assert_gt(speeds.back().speedup, 1.5);
  cr_assert_leq(speeds.back().speedup, 4.4, "hardly more than the GPUs: %g", speeds.back().speedup);
}

Test(speeds, speeds_of_a_rigid_job_are_those_of_its_own_gpus) {
  Site site;
  site.add(8, false);
  const auto speeds = speeds_of(site.workload, site.cluster, 1, 4);
  cr_assert_eq(speeds.size(), 1u);
  cr_assert(speeds_csv(speeds) == "job,gpus,speedup\n1,8,1.00000\n");
}

Test(speeds, no_factor_allows_the_whole_cluster) {
  Site site;
  site.add(8, true);
  cr_assert_gt(speeds_of(site.workload, site.cluster, 1, 0).back().gpus, 32);
}
