// SPDX-License-Identifier: GPL-2.0-or-later
#include "profiler/times.h"

#include <cmath>
#include <criterion/criterion.h>
#include <iterator>

#include "profiler/recorder.h"

using namespace swell::profiler;

namespace {

std::int64_t now_ns = 0;
std::int64_t test_clock() noexcept { return now_ns; }
void pass_ms(double ms) { now_ns += static_cast<std::int64_t>(ms * 1e6); }

/// Regions by a clock of its own.
class Rank {
 public:
  int open(Kind kind, int micro_batch = -1, std::uint64_t bytes = 0, int first_layer = -1) {
    Opening opening;
    if (first_layer >= 0) opening.first_layer = first_layer, opening.layers = 2;
    opening.kind = kind;
    opening.micro_batch = micro_batch;
    opening.allocated_bytes = bytes;
    return recorder_.begin(opening);
  }
  void close(int region, std::uint64_t bytes = 0) { cr_assert(recorder_.end(region, bytes)); }
  void region(Kind kind, double ms, int micro_batch = -1) {
    const int opened = open(kind, micro_batch);
    pass_ms(ms);
    close(opened);
  }
  std::optional<StepTimes> step() {
    recorder_.step(++number_);
    const Step* done = recorder_.next();
    cr_assert_not_null(done);
    return times_of(*done);
  }

 private:
  Recorder recorder_{&test_clock};
  std::uint64_t number_ = 0;
};

/// A step of two micro-batches whose passes take `fwd_ms` and twice that.
StepTimes train(Rank& rank, double fwd_ms = 10) {
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const int forward = rank.open(Kind::forward, micro_batch);
    pass_ms(fwd_ms * 0.8);
    rank.region(Kind::tp_allreduce, fwd_ms * 0.2);
    rank.close(forward);
    rank.region(Kind::receive, 3);
    const int backward = rank.open(Kind::backward, micro_batch);
    rank.region(Kind::tp_allreduce, fwd_ms * 0.2);
    pass_ms(fwd_ms * 1.8);
    rank.close(backward);
  }
  rank.region(Kind::dp_sync, 4);
  rank.region(Kind::optimizer, 5);
  return rank.step().value();
}

/// Takes all reports of `steps` steps.
int reports(Stable& stable, Rank& rank, double fwd_ms, int steps) {
  int count = 0;
  for (int i = 0; i < steps; ++i) {
    stable.add(train(rank, fwd_ms));
    count += stable.take_report() ? 1 : 0;
  }
  return count;
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

using swell::perf::NodeObservation;
using swell::perf::NodePass;

const NodeObservation& node_of(const std::vector<NodeObservation>& nodes, NodePass pass,
                               int first_layer = -1) {
  for (const NodeObservation& node : nodes)
    if (node.pass == pass && node.first_layer == first_layer) return node;
  cr_assert(false, "no node %s from layer %d on", swell::perf::name_of(pass), first_layer);
  return nodes.front();
}

/// A step of three micro-batches through chunks of layers 0 and 1, and of 4 and 5 with the head,
/// all passes apart. The last micro-batch takes `slow` times as long.
StepTimes train_chunks(Rank& rank, double slow = 1) {
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    const double times = micro_batch == 2 ? slow : 1;
    const auto pass = [&](Kind kind, int first_layer, double ms, double head_ms, long change) {
      const std::uint64_t before = 1000;
      const int opened = rank.open(kind, micro_batch, before, first_layer);
      pass_ms(ms * times);
      rank.region(Kind::send, 7);  // waits for the next stage
      if (head_ms > 0) rank.region(Kind::head, head_ms * times, micro_batch);
      rank.close(opened, micro_batch == 0 ? before + static_cast<std::uint64_t>(change) : 0);
    };
    pass(Kind::forward, 0, 10, 0, 300);
    pass(Kind::forward, 4, 11, 5, 400);
    pass(Kind::backward, 4, 12, 6, -250);
    pass(Kind::backward, 0, 13, 0, -100);
    pass(Kind::weights, 4, 8, 0, -150);
    pass(Kind::weights, 0, 9, 0, -200);
  }
  return rank.step().value();
}

}  // namespace

Test(times, are_as_the_performance_model_wants_them) {
  Rank rank;
  const StepTimes seen = train(rank);
  cr_assert(near(seen.times.fwd_s, 0.010));
  cr_assert(near(seen.times.fwd_commu_s, 0.002), "all-reduces of the backward pass do not count");
  cr_assert(near(seen.times.bwd_s, 0.020));
  cr_assert(near(seen.times.optim_s, 0.005));
  cr_assert(near(seen.times.commu_extra_s, 0.004));
  cr_assert(near(seen.times.step_s, 2 * 0.033 + 0.009));
  cr_assert_eq(seen.micro_batches, 2);
  cr_assert_eq(seen.times.layer_launch_s, 0, "nothing is launched by a host");
}

