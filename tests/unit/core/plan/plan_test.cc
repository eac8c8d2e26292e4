// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan/plan.h"

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <utility>

#include "core/models/model.h"
#include "core/plan/chunks.h"
#include "core/plan/layout.h"
#include "core/plan/validate.h"
#include "core/schedule/named.h"
#include "core/schedule/text.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::plan;

namespace {

/// 5 layers on two groups of 2 GPUs of n1, 3 on one group of 4 of n2; 64 = 8 x 8 samples.
Plan good_plan() {
  Plan plan{8,
            {{5, 2, {{"n1", "h100", {0, 1}, 4}, {"n1", "h100", {2, 3}, 4}}},
             {3, 4, {{"n2", "h100", {0, 1, 2, 3}, 8}}}}};
  return plan;
}

std::string refusal(const std::function<void(Plan&)>& spoil) {
  Plan plan = good_plan();
  spoil(plan);
  const auto valid = validate(plan, support::small_model(), support::h100_nodes(2));
  return valid.ok() ? "" : valid.error().message();
}

}  // namespace

Test(plan, a_sound_plan_is_valid_and_round_trips) {
  const Plan plan = good_plan();
  cr_assert(validate(plan, support::small_model(), support::h100_nodes(2)).ok());
  cr_assert(Plan::parse(plan.to_json().dump()).value() == plan);
  cr_assert_eq(plan.gpu_count(), 8);
  cr_assert_eq(plan.micro_batch_samples(), 8);
  cr_assert_eq(plan.summary(), "5L dp2 tp2 | 3L dp1 tp4");
}

Test(plan, resolving_and_naming_are_inverse) {
  const auto cluster = support::h100_nodes(2);
  const auto layout = resolve(good_plan(), cluster);
  cr_assert(layout.ok());
  cr_assert_eq(layout->stages[0].groups[1].gpus, 0b1100u);
  cr_assert(name_all(*layout, cluster) == good_plan());
}

Test(plan, every_broken_rule_is_named_with_its_stage) {
  using P = Plan&;
  cr_assert_eq(refusal([](P p) { p.stages.clear(); }),
               "the plan has no stages; at least 1 is needed");
  cr_assert_eq(refusal([](P p) { p.micro_batches = 0; }),
               "the plan has 0 micro-batches; at least 1 is needed");
  cr_assert_eq(refusal([](P p) { p.stages[1].layers = 0; }),
               "stage 1: it has 0 layers; every stage needs at least 1");
  cr_assert_eq(refusal([](P p) { p.stages[1].layers = 4; }),
               "the stages have 9 layers in all; model small has 8");
  cr_assert_eq(refusal([](P p) { p.stages[0].groups.clear(); }),
               "stage 0: it has no TP groups; every stage needs at least 1");
  cr_assert_eq(refusal([](P p) { p.stages[0].tp = 3; }),
               "stage 0: its TP degree is 3; it must divide the 16 heads of model small");
  cr_assert_eq(refusal([](P p) { p.stages[0].groups[1].gpus.push_back(4); }),
               "stage 0: group 1: it has 3 GPUs; the stage's TP degree asks for 2");
  cr_assert_eq(refusal([](P p) {
                 p.stages[0].groups[1].gpus = {1, 2};
               }),
               "stage 0: group 1: GPU 1 of node n1 is in two groups; it may be in one");
  cr_assert_eq(refusal([](P p) {
                 p.stages[0].groups[1].gpus = {2, 8};
               }),
               "stage 0: group 1: GPU 8 is not on node n1, which has 8");
  cr_assert_eq(refusal([](P p) { p.stages[1].groups[0].node = "n9"; }),
               "stage 1: group 0: node \"n9\" is not in cluster test");
  cr_assert_eq(refusal([](P p) { p.stages[1].groups[0].gpu_type = "a100"; }),
               "stage 1: group 0: GPU 0 of node n2 is of type h100; the group is of type a100");
  cr_assert_eq(refusal([](P p) { p.stages[1].groups[0].local_batch = 0; }),
               "stage 1: group 0: its local batch is 0; every group needs at least 1 sample");
  cr_assert_eq(
      refusal([](P p) { p.stages[1].groups[0].local_batch = 7; }),
      "stage 1: its groups have 7 samples of each of 8 micro-batches; together they must be the global batch of 64");
}

