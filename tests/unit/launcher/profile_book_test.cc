// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/profile_book.h"

#include <criterion/criterion.h>
#include <fmt/format.h>

#include "core/cluster/presets.h"
#include "core/perf/profile_json.h"
#include "core/perf/solve.h"
#include "core/plan/chunks.h"

using namespace swell;
using namespace swell::launcher;

namespace {

/// Returns the report of one of two stages.
std::string report(int stage, double fwd_s = 0.010, int nccl_steps = 0,
                   std::vector<std::int32_t> chunks = {}) {
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
  made.role.chunks = std::move(chunks);
  return hex_digits(profiler::write(made));
}

const std::vector<ProfileBook::Member> kMembers = {{{0, 0}, "n1", {3}}, {{1, 0}, "n2", {0}}};

/// The plan that an agent reads from what two ranks said of their chunks.
Result<plan::Plan> reported(const std::vector<std::int32_t>& first,
                            const std::vector<std::int32_t>& last,
                            const std::string& decided = {}) {
  ProfileBook book;
  cr_assert(book.add(0, {0, 0}, report(0, 0.010, 0, first)).ok());
  cr_assert(book.add(0, {1, 0}, report(1, 0.010, 0, last)).ok());
  const auto json = book.profile(0, kMembers, decided);
  if (!json) return json.error();
  return plan::Plan::from_json((*json)->at("plan"));
}

/// A plan of two stages of four layers, as SWELL_PLAN has it.
std::string decided_plan(const char* first, const char* last, int layers = 4) {
  const auto stage = [&](const char* node, const char* chunks) {
    return fmt::format(
        R"({{"layers": {}, "tp": 1, "chunks": {}, "groups": [{{"node": "{}", "gpu_type": "a100", "gpus": [0], "local_batch": 2}}]}})",
        layers, chunks, node);
  };
  return fmt::format(R"({{"micro_batches": 8, "stages": [{}, {}]}})", stage("n1", first),
                     stage("n2", last));
}

}  // namespace

Test(profile_book, makes_a_profile_once_every_rank_has_reported) {
  ProfileBook book;
  cr_assert(book.add(4, {0, 0}, report(0)).ok());
  cr_assert_not(book.profile(4, kMembers).value().has_value());
  cr_assert(book.add(4, {1, 0}, report(1)).ok());
  const Json json = book.profile(4, kMembers).value().value();
  cr_assert_eq(json.integer_at("generation", 0, 100).value(), 4);
  cr_assert_eq(json.number_at("step_s", 0, 100).value(), 1.3, "the slowest rank's");
  cr_assert_not(json.has("nccl"), "it was not sampled");
  // solve() finds this in it, where the cluster is known.
  std::vector<cluster::Node> nodes = {{"n1", 0, {0, 0, 0, 0}, 1e10}, {"n2", 0, {0}, 1e10}};
  const auto cluster =
      cluster::Cluster::make("two", {*cluster::find_gpu_type("a100")}, nodes).value();
  const auto profile = perf::profile_from_json(Json::parse(json.dump()).value(), cluster);
  cr_assert(profile.ok(), "%s", profile.ok() ? "" : profile.error().message().c_str());
  cr_assert_eq(profile->plan.stages[0].groups[0].gpus[0], 3);
  cr_assert_eq(profile->plan.stages[1].groups[0].gpu_type, "a100");
  cr_assert(perf::solve(*profile, cluster).ok());
}

Test(profile_book, keeps_the_chunks_that_ranks_say) {
  const auto plan = reported({3, 2}, {3, 2});
  cr_assert(plan.ok(), "%s", plan.ok() ? "" : plan.error().message().c_str());
  cr_assert_eq(plan->stages[0].chunks, (std::vector{3, 2}));
  cr_assert_eq(plan->stages[1].chunks, (std::vector{3, 2}));
  // An MTP head: two units more.
  const auto heads = reported({3, 2}, {4, 3});
  cr_assert_eq(plan::mtp_heads_of(heads.value()), 1);
  // The head of the last layer may be on another stage than the last.
  cr_assert_eq(reported({1, 5}, {4, 0}).value().stages[0].chunks, (std::vector{1, 5}));
}