Test(times, a_pass_in_several_regions_is_one_pass_of_its_micro_batch) {
  Rank rank;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
    for (int layer = 0; layer < 3; ++layer) rank.region(Kind::forward, 2, micro_batch);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const int whole = rank.open(Kind::backward, micro_batch);
    for (int layer = 0; layer < 3; ++layer) rank.region(Kind::backward, 4, micro_batch);
    rank.close(whole);
  }
  const StepTimes seen = rank.step().value();
  cr_assert_eq(seen.micro_batches, 2);
  cr_assert(near(seen.times.fwd_s, 0.006));
  cr_assert(near(seen.times.bwd_s, 0.012), "layers within the pass count once: %g",
            seen.times.bwd_s);
}

Test(times, the_output_projection_is_told_apart_in_both_passes) {
  Rank rank;
  for (const Kind pass : {Kind::forward, Kind::backward}) {
    const int opened = rank.open(pass);
    pass_ms(10);
    rank.region(Kind::head, pass == Kind::forward ? 3 : 5);
    rank.close(opened);
  }
  const StepTimes seen = rank.step().value();
  cr_assert(near(seen.times.fwd_s, 0.013));
  cr_assert(near(seen.times.head_fwd_s, 0.003));
  cr_assert(near(seen.times.bwd_s, 0.015));
  cr_assert(near(seen.times.head_bwd_s, 0.005));
}

Test(times, passes_of_weights_are_a_part_of_the_backward_pass) {
  Rank rank;
  rank.region(Kind::forward, 10, 0);
  rank.region(Kind::backward, 12, 0);
  rank.region(Kind::forward, 10);  // regions may leave their micro-batch out
  rank.region(Kind::backward, 12);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const int weights = rank.open(Kind::weights, micro_batch == 0 ? 0 : -1);
    rank.region(Kind::receive, 3);
    pass_ms(8);
    rank.close(weights);
  }
  const StepTimes seen = rank.step().value();
  cr_assert_eq(seen.micro_batches, 2);
  cr_assert(near(seen.times.bwd_s, 0.020), "%g", seen.times.bwd_s);
  cr_assert(near(seen.times.weights_s, 0.008), "%g", seen.times.weights_s);
  Times other = seen.times;
  other.weights_s = 0.001;
  cr_assert_gt(change_between(seen.times, other, 2), 0.1);
}

Test(times, waits_of_the_pipeline_are_no_part_of_a_pass) {
  Rank rank;
  const int forward = rank.open(Kind::forward);
  rank.region(Kind::receive, 7);
  pass_ms(10);
  rank.close(forward);
  rank.region(Kind::backward, 20);
  rank.region(Kind::send, 1);
  cr_assert(near(rank.step()->times.fwd_s, 0.010));
}

Test(times, synchronization_behind_the_passes_counts_once) {
  Rank rank;
  rank.region(Kind::forward, 10);
  const int backward = rank.open(Kind::backward);
  pass_ms(15);
  // Two buckets, which run beside each other and beyond the pass.
  const int first = rank.open(Kind::dp_sync), second = rank.open(Kind::dp_sync);
  pass_ms(5);
  rank.close(backward);
  pass_ms(3);
  rank.close(first);
  pass_ms(4);
  rank.close(second);
  const StepTimes seen = rank.step().value();
  cr_assert(near(seen.times.bwd_s, 0.020));
  cr_assert(near(seen.times.commu_extra_s, 0.007), "%g", seen.times.commu_extra_s);
}

Test(times, synchronization_that_stops_the_backward_pass_is_hidden_by_nothing) {
  Rank rank;
  rank.region(Kind::forward, 10);
  const int backward = rank.open(Kind::backward);
  pass_ms(15);
  rank.region(Kind::dp_sync, 6);
  rank.close(backward);
  const StepTimes seen = rank.step().value();
  cr_assert(near(seen.times.bwd_s, 0.015));
  cr_assert(near(seen.times.commu_extra_s, 0.006));
}

Test(times, parameters_that_a_forward_pass_gathers_are_its_synchronization) {
  Rank rank;
  const int forward = rank.open(Kind::forward);
  rank.region(Kind::dp_sync, 3);
  pass_ms(10);
  rank.close(forward);
  rank.region(Kind::backward, 20);
  const StepTimes seen = rank.step().value();
  cr_assert(near(seen.times.fwd_s, 0.010));
  cr_assert(near(seen.times.bwd_s, 0.020));
  cr_assert(near(seen.times.commu_extra_s, 0.003));
}