namespace {

/// 8 layers on two groups of TP 2 x CP 2 GPUs; of 8 experts, each rank of 4 has 2.
Plan context_plan() {
  Plan plan{8, {{8, 2, {{"n1", "h100", {0, 1, 2, 3}, 4}, {"n1", "h100", {4, 5, 6, 7}, 4}}}}};
  plan.cp = 2;
  plan.ep = 4;
  return plan;
}

std::string context_refusal(const std::function<void(Plan&, models::Model&)>& spoil) {
  Plan plan = context_plan();
  models::Model model = support::small_model();
  model.moe = {8, 2, 0, 1024};
  model.cp = 2;
  model.ep = 4;
  spoil(plan, model);
  const auto valid = validate(plan, model, support::h100_nodes(2));
  return valid.ok() ? "" : valid.error().message();
}

}  // namespace

Test(plan, a_group_has_tp_times_cp_gpus) {
  using P = Plan&;
  using M = models::Model&;
  const Plan plan = context_plan();
  cr_assert_eq(context_refusal([](P, M) {}), "");
  cr_assert_eq(plan.gpu_count(), 8);
  cr_assert_eq(plan.summary(), "8L dp2 tp2, cp2 ep4");
  cr_assert(Plan::parse(plan.to_json().dump()).value() == plan);
  const auto cluster = support::h100_nodes(2);
  models::Model model = support::small_model();
  model.cp = 2;
  model.ep = 4;
  const auto layout = resolve(plan, cluster);
  cr_assert_eq(layout->stages[0].gpu_count(), 8);
  cr_assert(name_all(*layout, cluster, model) == plan);
  cr_assert_eq(context_refusal([](P p, M) { p.ep = 1; }), "", "a plan need not say EP");
  cr_assert_eq(context_refusal([](P p, M) { p.ep = 2; }),
               "its EP degree is 2, and model small has 4, which stays: say \"ep\": 4");
  cr_assert_eq(context_refusal([](P p, M) { p.cp = 1; }),
               "its CP degree is 1, and model small has 2, which stays: say \"cp\": 2");
  cr_assert_eq(context_refusal([](P p, M) {
                 p.stages[0].groups[1].gpus = {4, 5};
               }),
               "stage 0: group 1: it has 2 GPUs; TP 2 x CP 2 are 4");
  cr_assert_eq(context_refusal([](P, M m) { m.ep = 8; }),
               "its EP degree is 4, and model small has 8, which stays: say \"ep\": 8");
  cr_assert_eq(context_refusal([](P p, M m) { p.ep = m.ep = 8; }),
               "stage 0: EP 8 does not divide the 4 ranks of DP 2 and CP 2");
}

Test(plan, large_plans_with_cp_round_trip_and_plans_without_are_written_as_before) {
  Plan plan = good_plan();
  cr_assert_eq(
      plan.to_json().dump(),
      R"({"micro_batches":8,"stages":[{"layers":5,"tp":2,"groups":[{"node":"n1","gpu_type":"h100","gpus":[0,1],"local_batch":4},)"
      R"({"node":"n1","gpu_type":"h100","gpus":[2,3],"local_batch":4}]},{"layers":3,"tp":4,"groups":[{"node":"n2",)"
      R"("gpu_type":"h100","gpus":[0,1,2,3],"local_batch":8}]}]})");
  for (const bool irregular : {false, true}) {
    plan = {4, {{20, 2, {}}}};
    plan.cp = 2;
    for (int node = 0; node < 200; ++node)
      for (int first = 0; first < 8; first += 4)
        plan.stages[0].groups.push_back(
            {fmt::format("node{}", irregular ? node * 7919 % 10007 : node),
             "h100",
             {first, first + 1, first + 2, first + 3},
             irregular ? 1 + node % 3 : 2});
    cr_assert(Plan::parse(plan.to_json().dump()).value() == plan);
  }
}

