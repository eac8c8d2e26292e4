// SPDX-License-Identifier: GPL-2.0-or-later
// The judge runs any valid schedule over chunks.
#include <algorithm>
#include <criterion/criterion.h>

#include "core/models/catalogue.h"
#include "core/perf/solve.h"
#include "core/planner/placement.h"
#include "core/schedule/named.h"
#include "core/schedule/text.h"
#include "sim/judge/judge.h"
#include "sim/judge/memory.h"
#include "sim/judge/profiling.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim::judge;
using schedule::Schedule;
using schedule::Shape;
using support::near;

namespace {

/// Products alone, at the GPU's peak, and no vocabulary to speak of: all layers take equally long.
Hardware plain_hardware(int layers) {
  Software software;
  software.product_share = software.attention_share = software.head_share = 1;
  software.tile_exponent = 0;
  software.whole_bytes = software.split_bytes = software.logit_bytes = software.optimizer_bytes = 0;
  software.layer_launch_s = software.head_launch_s = software.update_launch_s =
      software.step_wait_s = 0;
  software.gradient_bytes = 0;
  Hardware hardware{support::small_model(layers), software, {}, {}};
  hardware.model.hidden = 8192;
  hardware.model.ffn = 4 * 8192;
  hardware.model.vocab = 1;
  return hardware;
}

/// One GPU a stage, with `layers` layers.
plan::Layout layout_of(int stages, int layers, int micro_batches) {
  plan::Layout layout{micro_batches, {}};
  for (int i = 0; i < stages; ++i) support::add_stage(layout, layers, 1, 1, 2, i / 8, i % 8);
  return layout;
}

Iteration run(const plan::Layout& layout, const Schedule& schedule, const Hardware& hardware) {
  const Pipeline pipeline = Pipeline::even_chunks(layout, schedule);
  const auto valid = pipeline.check(layout);
  cr_assert(valid.ok(), "%s", valid.error().message().c_str());
  return execute(layout, pipeline, support::h100_nodes((layout.pp() + 7) / 8), hardware, true);
}

bool is_pass(const Operation& one) { return one.kind <= Operation::Kind::weights; }

/// The passes that a group ran, first to last.
schedule::Order passes_of(const Iteration& done, int stage, int group) {
  std::vector<Operation> own;
  for (const Operation& one : done.operations)
    if (is_pass(one) && one.stage == stage && one.group == group) own.push_back(one);
  std::stable_sort(own.begin(), own.end(),
                   [](const Operation& a, const Operation& b) { return a.begin_s < b.begin_s; });
  schedule::Order order;
  for (const Operation& one : own)
    order.push_back({static_cast<schedule::Kind>(one.kind), static_cast<std::int16_t>(one.chunk),
                     one.micro_batch});
  return order;
}

double busy(const Iteration& done) {
  double sum = 0;
  for (const Operation& one : done.operations)
    if (is_pass(one)) sum += one.end_s - one.begin_s;
  return sum;
}

}  // namespace

// FlexTrain, eq. 5. A chunk has so many layers that what is sent takes no time beside it.
Test(pipeline, equation_5_is_a_lower_bound_that_interleaved_reaches) {
  constexpr int kLayers = 200;  // of a chunk
  for (const int p : {2, 3, 4, 8, 16, 32})
    for (const int v : {1, 2, 3, 8})
      for (const int m : {1, p - 1, p, p + 1, p + p / 2, 2 * p + 1, 4 * p}) {
        if (p * v * m > 8000) continue;
        const plan::Layout layout = layout_of(p, kLayers * v, m);
        const Hardware hardware = plain_hardware(kLayers * v * p);
        plan::Layout alone = layout_of(1, kLayers, 1);
        const double chunk = run(alone, schedule::gpipe({1, 1, 1}), hardware).seconds;
        const double bound = chunk * std::max(m * v + p - 1, p * v + m - 1);
        for (const auto name : schedule::names()) {
          if (name == "zero-bubble" || (name != "interleaved" && p > 8)) continue;
          const auto schedule = schedule::named(name, {p, v, m});
          if (!schedule) continue;
          const double seconds = run(layout, *schedule, hardware).seconds;
          cr_assert_geq(seconds, bound * (1 - 1e-9), "%.*s of %d, %d, %d",
                        static_cast<int>(name.size()), name.data(), p, v, m);
          if (name == "interleaved")
            cr_assert_leq(seconds, bound * 1.005, "%d, %d, %d: %g of %g", p, v, m, seconds, bound);
        }
      }
}

