// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/truth.h"

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