Test(plan, cp_and_ep_out_of_range_are_refused) {
  const auto said = [](const char* members, int tp) {
    const auto read = Plan::parse(fmt::format(
        R"({{"micro_batches":1,{},"stages":[{{"layers":1,"tp":{},"groups":[{{"node":"a","gpu_type":"t","local_batch":1,"gpus":[0]}}]}}]}})",
        members, tp));
    return read ? "" : read.error().message();
  };
  cr_assert_neq(said(R"("cp":0)", 1).find("\"cp\" is 0"), std::string::npos, "%s",
                said(R"("cp":0)", 1).c_str());
  cr_assert_neq(said(R"("ep":5000)", 1).find("\"ep\" is 5000"), std::string::npos);
  cr_assert_eq(said(R"("cp":16)", 8),
               "stage 0: TP 8 x CP 16 make groups of 128 GPUs; a node has at most 64");
}

Test(plan, json_errors_name_stage_and_group) {
  const auto read = Plan::parse(
      R"({"micro_batches":1,"stages":[{"layers":1,"tp":1,"groups":[{"node":"a","gpu_type":"t","local_batch":1,"gpus":[64]}]}]})");
  cr_assert_eq(read.error().message(),
               "stage 0: group 0: \"gpus\" holds 64; a GPU index is from 0 to 63");
  cr_assert_not(Plan::parse("[]").ok());
  cr_assert_not(Plan::parse(R"({"micro_batches":1,"stages":3})").ok());
}

/// 2 stages of `nodes` nodes each; the samples of the last groups of the second stage differ.
Plan large_plan(int nodes, int tp) {
  Plan plan{4, {}};
  for (int stage = 0; stage < 2; ++stage) {
    plan.stages.push_back({10, tp, {}});
    for (int node = 0; node < nodes; ++node)
      for (int gpu = 0; gpu < 8; gpu += tp) {
        std::vector<int> gpus(static_cast<std::size_t>(tp));
        std::iota(gpus.begin(), gpus.end(), gpu);
        const int samples = stage == 1 && node > nodes - 3 ? 3 : 2;
        plan.stages.back().groups.push_back({fmt::format("gpu-rack{}-node{}", stage, node),
                                             "nvidia_h100_80gb_hbm3", gpus, samples});
      }
  }
  return plan;
}

