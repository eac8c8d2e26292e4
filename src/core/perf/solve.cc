// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/solve.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "core/perf/activation_fit.h"
#include "core/perf/check_profile.h"
#include "core/perf/equations.h"
#include "core/perf/performance_model.h"
#include "core/plan/chunks.h"
#include "core/plan/layout.h"

namespace swell::perf {

namespace {

// Maximum exponent: larger ones change times by less than a clock can measure.
constexpr double kMaxOverlap = 64;

/// Least squares through the origin: value = slope * size.
struct Slope {
  double products = 0, squares = 0;
  void add(double size, double value) {
    products += size * value;
    squares += size * size;
  }
  double value() const { return squares > 0 ? products / squares : 0; }
};

// Memory traffic of norms, dropout and residuals in one layer's forward pass, in bytes for each
// element of the hidden width: half precision, and full precision inside norms. Every GPU of a TP
// group processes the whole hidden width.
constexpr double kWholeTraffic = 19;
// Minimum share of a pass that the device takes, however long the launches take.
constexpr double kMinDeviceShare = 0.3;

/// Returns the seconds that the device itself takes for a pass, if the host takes `launch` seconds
/// to launch it.
double device_part(double pass, double launch) {
  return std::sqrt(
      std::max(pass * pass - launch * launch, kMinDeviceShare * kMinDeviceShare * pass * pass));
}

struct TypeFit {
  Slope comp, backward, optim, head;
  double whole_s = 0;
  double overlap_sum = 0;
  double overlap_weight = 0;
  double weights_s = 0, backward_s = 0;  ///< of groups with separate weight passes
  bool seen = false;
};

/// Returns the exponent k of dp_commu_extra() with which `commu` seconds of synchronization during
/// `bwd` seconds of backward pass leave `extra` seconds. By bisection: dp_commu_extra() falls as k
/// grows.
double overlap_exponent(double bwd, double commu, double extra) {
  double low = 1, high = kMaxOverlap;
  if (dp_commu_extra(bwd, commu, low) <= extra) return low;
  if (dp_commu_extra(bwd, commu, high) >= extra) return high;
  for (int step = 0; step < 200 && high - low > 1e-13 * high; ++step) {
    const double middle = (low + high) / 2;
    (dp_commu_extra(bwd, commu, middle) > extra ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// Returns the weight of an exponent found from one stage: the relative change of dp_commu_extra()
/// with the exponent.
double overlap_sharpness(double bwd, double commu, double overlap) {
  const double step = 1e-4 * overlap;
  const double extra = dp_commu_extra(bwd, commu, overlap);
  const double less = dp_commu_extra(bwd, commu, overlap + step);
  return extra > 0 ? std::max(0.0, (extra - less) / (step * extra)) : 0;
}

/// Observations of one stage, averaged to reduce the noise of single groups.
struct StageMeans {
  double commu_extra = 0;
  /// Backward seconds of the slowest kind of group, for which the stage waits. Groups with equal
  /// work are averaged.
  double slowest_bwd = 0;
  std::vector<int> types;  ///< GPU types in the stage
};

StageMeans stage_means(const Profile& profile, const plan::StageLayout& stage, int index) {
  struct Sum {
    double total = 0;
    int count = 0;
  };
  std::map<std::pair<int, int>, Sum> backward;  // by type and local batch
  Sum extra;
  for (const GroupObservation& seen : profile.groups) {
    if (seen.stage != index) continue;
    const plan::GroupLayout& group = stage.groups[static_cast<std::size_t>(seen.group)];
    Sum& equal = backward[{group.type, group.local_batch}];
    equal.total += seen.bwd_s;
    ++equal.count;
    extra.total += seen.commu_extra_s;
    ++extra.count;
  }
  StageMeans means;
  for (const auto& [kind, sum] : backward) {
    means.slowest_bwd = std::max(means.slowest_bwd, sum.total / sum.count);
    if (means.types.empty() || means.types.back() != kind.first) means.types.push_back(kind.first);
  }
  if (extra.count > 0) means.commu_extra = extra.total / extra.count;
  return means;
}

}  // namespace

Result<Coefficients> solve(const Profile& profile, const cluster::Cluster& cluster,
                           const plan::Allocations& allocations, const models::Model& model) {
  if (auto good = check(profile, cluster); !good)
    return good.error().while_doing("solving coefficients");
  auto resolved = plan::resolve(profile.plan, cluster);
  if (!resolved) return resolved.error().while_doing("solving coefficients");
  allocations.label(*resolved);
  const plan::Layout& layout = *resolved;

  Coefficients made;
  made.activ_bytes = profile.activ_bytes;
  models::Model shape = model;
  shape.layers = 0;
  for (const plan::StageLayout& stage : layout.stages) shape.layers += stage.layers;
  if (layout.has_chunks()) shape.mtp_heads = plan::mtp_heads_of(layout);
  const models::Chain chain(shape);
  const std::vector<models::Load> loads = plan::stage_loads(layout, chain);

  Slope param, state;
  for (const GroupObservation& seen : profile.groups) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(seen.stage)];
    const models::Load& load = loads[static_cast<std::size_t>(seen.stage)];
    const double per_gpu = (load.layers + load.modules * chain.module_parameters()) / stage.tp;
    param.add(per_gpu, seen.layer_param_bytes);
    state.add(per_gpu, seen.layer_state_bytes);
    // If a stage has both embedding and projection as two matrices, each is half of the observed
    // bytes. If they are one matrix, it is all of them.
    const double part = load.matrices(profile.tied_embedding) == 2 ? 0.5 : 1.0;
    const StageExtras extras{part * seen.extra_param_bytes * stage.tp,
                             part * seen.extra_state_bytes * stage.tp, 0};
    if (load.has_embedding()) made.first = extras;
    if (load.has_output()) made.last = extras;
  }
  made.tied_embedding = profile.tied_embedding;
  made.sharded_state = profile.sharded_state;
  made.sharded_gradients = profile.sharded_gradients;
  made.max_shards = profile.max_shards;
  made.param_bytes = param.value();
  made.param_optim_bytes = state.value();
  made.last.activ_p_bytes = profile.last_activ_p_bytes;

  std::vector<TypeFit> fits(cluster.types().size());
  made.types.resize(fits.size());
  const PerformanceModel bandwidths(shape, cluster, made);
  for (const GroupObservation& seen : profile.groups) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(seen.stage)];
    const plan::GroupLayout& group = stage.groups[static_cast<std::size_t>(seen.group)];
    TypeFit& fit = fits[static_cast<std::size_t>(group.type)];
    const models::Load& load = loads[static_cast<std::size_t>(seen.stage)];
    const double layers = load.layers + load.modules * chain.module_work();
    if (!(layers > 0)) continue;  // the stage has heads only
    fit.seen = true;
    if (profile.layer_launch_s > 0) {
      const cluster::GpuType& gpu = cluster.type(group.type);
      const double commu = seen.fwd_commu_s / layers;
      const double fwd =
          device_part((seen.fwd_s - seen.head_fwd_s) / layers, profile.layer_launch_s);
      const double bwd =
          device_part((seen.bwd_s - seen.head_bwd_s) / layers, 2 * profile.layer_launch_s);
      const double comp = std::max(fwd - commu, kMinDeviceShare * fwd);
      const double whole = profile.activ_bytes / 2 * kWholeTraffic /
                           (gpu.hbm_bytes_per_s > 0 ? gpu.hbm_bytes_per_s : 1e12);
      fit.whole_s = std::min(whole, 0.5 * comp / group.local_batch);
      fit.comp.add(tp_comp_fwd(1, group.local_batch, 1, stage.tp),
                   comp - fit.whole_s * group.local_batch);
      fit.backward.add(comp, std::max(bwd - commu, kMinDeviceShare * bwd));
      if (seen.head_fwd_s > 0)
        fit.head.add(tp_comp_fwd(1, group.local_batch, std::max(load.heads, 1), stage.tp),
                     seen.head_fwd_s);
    } else {
      const double fwd = seen.fwd_s - seen.fwd_commu_s;
      const double bwd = seen.bwd_s - seen.fwd_commu_s;  // backward has as many all-reduces
      fit.comp.add(tp_comp_fwd(1, group.local_batch, layers, stage.tp), fwd);
      fit.backward.add(fwd, bwd);
    }
    fit.weights_s += seen.weights_s;
    fit.backward_s += seen.weights_s > 0 ? seen.bwd_s : 0;
    fit.optim.add((load.layers + load.modules * chain.module_parameters()) *
                      made.updated_part(stage.dp()) / stage.tp,
                  seen.optim_s);
  }
  for (const TypeFit& fit : fits)
    if (fit.head.squares > 0 && fit.comp.value() > 0)
      made.head_layers = fit.head.value() / fit.comp.value();
  for (int i = 0; i < layout.pp(); ++i) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
    const StageMeans means = stage_means(profile, stage, i);
    const int ranks = stage.dp() * shape.cp;
    if (ranks == 1 || means.types.empty()) continue;
    const double commu = dp_commu(bandwidths.gradient_bytes(loads[static_cast<std::size_t>(i)]), 1,
                                  ranks, bandwidths.stage_bandwidth(stage));
    const double gather = bandwidths.load_times(stage, loads[static_cast<std::size_t>(i)]).gather;
    const double overlap =
        overlap_exponent(means.slowest_bwd, commu, std::max(0.0, means.commu_extra - gather));
    const double sharpness = overlap_sharpness(means.slowest_bwd, commu, overlap);
    const double weight = std::max(sharpness * sharpness, 1e-12);
    for (int type : means.types) {
      fits[static_cast<std::size_t>(type)].overlap_sum += weight * overlap;
      fits[static_cast<std::size_t>(type)].overlap_weight += weight;
    }
  }
  std::vector<bool> seen_types;
  for (std::size_t type = 0; type < fits.size(); ++type) {
    const TypeFit& fit = fits[type];
    seen_types.push_back(fit.seen);
    if (!fit.seen) continue;
    const double overlap = fit.overlap_weight > 0 ? fit.overlap_sum / fit.overlap_weight : 1;
    made.types[type] = {fit.comp.value(),
                        fit.backward.value(),
                        fit.optim.value(),
                        overlap,
                        profile.layer_launch_s,
                        fit.whole_s,
                        fit.backward_s > 0 ? fit.weights_s / fit.backward_s : 0};
  }
  extrapolate(made, seen_types, cluster);
  if (auto good = fit_activations(profile, layout, chain, made); !good)
    return good.error().while_doing("solving coefficients");
  return made;
}

}  // namespace swell::perf