Test(times, memory_that_a_forward_pass_leaves_is_counted_a_micro_batch) {
  Rank rank;
  for (std::uint64_t i = 0; i < 2; ++i)
    rank.close(rank.open(Kind::forward, static_cast<int>(i), 1000 + i * 300), 1300 + i * 300);
  rank.region(Kind::backward, 1);
  cr_assert_eq(rank.step()->times.kept_bytes, 300);
}

Test(times, memory_that_is_read_in_one_micro_batch_alone_is_that_of_a_micro_batch) {
  Rank rank;
  rank.close(rank.open(Kind::forward, 0, 1000), 1300);
  for (int i = 1; i < 4; ++i) rank.close(rank.open(Kind::forward, i, 0), 0);
  rank.region(Kind::backward, 1);
  cr_assert_eq(rank.step()->times.kept_bytes, 300);
}

Test(times, no_times_without_both_passes_or_with_an_open_one) {
  Rank rank;
  rank.region(Kind::forward, 1);
  cr_assert_not(rank.step().has_value(), "an evaluation has no backward pass");
  rank.region(Kind::forward, 1);
  rank.region(Kind::backward, 1);
  rank.open(Kind::optimizer);
  cr_assert_not(rank.step().has_value());
}

Test(times, passes_are_told_by_chunk_without_waits_and_heads_apart) {
  Rank rank;
  const std::vector<NodeObservation> nodes = train_chunks(rank).nodes;
  cr_assert_eq(nodes.size(), 8u);
  const auto is = [&](NodePass pass, int layer, double ms, double bytes) {
    const NodeObservation& node = node_of(nodes, pass, layer);
    cr_assert(near(node.median_s, ms * 1e-3), "%s %d: %g s", swell::perf::name_of(pass), layer,
              node.median_s);
    cr_assert(near(node.spread_s, 0));
    cr_assert(near(node.bytes, bytes), "%s %d: %g", swell::perf::name_of(pass), layer, node.bytes);
    cr_assert_eq(node.layers, layer < 0 ? 0 : 2);
  };
  is(NodePass::forward, 0, 10, 300);
  is(NodePass::forward, 4, 16, 400);
  is(NodePass::backward, 4, 18, -250);
  is(NodePass::backward, 0, 13, -100);
  is(NodePass::weights, 4, 8, -150);
  is(NodePass::weights, 0, 9, -200);
  is(NodePass::head_forward, -1, 5, 0);
  is(NodePass::head_backward, -1, 6, 0);
}

Test(times, the_spread_of_a_node_is_that_of_its_micro_batches) {
  Rank rank;
  const StepTimes step = train_chunks(rank, 3);
  const NodeObservation& node = node_of(step.nodes, NodePass::forward, 0);
  cr_assert(near(node.median_s, 0.010), "%g", node.median_s);
  cr_assert(near(node.spread_s, 0.020), "of 10, 10 and 30 ms: %g", node.spread_s);
  // And of the steps of a window, where they differ by more.
  Stable stable;
  for (const double ms : {10.0, 10.0, 14.0, 14.0, 14.0}) stable.add(train(rank, ms));
  cr_assert_eq(stable.nodes().size(), 2u);
  cr_assert(near(node_of(stable.nodes(), NodePass::forward).median_s, 0.014));
  cr_assert(near(node_of(stable.nodes(), NodePass::forward).spread_s, 0.004), "%g",
            node_of(stable.nodes(), NodePass::forward).spread_s);
}

Test(times, a_pass_in_several_regions_of_one_chunk_is_one_node) {
  Rank rank;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
    for (const Kind kind : {Kind::forward, Kind::backward})
      for (int part = 0; part < 3; ++part) rank.region(kind, 4, micro_batch);
  const auto nodes = rank.step().value().nodes;
  cr_assert_eq(nodes.size(), 2u);
  cr_assert(near(node_of(nodes, NodePass::forward).median_s, 0.012));
}

Test(times, more_nodes_than_are_told_are_none) {
  for (const int layers : {16, 17}) {  // two passes each, at most 32 nodes
    Rank rank;
    for (const Kind kind : {Kind::forward, Kind::backward})
      for (int layer = 0; layer < layers; ++layer) {
        const int opened = rank.open(kind, 0, 0, 2 * layer);
        pass_ms(1);
        rank.region(Kind::receive, 1);
        rank.close(opened);
      }
    const StepTimes step = rank.step().value();
    cr_assert_eq(step.nodes.size(), layers == 16 ? 32u : 0u);
    cr_assert(near(step.times.fwd_s, 1e-3 * layers));
  }
}

Test(stable, steps_with_other_nodes_each_have_none) {
  Rank rank;
  Stable stable;
  for (int i = 0; i < Stable::kWindowSteps; ++i) {
    const int opened = rank.open(Kind::forward, 0, 0, 2 * i);
    pass_ms(10);
    rank.close(opened);
    rank.region(Kind::backward, 20, 0);
    stable.add(rank.step().value());
  }
  cr_assert(stable.latest().has_value());
  cr_assert_eq(stable.nodes().size(), 0u);
}