Test(plan, plans_of_thousands_of_gpus_fit_a_message_and_round_trip) {
  for (const int tp : {1, 2, 4, 8}) {
    const Plan plan = large_plan(256, tp);
    const std::string text = plan.to_json().dump();
    cr_assert_leq(text.size(), 16'384u, "tp %d: %zu bytes for 4,096 GPUs", tp, text.size());
    cr_assert(Plan::parse(text).value() == plan, "tp %d", tp);
  }
}

/// `pp` stages over 1,024 GPUs of nodes of `per_node`; no two neighbours are equal.
Plan irregular_plan(int pp, int per_node) {
  Plan plan{4, {}};
  const int dp = 1024 / pp;
  for (int stage = 0; stage < pp; ++stage) {
    plan.stages.push_back({10, 1, {}});
    for (int gpu = stage * dp; gpu < (stage + 1) * dp; ++gpu)
      plan.stages.back().groups.push_back(
          {fmt::format("gpu-rack{}-node{}.cluster.example.org", gpu / 64, gpu / per_node),
           gpu % 3 == 0 ? "nvidia_a100-sxm4-80gb" : "nvidia_h100_80gb_hbm3",
           {gpu % per_node},
           1 + gpu % 5});
  }
  return plan;
}

Test(plan, irregular_plans_of_a_thousand_gpus_fit_a_message_and_round_trip) {
  for (const int pp : {1, 4, 16, 64})
    for (const int per_node : {1, 8}) {
      const Plan plan = irregular_plan(pp, per_node);
      const std::string text = plan.to_json().dump();
      cr_assert_leq(text.size(), 31'000u, "%d stages: %zu bytes", pp, text.size());
      cr_assert(Plan::parse(text).value() == plan, "%d stages", pp);
    }
  Plan named = irregular_plan(1, 8);
  named.stages[0].groups[5].node = std::string(300, 'n');  // more than a table takes
  named.stages[0].groups[6].node = "gpu-rack0-node\xc3\xa9";
  cr_assert(Plan::parse(named.to_json().dump()).value() == named);
}

// A swellrun or a Python package of before tables can read it.
Test(plan, irregular_plans_that_fit_a_message_by_runs_are_written_without_tables) {
  Plan plan = irregular_plan(1, 8);
  plan.stages[0].groups.resize(250);
  const std::string text = plan.to_json().dump();
  cr_assert_leq(text.size(), kMaxPlan);
  cr_assert_eq(text.find("\"names\""), text.npos);
  cr_assert(Plan::parse(text).value() == plan);
  plan = irregular_plan(1, 8);
  cr_assert_neq(plan.to_json().dump().find("\"names\""), text.npos);
}

Test(plan, tables_of_groups_that_cannot_be_are_refused) {
  const auto refused = [](const std::string& columns, int stages = 1) {
    std::string list;
    for (int stage = 0; stage < stages; ++stage)
      list +=
          fmt::format(R"({}{{"layers":1,"tp":2,"groups":[{{"names":["node1",[4,"2",0]],"types":)"
                      R"(["t"],{}}}]}})",
                      stage == 0 ? "" : ",", columns);
    const auto read = Plan::parse(fmt::format(R"({{"micro_batches":1,"stages":[{}]}})", list));
    return read.ok() ? "" : read.error().message();
  };
  const std::string rest = R"("gpu_type":[[0,2]],"local_batch":[1,2],"gpus":[0,1,2,3])";
  cr_assert_eq(refused(R"("node":[0,1],)" + rest), "");
  cr_assert_eq(refused(R"("node":[0,2],)" + rest),
               "stage 0: group 0: \"node\" holds 2; it must hold numbers from 0 to 1, or [NUMBER, "
               "TIMES]");
  cr_assert_neq(refused(R"("node":[[0,-1]],)" + rest).find("holds [0,-1]"), std::string::npos);
  cr_assert_eq(refused(R"("node":[0],)" + rest),
               "stage 0: group 0: \"gpu_type\" has more than 1 number");
  cr_assert_eq(refused(R"("node":[0,1,1],)" + rest),
               "stage 0: group 0: \"node\" has 3 numbers, \"gpu_type\" 2, \"local_batch\" 2 and "
               "\"gpus\" 4; a table has as many of each, and tp=2 times as many GPUs");
  const std::string many =
      R"("node":[[0,40000]],"gpu_type":[[0,40000]],"local_batch":[[1,40000]],"gpus":[[0,80000]])";
  cr_assert_eq(refused(many), "");
  cr_assert_eq(refused(many, 2), "stage 1: group 0: \"node\" has more than 25536 numbers");
  const auto name = [](const char* names) {
    return Plan::parse(fmt::format(R"({{"micro_batches":1,"stages":[{{"layers":1,"tp":1,"groups":[)"
                                   R"({{"names":{},"types":["t"],"node":[0],"gpu_type":[0],)"
                                   R"("local_batch":[1],"gpus":[0]}}]}}]}})",
                                   names))
        .error()
        .message();
  };
  for (const char* bad : {R"([1,"a",0])", R"([0,"a",1])", R"([-1,"a",0])", R"([0,"a"])"})
    cr_assert_neq(
        name(fmt::format("[{}]", bad).c_str()).find(fmt::format("\"names\" holds {}", bad)),
        std::string::npos, "%s", bad);
  cr_assert_neq(name(R"(["ab",[1,"c",2]])").find(R"(holds [1,"c",2])"), std::string::npos);
  cr_assert_neq(name(fmt::format(R"(["{}"])", std::string(300, 'x')).c_str()).find("300 bytes"),
                std::string::npos);
}

Test(plan, small_plans_and_uneven_groups_are_written_group_by_group) {
  const std::string small = large_plan(1, 1).to_json().dump();
  cr_assert_eq(small.find("nodes"), std::string::npos);
  Plan uneven = large_plan(16, 1);
  uneven.stages[0].groups[3].gpus = {3, 4};  // not valid, but what is read must be what was written
  cr_assert(Plan::parse(uneven.to_json().dump()).value() == uneven);
}

Test(plan, runs_of_groups_that_cannot_be_are_refused) {
  const auto refused = [](const char* item) {
    return Plan::parse(
               fmt::format(
                   R"({{"micro_batches":1,"stages":[{{"layers":1,"tp":2,"groups":[{}]}}]}})", item))
        .error()
        .message();
  };
  cr_assert_eq(
      refused(R"({"nodes":["a"],"gpu_type":"t","local_batch":1,"gpus":[0,1,2]})"),
      "stage 0: group 0: \"gpus\" lists 3 GPUs of each node; a multiple of tp=2 is needed");
  cr_assert_eq(
      refused(R"({"nodes":["a"],"gpu_type":"t","local_batch":1,"gpus":[]})"),
      "stage 0: group 0: \"gpus\" lists 0 GPUs of each node; a multiple of tp=2 is needed");
  cr_assert_eq(refused(R"({"nodes":[],"gpu_type":"t","local_batch":1,"gpus":[0,1]})"),
               "stage 0: group 0: \"nodes\" must be a list of names");
  cr_assert_eq(refused(R"({"nodes":[7],"gpu_type":"t","local_batch":1,"gpus":[0,1]})"),
               "stage 0: group 0: \"nodes\" holds 7; it must hold names");
  std::string many = R"({"nodes":["a")";
  for (int node = 0; node < 65'536; ++node) many += R"(,"a")";
  many += R"(],"gpu_type":"t","local_batch":1,"gpus":[0,1]})";
  cr_assert_eq(refused(many.c_str()), "stage 0: group 0: a plan has at most 65536 groups");
}

namespace {

/// The plan of good_plan() with other layers, and chunks.
Plan chunked_plan(std::vector<int> first, std::vector<int> second, int layers = 5) {
  Plan plan = good_plan();
  plan.stages[0].layers = layers;
  plan.stages[1].layers = 8 - layers;
  plan.stages[0].chunks = std::move(first);
  plan.stages[1].chunks = std::move(second);
  return plan;
}

std::string said(const Plan& plan) {
  const auto read = Plan::parse(plan.to_json().dump());
  return read.ok() ? "" : read.error().message();
}

}  // namespace

Test(plan, chunks_are_written_read_and_told) {
  const Plan plan = chunked_plan({3, 3}, {2, 2});
  cr_assert_eq(said(plan), "");
  cr_assert(Plan::parse(plan.to_json().dump()).value() == plan);
  cr_assert_eq(plan.summary(), "5L in 3+3 dp2 tp2 | 3L in 2+2 dp1 tp4");
  cr_assert(validate(plan, support::small_model(), support::h100_nodes(2)).ok());
  const auto cluster = support::h100_nodes(2);
  cr_assert(name_all(resolve(plan, cluster).value(), cluster) == plan);
  cr_assert(good_plan().to_json().dump().find("chunks") == std::string::npos);
}

Test(plan, a_schedule_is_written_read_and_told) {
  Plan plan = chunked_plan({3, 3}, {2, 2});
  cr_assert(plan.to_json().dump().find("schedule") == std::string::npos);
  plan.schedule = "zero-bubble";
  cr_assert(Plan::parse(plan.to_json().dump()).value() == plan);
  cr_assert_eq(plan.summary(), "5L in 3+3 dp2 tp2 | 3L in 2+2 dp1 tp4, zero-bubble");
  const auto cluster = support::h100_nodes(2);
  cr_assert(name_all(resolve(plan, cluster).value(), cluster) == plan);
  plan.schedule = schedule::to_text(schedule::gpipe({2, 2, plan.micro_batches}));
  cr_assert(Plan::parse(plan.to_json().dump()).value() == plan);
  cr_assert(validate(plan, support::small_model(), cluster).ok());
  cr_assert_neq(plan.summary().find(", a schedule of its own"), std::string::npos);
}

Test(plan, a_schedule_of_another_plan_is_refused) {
  Plan plan = chunked_plan({3, 3}, {2, 2});
  plan.schedule = "1f1b";
  cr_assert_eq(said(plan),
               "\"schedule\": 1f1b runs one chunk on each stage, the plan has 2; use interleaved");
  plan.schedule = "FB;FB";
  cr_assert_neq(said(plan).find("\"schedule\": the schedule is for 2 stages, 1 chunk"),
                std::string::npos);
  cr_assert_not(validate(plan, support::small_model(), support::h100_nodes(2)).ok());
  const int micro_batches = std::exchange(plan.micro_batches, 1 << 16);
  plan.schedule = "zero-bubble";
  cr_assert_neq(said(plan).find("at most 65536 are read"), std::string::npos, "%s",
                said(plan).c_str());
  plan.micro_batches = micro_batches;
  plan.schedule = std::string(20'000, ' ');
  cr_assert_eq(said(plan),
               "\"schedule\" has 20000 bytes; at most 16384 are read, so repeat groups (*N)");
}

Test(plan, chunks_of_layers_alone_get_embedding_and_head) {
  const Plan read = Plan::parse(chunked_plan({0, 3}, {3, 2}, 3).to_json().dump()).value();
  cr_assert(read == chunked_plan({0, 3}, {4, 3}, 3));
  Plan largest{1, {{1 << 20, 1, {{"n1", "h100", {0}, 1}}, {1 << 20}}}};
  largest = Plan::parse(largest.to_json().dump()).value();
  cr_assert(Plan::parse(largest.to_json().dump()).value() == largest);
  const Plan empty_end = Plan::parse(chunked_plan({3, 2}, {3, 0}).to_json().dump()).value();
  cr_assert(empty_end == chunked_plan({4, 3}, {3, 0}));
}

Test(plan, chunks_may_hold_no_layer_and_mtp_heads) {
  models::Model model = support::small_model();
  model.mtp_heads = 2;  // 14 units: embedding, 8 layers, head, and two modules and heads
  const Plan plan = chunked_plan({9, 0}, {1, 4}, 8);
  cr_assert_eq(said(plan), "");
  const auto valid = validate(plan, model, support::h100_nodes(2));
  cr_assert(valid.ok(), "%s", valid.error().message().c_str());
  cr_assert_eq(validate(plan, support::small_model(), support::h100_nodes(2)).error().message(),
               "its chunks have 14 units; model small with 8 layers and 0 MTP heads has 10");
}

Test(plan, chunks_of_more_mtp_heads_than_a_model_has_are_refused) {
  const auto with_mtp = [](int units) {
    Plan plan{1, {{1, 1, {{"n1", "h100", {0}, 1}}, {}}}};
    plan.stages[0].chunks = {units};
    return plan;
  };
  cr_assert(with_mtp(3 + 2 * models::kMostMtpHeads).check_chunks().ok());
  const auto refused = with_mtp(5 + 2 * models::kMostMtpHeads).check_chunks();
  cr_assert_not(refused.ok());
  cr_assert_neq(refused.error().message().find("17 MTP heads beside 1 layer"), std::string::npos,
                "%s", refused.error().message().c_str());
}

Test(plan, units_of_many_large_chunks_are_counted_without_overflow) {
  Plan plan{1, {{1, 1, {{"n1", "h100", {0}, 1}}, {}}}};
  plan.stages[0].chunks.assign(1024, 1 << 21);
  cr_assert_eq(mtp_heads_of(plan), ((1L << 31) - 3) / 2);
  cr_assert_not(plan.check_chunks().ok());
}

Test(plan, chunks_that_are_no_models_are_refused_by_name) {
  cr_assert_eq(said(chunked_plan({3, 3}, {4})),
               "stage 1 lists 1 chunk, stage 0 2; all stages have the same number");
  cr_assert_eq(said(chunked_plan({3, 3}, {})),
               "stage 1 lists 0 chunks, stage 0 2; all stages have the same number");
  cr_assert_eq(said(chunked_plan({5, 5}, {0, 0})),
               "stage 1 has no unit in any chunk; give it one, or leave it out");
  cr_assert_eq(
      said(chunked_plan({3, 3}, {2, 1})),
      "its chunks have 9 units; 8 layers with embedding and head are 10, and each MTP head "
      "adds 2");
  cr_assert_eq(
      said(chunked_plan({4, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0}, {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})),
      "each stage lists 11 chunks; there are 10 units, and no more chunks are possible");
  cr_assert_eq(said(chunked_plan({3, 2}, {2, 3})),
               "stage 0 says 5 layers, its chunks have 4; make them equal");
  cr_assert_eq(
      Plan::parse(
          R"({"micro_batches":1,"stages":[{"layers":1,"tp":1,"groups":[],"chunks":[1,-2]}]})")
          .error()
          .message(),
      "stage 0: \"chunks\" holds -2; a number of units is from 0 to 2097152");
  cr_assert_eq(
      Plan::parse(R"({"micro_batches":1,"stages":[{"layers":1,"tp":1,"groups":[],"chunks":[]}]})")
          .error()
          .message(),
      "stage 0: \"chunks\" must be a list of 1 to 1024 numbers of units");
}
