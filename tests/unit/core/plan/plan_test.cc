// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan/plan.h"

#include <criterion/criterion.h>
#include <functional>

#include "core/plan/layout.h"
#include "core/plan/validate.h"
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

Test(plan, json_errors_name_stage_and_group) {
  const auto read = Plan::parse(
      R"({"micro_batches":1,"stages":[{"layers":1,"tp":1,"groups":[{"node":"a","gpu_type":"t","local_batch":1,"gpus":[64]}]}]})");
  cr_assert_eq(read.error().message(),
               "stage 0: group 0: \"gpus\" holds 64; a GPU index is from 0 to 63");
  cr_assert_not(Plan::parse("[]").ok());
  cr_assert_not(Plan::parse(R"({"micro_batches":1,"stages":3})").ok());
}
