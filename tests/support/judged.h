// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs whose true times come from the judge. An execution is profiled with noise and solved for
// coefficients; their predictions for other plans are compared with the judge's executions of these
// plans.
#pragma once

#include <cmath>

#include "core/perf/solve.h"
#include "sim/judge/judge.h"
#include "sim/judge/profiling.h"
#include "support/cases.h"
#include "support/profiles.h"

namespace support {

/// Draws the hardware of one job: a random speed, and a random deviation of each type.
inline swell::sim::judge::Hardware make_hardware(const Case& made, CaseGenerator& random) {
  return swell::sim::judge::make_hardware(*made.model, *made.cluster,
                                          swell::sim::judge::Software::fused(),
                                          [&](double spread) { return random.factor(spread); });
}

inline swell::perf::Profile profile_of(const Case& made, const swell::plan::Layout& layout,
                                       const swell::sim::judge::Hardware& hardware) {
  return swell::sim::judge::profile_of(layout, *made.cluster, hardware);
}

/// Returns a random valid plan of the job over random GPUs of its cluster, either balanced or with
/// arbitrary layers.
inline swell::plan::Layout random_plan(const Case& made, CaseGenerator& random) {
  using namespace swell;
  const int micro_batches = made.start.micro_batches,
            micro_batch = made.model->global_batch / micro_batches;
  planner::Evaluator evaluator(*made.perf, micro_batch);
  for (;;) {
    planner::Islands gpus;
    for (const auto& gpu : planner::unused({}, *made.cluster))
      planner::add_to(gpus, gpu.node, made.cluster->type_of(gpu), plan::GpuMask{1} << gpu.index);
    plan::Layout layout{micro_batches, {}};
    const int stages = random.between(1, 4);
    for (int i = 0; i < stages && !gpus.empty(); ++i) {
      plan::StageLayout stage{0, 1 << random.between(0, 2), {}};
      if (planner::take_groups(stage, gpus, stage.tp, random.between(1, std::min(micro_batch, 4))) >
          0)
        layout.stages.push_back(stage);
      if (random.between(0, 1) == 0 && !gpus.empty())
        std::rotate(gpus.begin(), gpus.begin() + 1, gpus.end());
    }
    if (layout.stages.empty() || !evaluator.balance(layout)) continue;
    for (int moves = random.between(0, 3); moves > 0 && layout.pp() > 1; --moves) {
      auto& from = layout.stages[static_cast<std::size_t>(random.between(0, layout.pp() - 1))];
      auto& to = layout.stages[static_cast<std::size_t>(random.between(0, layout.pp() - 1))];
      if (from.layers < 2) continue;
      --from.layers;
      ++to.layers;
    }
    return layout;
  }
}

struct Judged {
  int plans = 0;
  double mean = 0, p90 = 0, worst = 0, bias = 0;
};

/// Sources of predictions: one profile, by A.2 or by the second model, or only data sheets.
enum class PredictedFrom { profile_a2, profile, sheets_a2, sheets };

/// Returns the errors of `plans` predictions, ten for each job. Times of a profile, which is of the
/// job's initial plan, have the relative error `noise`.
inline Judged judge_predictions(int plans, double noise,
                                PredictedFrom from = PredictedFrom::profile) {
  using namespace swell;
  std::vector<double> errors;
  double bias = 0;
  for (unsigned seed = 1; static_cast<int>(errors.size()) < plans; ++seed) {
    CaseGenerator random(seed);
    const int nodes = random.between(1, 4);
    const auto made = random.make(nodes, random.between(8, 32), 4, 16);
    if (!made) continue;
    const sim::judge::Hardware hardware = make_hardware(*made, random);
    Result<perf::Coefficients> coefficients =
        perf::expected_coefficients(*made->model, *made->cluster);
    if (from == PredictedFrom::sheets)
      perf::expect_launches(*coefficients, *made->model, *made->cluster);
    if (from == PredictedFrom::profile || from == PredictedFrom::profile_a2) {
      perf::Profile profile = profile_of(*made, made->start, hardware);
      add_noise(profile, noise, seed);
      if (from == PredictedFrom::profile_a2) {
        profile.layer_launch_s = 0;
        for (auto& seen : profile.groups) seen.head_fwd_s = seen.head_bwd_s = 0;
      }
      coefficients = perf::solve(profile, *made->cluster);
    }
    if (!coefficients) continue;
    const perf::PerformanceModel perf(*made->model, *made->cluster, *coefficients);
    for (int i = 0; i < 10 && static_cast<int>(errors.size()) < plans; ++i) {
      const plan::Layout layout = random_plan(*made, random);
      const double off = perf.iteration_time(layout).total() /
                             sim::judge::execute(layout, *made->cluster, hardware).seconds -
                         1;
      errors.push_back(std::abs(off));
      bias += off;
    }
  }
  std::sort(errors.begin(), errors.end());
  Judged judged{plans, 0, errors[errors.size() * 9 / 10], errors.back(), bias / plans};
  for (double error : errors) judged.mean += error / plans;
  return judged;
}

}  // namespace support