Test(pipeline, each_group_runs_the_passes_in_the_order_of_the_schedule) {
  // Stages of unequal DP: two groups, one, three.
  plan::Layout layout{5, {}};
  support::add_stage(layout, 7, 1, 2, 3, 0, 0);
  support::add_stage(layout, 7, 2, 1, 6, 0, 2);
  support::add_stage(layout, 7, 1, 3, 2, 0, 4);
  const Hardware hardware = plain_hardware(21);
  for (const int chunks : {1, 2, 3, 7})
    for (const auto name : schedule::names()) {
      const auto schedule = schedule::named(name, {3, chunks, 5});
      if (!schedule) continue;
      const Iteration done = run(layout, *schedule, hardware);
      for (int i = 0; i < layout.pp(); ++i)
        for (int j = 0; j < layout.stages[static_cast<std::size_t>(i)].dp(); ++j)
          cr_assert(passes_of(done, i, j) == schedule->orders[static_cast<std::size_t>(i)],
                    "%.*s of %d chunks, stage %d", static_cast<int>(name.size()), name.data(),
                    chunks, i);
    }
}

Test(pipeline, a_pass_begins_when_its_input_has_come) {
  const plan::Layout layout = layout_of(4, 6, 6);
  const Schedule schedule = schedule::zero_bubble({4, 3, 6});
  const Iteration done = run(layout, schedule, plain_hardware(24));
  const auto end_of = [&](int stage, const schedule::Operation& pass) {
    for (const Operation& one : done.operations)
      if (is_pass(one) && one.stage == stage && one.chunk == pass.chunk &&
          one.micro_batch == pass.micro_batch &&
          static_cast<int>(one.kind) == static_cast<int>(pass.kind))
        return one.end_s;
    return 1e300;
  };
  int needs = 0;
  for (const Operation& one : done.operations) {
    if (!is_pass(one)) continue;
    const schedule::Need need =
        schedule::need_of(schedule.shape, one.stage,
                          {static_cast<schedule::Kind>(one.kind),
                           static_cast<std::int16_t>(one.chunk), one.micro_batch});
    if (!need.any) continue;
    cr_assert_gt(one.begin_s, end_of(need.stage, need.operation), "and the message takes time");
    ++needs;
  }
  cr_assert_eq(needs, 2 * (4 * 3 - 1) * 6);
}

Test(pipeline, chunks_do_the_work_of_the_whole_stage) {
  const Hardware hardware{support::small_model(24), Software::megatron_deepspeed(), {}, {}};
  const plan::Layout layout = layout_of(4, 6, 8);
  const Iteration one = execute(layout, support::h100_nodes(1), hardware, true);
  for (const int chunks : {2, 4, 6}) {
    const Iteration done = run(layout, schedule::interleaved({4, chunks, 8}), hardware);
    cr_assert(near(busy(done), busy(one), 1e-9));
  }
  // A chunk may be empty: a No-Op.
  Pipeline pipeline = Pipeline::even_chunks(layout, schedule::interleaved({4, 2, 8}));
  for (int i = 0; i < 4; ++i) {
    pipeline.loads[static_cast<std::size_t>(2 * i)].layers = 6;
    pipeline.loads[static_cast<std::size_t>(2 * i + 1)].layers = 0;
  }
  cr_assert(pipeline.check(layout).ok());
  const Iteration empty = execute(layout, pipeline, support::h100_nodes(1), hardware, true);
  cr_assert(near(busy(empty), busy(one), 1e-9));
  // On one stage nothing is sent, and no chunk waits.
  const plan::Layout alone = layout_of(1, 24, 8);
  const double whole = execute(alone, support::h100_nodes(1), hardware).seconds;
  cr_assert(near(run(alone, schedule::interleaved({1, 3, 8}), hardware).seconds, whole, 1e-9));
}

