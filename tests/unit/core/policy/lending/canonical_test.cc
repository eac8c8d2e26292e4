// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/canonical.h"

#include <criterion/criterion.h>

#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using cluster::GpuRef;

namespace {

Training trained() {
  Training training;
  training.model = std::make_shared<const models::Model>(support::small_model());
  training.coefficients = std::make_shared<const perf::Coefficients>(support::round_coefficients());
  return training;
}

/// One stage of two groups of a GPU each, on `node`, from GPU `first` on.
plan::Layout two_gpus(int node, int first = 0) {
  plan::Layout layout{4, {}};
  support::add_stage(layout, 8, 1, 2, 8, node, first);
  return layout;
}

std::string key_of(const plan::Layout& current, const std::vector<GpuRef>& free,
                   const cluster::Cluster& machines, const Training& training = trained()) {
  return Canonical(training, current, free, machines).key();
}

}  // namespace

Test(canonical, the_same_problem_on_other_nodes_and_gpus_is_the_same_problem) {
  const cluster::Cluster machines = support::h100_nodes(8);
  const std::string key = key_of(two_gpus(0), {{0, 2}, {3, 0}, {3, 1}}, machines);
  cr_assert(key == key_of(two_gpus(5, 4), {{5, 7}, {1, 2}, {1, 6}}, machines));
}

Test(canonical, a_difference_that_matters_for_a_plan_makes_another_problem) {
  const cluster::Cluster machines = support::h100_nodes(4);
  const std::vector<GpuRef> free = {{0, 2}, {1, 0}};
  const std::string key = key_of(two_gpus(0), free, machines);
  cr_assert(key != key_of(two_gpus(0), {{0, 2}, {0, 3}}, machines), "both on the job's own node");
  cr_assert(key != key_of(two_gpus(0), {{0, 2}}, machines), "one GPU fewer");
  plan::Layout uneven = two_gpus(0);
  uneven.stages[0].groups[0].local_batch = 9;
  uneven.stages[0].groups[1].local_batch = 7;
  cr_assert(key != key_of(uneven, free, machines), "other samples");
  cr_assert(key != key_of(two_gpus(0), free, support::h100_nodes(4, 8, 1e9)), "a slower network");
  Training slower = trained();
  perf::Coefficients twice = support::round_coefficients();
  twice.types[0].comp_s *= 2;
  slower.coefficients = std::make_shared<const perf::Coefficients>(twice);
  cr_assert(key != key_of(two_gpus(0), free, machines, slower), "another profile");
  Training exact = trained();
  exact.consistency = planner::Consistency::exact;
  cr_assert(key != key_of(two_gpus(0), free, machines, exact), "another consistency");
  Training chunked = trained();
  chunked.takes_chunks = true;
  cr_assert(key != key_of(two_gpus(0), free, machines, chunked), "plans may have chunks");
  plan::Layout scheduled = two_gpus(0);
  scheduled.schedule = "gpipe";
  cr_assert(key != key_of(scheduled, free, machines), "another schedule");
}

Test(canonical, a_rack_border_makes_another_problem_whatever_the_racks_are_called) {
  std::vector<cluster::Node> nodes;
  for (const int rack : {0, 0, 7, 7})
    nodes.push_back({"n" + std::to_string(nodes.size()), rack, std::vector<int>(8, 0), 400e9});
  const auto machines =
      cluster::Cluster::make("racks", {*cluster::find_gpu_type("h100")}, nodes, {0.5}).value();
  const std::string inside = key_of(two_gpus(0), {{1, 0}}, machines);
  cr_assert(inside == key_of(two_gpus(2), {{3, 0}}, machines));
  cr_assert(inside != key_of(two_gpus(0), {{2, 0}}, machines));
}

Test(canonical, a_plan_for_the_renumbered_problem_names_the_original_gpus_again) {
  const cluster::Cluster machines = support::h100_nodes(8);
  const plan::Layout current = two_gpus(5, 4);
  const std::vector<GpuRef> free = {{5, 7}, {1, 6}, {1, 2}};
  const Training training = trained();
  const Canonical canonical(training, current, free, machines);
  cr_assert(canonical.original(canonical.current()) == current);
  cr_assert_eq(canonical.free().size(), free.size());
  for (std::size_t i = 0; i < free.size(); ++i)
    cr_assert(canonical.original(canonical.free()[i]) == free[i], "GPU %zu", i);
}

Test(canonical, the_part_of_the_cluster_has_just_the_nodes_that_matter) {
  const cluster::Cluster machines = support::h100_nodes(8);
  const Training training = trained();
  const cluster::Cluster part = Canonical(training, two_gpus(5), {{1, 0}}, machines).machines();
  cr_assert_eq(part.nodes().size(), 2u);
  cr_assert_eq(part.gpu_count(), 16);
  cr_assert(support::near(part.node_bandwidth(0, 1), machines.node_bandwidth(5, 1)));
}

Test(canonical, gpus_of_another_allocation_make_another_problem) {
  const cluster::Cluster machines = support::h100_nodes(4);
  const std::string key = key_of(two_gpus(0), {{0, 2}, {0, 3}}, machines);
  cr_assert(key != key_of(two_gpus(0), {{0, 2, 1}, {0, 3, 1}}, machines));
  const Training training = trained();
  const Canonical canonical(training, two_gpus(2), {{2, 5, 1}}, machines);
  cr_assert(canonical.original(canonical.free()[0]) == (GpuRef{2, 5, 1}));
}