Test(profile_book, a_program_that_says_one_chunk_takes_chunks_and_has_a_plan_without) {
  ProfileBook book;
  cr_assert(book.add(0, {0, 0}, report(0, 0.010, 0, {5})).ok());
  cr_assert(book.add(0, {1, 0}, report(1, 0.010, 0, {5})).ok());
  const Json json = book.profile(0, kMembers).value().value();
  cr_assert(json.bool_at("takes_chunks").value());
  cr_assert_not(plan::Plan::from_json(json.at("plan")).value().has_chunks());
  ProfileBook silent;
  cr_assert(silent.add(0, {0, 0}, report(0)).ok());
  cr_assert(silent.add(0, {1, 0}, report(1)).ok());
  cr_assert_not(silent.profile(0, kMembers).value()->has("takes_chunks"));
}

Test(profile_book, takes_the_chunks_of_the_decided_plan_where_ranks_say_none) {
  cr_assert_eq(reported({}, {}, decided_plan("[3, 2]", "[3, 2]")).value().stages[1].chunks,
               (std::vector{3, 2}));
  cr_assert_not(reported({}, {}, decided_plan("[3, 3]", "[3, 3]", 5)).value().has_chunks(),
                "it is of another model");
  cr_assert_not(reported({}, {}, "not a plan").value().has_chunks());
  cr_assert_eq(reported({4, 1}, {4, 1}, decided_plan("[3, 2]", "[3, 2]")).value().stages[0].chunks,
               (std::vector{4, 1}), "what ranks say holds");
}

Test(profile_book, takes_the_schedule_of_the_decided_plan_that_runs) {
  const auto with_schedule = [](std::string plan) {
    return plan.insert(1, R"("schedule": "zero-bubble", )");
  };
  const std::string decided = with_schedule(decided_plan("[3, 2]", "[3, 2]"));
  cr_assert_eq(reported({3, 2}, {3, 2}, decided).value().schedule, "zero-bubble");
  cr_assert_eq(reported({4, 1}, {4, 1}, decided).value().schedule, "", "another plan runs");
  cr_assert_eq(reported({5}, {5}, with_schedule(decided_plan("[5]", "[5]"))).value().schedule,
               "zero-bubble");
}

Test(profile_book, chunks_of_no_model_are_an_error_that_names_the_stage) {
  cr_assert_eq(reported({3, 2}, {}).error().message(),
               "stage 1 lists 0 chunks, stage 0 2; all stages have the same number");
  cr_assert_eq(reported({3, 1}, {3, 3}).error().message(),
               "stage 0 says 4 layers, its chunks have 3; make them equal");
}

Test(profile_book, a_profile_that_is_too_long_loses_its_nodes_last) {
  plan::Plan plan;
  plan.micro_batches = 8;
  plan.stages = {{4, 1, {}}};
  perf::Profile profile;
  for (int group = 0; group < 4; ++group) {
    plan.stages[0].groups.push_back({"n1", "a100", {group}, 2});
    perf::GroupObservation seen;
    seen.group = group;
    seen.nodes = {{perf::NodePass::forward, 0, 4, 0.01, 0.001, 5e8},
                  {perf::NodePass::backward, 0, 4, 0.02, 0.001, -5e8}};
    profile.groups.push_back(seen);
  }
  profile.plan = plan;
  const Json json = perf::to_json(profile);
  const std::size_t whole = json.dump().size();
  const auto groups_in = [&](std::size_t max_bytes) {
    const auto bounded = bounded_profile(json, max_bytes);
    cr_assert(bounded.has_value());
    cr_assert_leq(bounded->dump().size(), max_bytes);
    return bounded->at("groups");
  };
  cr_assert_eq(groups_in(whole).size(), 4u);
  const Json one = groups_in(whole - 1);
  cr_assert_eq(one.size(), 1u, "groups that are alike are one");
  cr_assert(one.at(std::size_t{0}).has("nodes"));
  const std::size_t brief = bounded_profile(json, whole - 1)->dump().size();
  const Json without = groups_in(brief - 1);
  cr_assert_eq(without.size(), 1u);
  cr_assert_not(without.at(std::size_t{0}).has("nodes"));
  cr_assert(without.at(std::size_t{0}).has("fwd_s"));
  cr_assert_not(bounded_profile(json, 100).has_value());
}

Test(profile_book, an_generation_forgets_what_older_ones_reported) {
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

Test(profile_book, impossible_reports_are_errors) {
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