Test(pipeline, weight_gradients_fill_what_1f1b_leaves_idle) {
  const Hardware hardware = plain_hardware(40);
  const plan::Layout layout = layout_of(4, 10, 8);
  const Iteration whole = execute(layout, support::h100_nodes(1), hardware, true);
  const Iteration split = run(layout, schedule::zero_bubble({4, 1, 8}), hardware);
  cr_assert(near(busy(split), busy(whole), 1e-9), "the same work");
  cr_assert_lt(split.seconds, 0.9 * whole.seconds);
}

// The 32 equal layers on 16 stages: 62 layer times by 1F1B, 47 interleaved. Real software,
// nodes of eight GPUs, what is sent counted.
Test(pipeline, chunks_speed_up_a_deep_pipeline_of_few_micro_batches) {
  Hardware hardware = plain_hardware(32);
  hardware.software = Software::megatron_deepspeed();
  const plan::Layout layout = layout_of(16, 2, 16);
  const double one = execute(layout, support::h100_nodes(2), hardware).seconds;
  const double two = run(layout, schedule::interleaved({16, 2, 16}), hardware).seconds;
  cr_assert_gt(one / two, 1.25, "%g s, %g s", one, two);
}

Test(pipeline, a_plan_runs_the_schedule_that_it_says) {
  const auto model = support::small_model();
  plan::Layout plan{8, {}};
  support::add_stage(plan, 4, 1, 1, 4, 0);
  support::add_stage(plan, 4, 1, 1, 4, 1);
  const schedule::Shape shape{2, 1, 8};
  cr_assert(Pipeline::of(plan, model).schedule == schedule::one_forward_one_backward(shape));
  plan.schedule = "gpipe";
  cr_assert(Pipeline::of(plan, model).schedule == schedule::gpipe(shape));
  plan.schedule = schedule::to_text(schedule::memory_minimised(shape));
  cr_assert(Pipeline::of(plan, model).schedule == schedule::memory_minimised(shape));
}

Test(pipeline, gradients_of_a_stage_wait_for_all_its_chunks) {
  Hardware hardware = plain_hardware(24);
  hardware.software = Software::megatron_deepspeed();
  plan::Layout layout{6, {}};
  for (int i = 0; i < 2; ++i) support::add_stage(layout, 12, 1, 2, 2, 0, 2 * i);
  for (const auto name : {"interleaved", "zero-bubble"}) {
    const Iteration done = run(layout, *schedule::named(name, {2, 3, 6}), hardware);
    int rings = 0;
    for (const Operation& ring : done.operations) {
      if (ring.kind != Operation::Kind::gradients) continue;
      ++rings;
      for (const Operation& one : done.operations)
        if (is_pass(one) && one.stage == ring.stage) cr_assert_lt(one.end_s, ring.end_s);
    }
    cr_assert_eq(rings, 4);
  }
}

Test(pipeline, values_foreign_to_the_plan_are_refused_by_name) {
  const plan::Layout layout = layout_of(2, 5, 4);
  const auto said = [&](const Pipeline& pipeline) {
    const auto valid = pipeline.check(layout);
    return valid ? std::string() : valid.error().message();
  };
  const auto has = [](const std::string& text, const char* words) {
    cr_assert(text.find(words) != std::string::npos, "wanted \"%s\" in \"%s\"", words,
              text.c_str());
  };
  Pipeline pipeline = Pipeline::even_chunks(layout, schedule::interleaved({2, 2, 4}));
  cr_assert(said(pipeline).empty());
  pipeline.loads[3].layers = 3;
  has(said(pipeline), "stage 1: its 2 chunks have 6 layers; the stage has 5");
  pipeline.loads[2].layers = -1;
  has(said(pipeline), "stage 1: a chunk has -1 layers");
  pipeline.loads.pop_back();
  has(said(pipeline), "3 chunks are given; the schedule is for 2 stages of 2 chunks");
  has(said(Pipeline::even_chunks(layout, schedule::gpipe({2, 1, 3}))),
      "the schedule is for 2 stages of 1 chunk and 3 micro-batches");
  has(said(Pipeline::even_chunks(layout, schedule::gpipe({3, 1, 4}))), "the schedule is for 3");
}