Test(stable, three_windows_that_agree_within_two_percent_are_reported_once) {
  Rank rank;
  Stable stable;
  cr_assert_eq(reports(stable, rank, 20, 5), 0, "warming up");
  cr_assert_eq(reports(stable, rank, 10, 10), 0);
  cr_assert_not(stable.is_stable());
  cr_assert_eq(reports(stable, rank, 10.1, 5), 1, "1 %% apart");
  cr_assert_eq(reports(stable, rank, 10.1, 50), 0, "nothing has changed");
}

Test(stable, one_slow_step_in_a_window_changes_nothing) {
  Rank rank;
  Stable stable;
  int count = 0;
  for (int i = 0; i < 15; ++i) {
    stable.add(train(rank, i % 5 == 3 ? 35 : 10));
    count += stable.take_report() ? 1 : 0;
  }
  cr_assert_eq(count, 1);
  cr_assert(near(stable.latest()->fwd_s, 0.010));
}

Test(stable, a_drift_is_reported_when_it_is_over) {
  Rank rank;
  Stable stable;
  cr_assert_eq(reports(stable, rank, 10, 15), 1);
  cr_assert_eq(reports(stable, rank, 11, 5), 0);
  cr_assert_not(stable.is_stable());
  cr_assert_eq(reports(stable, rank, 11, 10), 1);
  cr_assert(near(stable.latest()->fwd_s, 0.011));
}

Test(stable, changes_are_weighed_by_their_part_of_the_step) {
  Times a, b;
  a.fwd_s = b.fwd_s = 0.01;
  a.bwd_s = b.bwd_s = 0.02;
  a.commu_extra_s = 0.0005;
  b.commu_extra_s = 0.0015;
  cr_assert_lt(change_between(a, b, 4), 0.01, "1 ms of a step of 120 ms");
  b.commu_extra_s = 0.0045;
  cr_assert_gt(change_between(a, b, 4), 0.03);
  b = a;
  b.fwd_s = 0.0103;
  b.bwd_s = 0.0197;
  cr_assert_gt(change_between(a, b, 4), 0.015,
               "what one pass gains the other has lost: both count");
  b = a;
  b.head_fwd_s = 0.002;
  cr_assert_gt(change_between(a, b, 4), 0.05, "a part of a pass that stayed as it was");
}

Test(stable, tiny_regions_that_jump_do_not_keep_a_profile_back) {
  Stable stable;
  StepTimes step;
  step.micro_batches = 3;
  step.times.fwd_s = 0.010;
  step.times.bwd_s = 0.012;
  int count = 0;
  for (int i = 0; i < 15; ++i) {
    // As on a busy host: another value in each window.
    step.times.optim_s = i / 5 % 2 == 0 ? 0.0001 : 0.0006;
    step.times.commu_extra_s = i / 5 % 2 == 0 ? 0.0004 : 0.0001;
    stable.add(step);
    count += stable.take_report() ? 1 : 0;
  }
  cr_assert_eq(count, 1);
}

Test(stable, times_that_do_not_settle_are_reported_after_fifty_steps_as_their_medians) {
  Rank rank;
  Stable stable;
  const auto jump = [&](int steps) {
    int count = 0;
    for (int i = 0; i < steps; ++i) {
      stable.add(train(rank, 10 + i / 5 % 10));
      count += stable.take_report() ? 1 : 0;
    }
    return count;
  };
  cr_assert_eq(jump(49), 0);
  stable.add(train(rank, 19));
  cr_assert(stable.take_report().has_value());
  cr_assert_not(stable.is_stable());
  cr_assert(near(stable.latest()->fwd_s, 0.015), "it has %g", stable.latest()->fwd_s);
  cr_assert_eq(jump(200), 0, "the medians stay as they are");
  cr_assert_eq(reports(stable, rank, 20, 15), 1, "they have settled");
}

Test(stable, a_step_of_fewer_micro_batches_is_left_out) {
  Rank rank;
  Stable stable;
  int count = 0;
  for (int i = 0; i < 24; ++i) {
    StepTimes step = train(rank);
    if (i % 4 == 3) step.micro_batches = 1;  // the last of a generation
    stable.add(step);
    count += stable.take_report() ? 1 : 0;
  }
  cr_assert_eq(count, 1);
  cr_assert_eq(stable.micro_batches(), 2);
  for (int i = 0; i < 20; ++i) {
    StepTimes step = train(rank);
    step.micro_batches = 1;
    stable.add(step);
  }
  cr_assert_eq(stable.micro_batches(), 1, "another training");
  cr_assert(stable.is_stable());
}
