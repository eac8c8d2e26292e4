// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/profile_book.h"

#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "core/perf/profile_json.h"
#include "core/perf/solve.h"

using namespace swell;
using namespace swell::launcher;

namespace {

/// Of one of two stages.
std::string report(int stage, double fwd_s = 0.010, int nccl_steps = 0) {
  profiler::RankProfile made;
  made.role.stage = stage;
  made.role.layers = 4;
  made.role.local_batch = 2;
  made.role.activ_bytes = 4096;
  made.role.whole_activations = 5;
  made.micro_batches = 8;
  made.times.fwd_s = fwd_s;
  made.times.bwd_s = 2 * fwd_s;
  made.times.step_s = 0.3 + stage;
  made.layer_param_bytes = 1000;
  made.layer_state_bytes = 7000;
  made.peak_bytes = 1e9;
  made.nccl.steps = nccl_steps;
  made.nccl.overhead = 0.02;
  return hex_digits(profiler::write(made));
}

const std::vector<ProfileBook::Member> kMembers = {{{0, 0}, "n1", {3}}, {{1, 0}, "n2", {0}}};

}  // namespace

Test(profile_book, makes_a_profile_once_every_rank_has_reported) {
  ProfileBook book;
  cr_assert(book.add(4, {0, 0}, report(0)).ok());
  cr_assert_not(book.profile(4, kMembers).value().has_value());
  cr_assert(book.add(4, {1, 0}, report(1)).ok());
  const Json json = book.profile(4, kMembers).value().value();
  cr_assert_eq(json.integer_at("epoch", 0, 100).value(), 4);
  cr_assert_eq(json.number_at("step_s", 0, 100).value(), 1.3, "the slowest rank's");
  cr_assert_not(json.has("nccl"), "it was not sampled");
  // What solve() finds in it, where the cluster is known.
  std::vector<cluster::Node> nodes = {{"n1", 0, {0, 0, 0, 0}, 1e10}, {"n2", 0, {0}, 1e10}};
  const auto cluster =
      cluster::Cluster::make("two", {*cluster::find_gpu_type("a100")}, nodes).value();
  const auto profile = perf::profile_from_json(Json::parse(json.dump()).value(), cluster);
  cr_assert(profile.ok(), "%s", profile.ok() ? "" : profile.error().message().c_str());
  cr_assert_eq(profile->plan.stages[0].groups[0].gpus[0], 3);
  cr_assert_eq(profile->plan.stages[1].groups[0].gpu_type, "a100");
  cr_assert(perf::solve(*profile, cluster).ok());
}

Test(profile_book, an_epoch_forgets_what_older_ones_reported) {
  ProfileBook book;
  cr_assert(book.add(1, {0, 0}, report(0)).ok());
  cr_assert(book.add(2, {1, 0}, report(1)).ok());
  cr_assert(book.add(1, {0, 0}, report(0)).ok(), "late, and of no use");
  cr_assert_not(book.profile(2, kMembers).value().has_value());
  cr_assert_not(book.profile(1, kMembers).value().has_value());
  cr_assert(book.add(2, {0, 0}, report(0)).ok());
  cr_assert(book.profile(2, kMembers).value().has_value());
}

Test(profile_book, a_later_report_of_a_rank_counts) {
  ProfileBook book;
  for (const double fwd_s : {0.010, 0.020}) {
    cr_assert(book.add(0, {0, 0}, report(0, fwd_s, 5)).ok());
    cr_assert(book.add(0, {1, 0}, report(1, fwd_s)).ok());
  }
  const Json json = book.profile(0, kMembers).value().value();
  cr_assert_eq(json.at("groups").at(std::size_t{0}).number_at("fwd_s", 0, 1).value(), 0.020);
  cr_assert_eq(json.at("nccl").integer_at("sampled_steps", 0, 9).value(), 5);
  cr_assert_eq(json.at("nccl").number_at("sampling_overhead", 0, 1).value(), 0.02);
}

Test(profile_book, what_cannot_be_is_an_error) {
  ProfileBook book;
  cr_assert_eq(book.add(0, {0, 0}, "xyz").error().message(),
               "a worker's profile is not in hexadecimal digits");
  cr_assert_eq(book.add(0, {0, 0}, "00ff").error().message(), "a rank's profile cannot be read");
  cr_assert(book.add(0, {0, 0}, report(0)).ok());
  cr_assert(book.add(0, {1, 0}, report(2)).ok());
  cr_assert_eq(book.profile(0, kMembers).error().message(),
               "stage 2, group 0 reports, and one before it does not");
}

Test(profile_book, a_worker_has_its_part_of_its_node_s_gpus) {
  WorkerNode node;
  node.gpu_list = "0-1,4,6-7";
  cr_assert(gpus_of(node, 0, 1) == std::vector<int>{0});
  cr_assert(gpus_of(node, 1, 2) == (std::vector<int>{4, 6}));
  node.gpu_list = "";
  cr_assert(gpus_of(node, 1, 2) == (std::vector<int>{2, 3}), "numbered where nothing is known");
}