namespace {

/// FlexTrain's Large on PP stages of eight GPUs: TP 8.
plan::Layout large(int stages, int micro_batches) {
  plan::Layout layout{micro_batches, {}};
  for (int i = 0; i < stages; ++i)
    support::add_stage(layout, 61 / stages + (i < 61 % stages ? 1 : 0), 8, 1, 1, i);
  return layout;
}

}  // namespace

Test(pipeline, mtp_heads_take_their_time_and_memory_where_they_stand) {
  models::Model model = models::find_model("flextrain-large")->model;
  const auto cluster = support::h100_nodes(8, 8);
  const Software software = Software::fused();
  const auto busy_of = [&](int heads, std::vector<int> chunks) {
    model.mtp_heads = heads;
    plan::Layout layout = large(2, 8);
    for (std::size_t i = 0; i < chunks.size(); ++i) layout.stages[i].chunks = {chunks[i]};
    const Hardware hardware{model, software, {}, {}};
    const Iteration done = execute(layout, cluster, hardware, true);
    double each[2] = {0, 0};
    for (const Operation& one : done.operations)
      if (is_pass(one)) each[one.stage] += one.end_s - one.begin_s;
    return std::pair{each[0], each[1]};
  };
  const auto [front0, rear0] = busy_of(0, {});
  const auto [front, rear] = busy_of(2, {});
  cr_assert(near(front, front0, 1e-9), "the first stage has none");
  cr_assert_gt(rear, 1.1 * rear0);
  // The last module and its head on the last stage, everything else on the first.
  const auto [more, less] = busy_of(2, {65, 2});
  cr_assert(near(more + less, front + rear, 1e-9), "the same work");
  cr_assert_lt(less, 0.1 * more);

  model.mtp_heads = 2;
  const plan::Layout layout = large(8, 8);
  const auto with = peak(layout, 7, layout.stages[7].groups[0], model, software);
  model.mtp_heads = 0;
  const auto without = peak(layout, 7, layout.stages[7].groups[0], model, software);
  cr_assert(near(with.logits, 3 * without.logits, 1e-12));
  cr_assert_gt(with.state, without.state);
  cr_assert_gt(with.activations, without.activations);
}

// FlexTrain, Table 2: with two MTP heads the last stage has six layers' work more than the others.
Test(pipeline, min_max_placement_of_mtp_heads_beats_all_of_them_on_the_last_stage) {
  const models::Model model = models::find_model("flextrain-large")->model;
  // The gain is limited by the layers of the other stages, where these are many, and by whole
  // units, where they are few.
  const std::pair<int, double> cases[] = {{8, 1.2}, {12, 1.4}, {16, 1.4}, {24, 1.9}, {32, 1.7}};
  for (const auto& [stages, gain] : cases) {
    // Without expert parallelism, 64 GPUs do not hold it: these have memory enough.
    cluster::GpuType gpu = *cluster::find_gpu_type("h100");
    gpu.memory_bytes *= 4;
    const auto cluster = cluster::uniform_cluster("large", gpu, stages, 8, 400e9);
    const Hardware hardware{model, Software::fused(), {}, {}};
    const int micro_batches = 4 * stages;
    const plan::Layout layout = large(stages, micro_batches);
    const perf::Coefficients coefficients =
        perf::solve(profile_of(layout, cluster, hardware), cluster, {}, model).value();
    const perf::PerformanceModel perf(model, cluster, coefficients, perf::Sends::counted);
    const double all_last = execute(layout, cluster, hardware).seconds;
    const auto best = [&](int chunks) {
      const auto found = planner::placements(perf, layout, chunks);
      return found.empty() ? 1e300 : execute(found.front().layout, cluster, hardware).seconds;
    };
    const double one = best(1), two = best(2);
    cr_assert_gt(all_last / one, gain, "PP %d: %g s, %g s", stages, all_last, one);
    cr_assert_lt(two, one, "PP %d: %g s, %g s", stages, two, one);
  }
}
