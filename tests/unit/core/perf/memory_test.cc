// SPDX-License-Identifier: GPL-2.0-or-later
// Suika's appendix A.3, worked by hand.
#include "core/perf/peak_memory.h"

#include <cmath>
#include <criterion/criterion.h>

#include "support/plans.h"

using namespace swell;
using namespace swell::perf;
using support::near;

namespace {

struct Setup {
  models::Model model = support::small_model();
  cluster::Cluster cluster = support::h100_nodes(2);
  Coefficients k = support::round_coefficients();
  PerformanceModel perf{model, cluster, k};
  MemoryModel memory{perf};
};

}  // namespace

Test(memory, each_part_by_hand) {
  Setup s;
  // Stage 1 of 3, 8 micro-batches, 4 layers, TP 2, 3 samples: two micro-batches in flight.
  const PeakMemory peak = s.memory.peak(1, 3, 8, 4, 2, 3, 0);
  cr_assert(near(peak.param_optim, 7e8 * 4 / 2));
  cr_assert(near(peak.activ, 3 * 4 * 2 * (1e7 / 2 + 5e6)));
  cr_assert(near(peak.grad, 1e8 * 4 / 2));
  cr_assert(near(peak.overhead, 0.1 * s.cluster.type(0).memory_bytes));
}

Test(memory, a_plan_keeps_and_takes_what_its_schedule_says) {
  Setup s;
  plan::Layout plan{8, {}};
  support::add_stage(plan, 4, 1, 1, 4, 0);
  support::add_stage(plan, 4, 1, 1, 4, 1);
  const auto seconds = [&] { return s.perf.iteration_time(plan).total(); };
  const auto activations = [&] { return s.memory.stage_peak(plan, 0).activ; };
  const double in_closed_form = seconds(), two_kept = activations();
  plan.schedule = "1f1b";
  cr_assert(near(seconds(), in_closed_form), "%g, %g", seconds(), in_closed_form);
  cr_assert(near(activations(), two_kept));
  plan.schedule = "memory-minimised";
  cr_assert(near(activations(), two_kept / 2));
  cr_assert_gt(seconds(), 1.5 * in_closed_form);
  plan.schedule = "gpipe";
  cr_assert(near(activations(), 4 * two_kept));
  plan.schedule = "FB;FB";  // of another plan
  cr_assert_not(s.memory.fits(plan));
  cr_assert(std::isinf(seconds()));
}

Test(memory, the_first_stage_holds_the_most_micro_batches) {
  Setup s;
  cr_assert(
      near(s.memory.peak(0, 4, 8, 4, 1, 1, 0).activ, 4 * s.memory.peak(3, 4, 8, 4, 1, 1, 0).activ));
  cr_assert(
      near(s.memory.peak(0, 4, 2, 4, 1, 1, 0).activ, 2 * s.memory.peak(3, 4, 2, 4, 1, 1, 0).activ),
      "never more than there are");
}

Test(memory, gradients_only_where_they_meet_activations) {
  Setup s;
  cr_assert_gt(s.memory.peak(0, 4, 5, 4, 1, 1, 0).grad, 0);
  cr_assert_eq(s.memory.peak(0, 4, 4, 4, 1, 1, 0).grad, 0,
               "all forward passes end before the first backward pass");
}

Test(memory, first_and_last_stage_carry_their_extras) {
  Setup s;
  const double middle = s.memory.peak(1, 3, 8, 4, 2, 3, 0).total();
  const double bare = s.memory.peak(2, 3, 8, 4, 2, 3, 0).total();
  s.k.first = {1e9, 6e9, 0};
  s.k.last = {1e9, 6e9, 2e8};
  cr_assert(near(s.memory.peak(1, 3, 8, 4, 2, 3, 0).total(), middle));
  cr_assert(near(s.memory.peak(2, 3, 8, 4, 2, 3, 0).total(), bare + 7e9 / 2 + 3 * 2e8 / 2));
  const double both = s.memory.peak(0, 1, 8, 4, 2, 3, 0).total();
  s.k.tied_embedding = true;
  cr_assert(near(s.memory.peak(0, 1, 8, 4, 2, 3, 0).total(), both - 7e9 / 2),
            "one stage holds a tied embedding once");
}

Test(memory, limits_agree_with_the_peak) {
  Setup s;
  s.k.first = {1e9, 6e9, 0};
  s.k.last = {1e9, 6e9, 2e8};
  const double room = s.cluster.type(0).memory_bytes;
  for (int i = 0; i < 3; ++i)
    for (int tp : {1, 2, 4})
      for (int samples : {1, 5, 40}) {
        const int layers = s.memory.max_layers(i, 3, 8, tp, samples, 0);
        cr_assert_leq(s.memory.peak(i, 3, 8, layers, tp, samples, 0).total(), room * 1.0000001);
        cr_assert_gt(s.memory.peak(i, 3, 8, layers + 1, tp, samples, 0).total(), room);
        const int max = s.memory.max_samples(i, 3, 8, 10, tp, 0);
        if (max > 0)
          cr_assert_leq(s.memory.peak(i, 3, 8, 10, tp, max, 0).total(), room * 1.0000001);
        cr_assert_gt(s.memory.peak(i, 3, 8, 10, tp, max + 1, 0).total(), room);
      }
}

Test(memory, cp_divides_activations_and_ep_the_experts) {
  models::Model whole = support::small_model();
  whole.moe = {8, 2, 0, 1024};
  models::Model split = whole;
  split.cp = 2;
  split.ep = 4;
  const auto cluster = support::h100_nodes(2);
  const Coefficients k = expected_coefficients(whole, cluster),
                     shared = expected_coefficients(split, cluster);
  const PerformanceModel perf{whole, cluster, k}, shared_perf{split, cluster, shared};
  // TP 2: groups of 2 GPUs, and with CP of 4.
  const PeakMemory all = MemoryModel(perf).peak(1, 3, 8, 4, 2, 4, 0),
                   part = MemoryModel(shared_perf).peak(1, 3, 8, 4, 4, 4, 0);
  cr_assert(near(part.activ, all.activ / 2));
  const double held = split.held_layer_parameters() / whole.layer_parameters();
  cr_assert(near(part.param_optim, all.param_optim * held));
  cr_assert(near(part.grad, all.grad * held));
  cr_assert_lt(held, 0.41);
  const PeakMemory last = MemoryModel(shared_perf).peak(2, 3, 8, 4, 4, 4, 0),
                   last_whole = MemoryModel(perf).peak(2, 3, 8, 4, 2, 4, 0);
  cr_assert(near(last.activ, last_whole.activ / 2), "logits too");
  cr_assert(near(last.param_optim - part.param_optim, last_whole.param_optim - all.param_optim),
            "the output projection is whole on each CP rank");
}
