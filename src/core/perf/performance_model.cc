// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/performance_model.h"

#include <cmath>
#include <limits>

#include "core/perf/chunk_costs.h"
#include "core/perf/injected_error.h"
#include "core/perf/pass_table.h"
#include "core/schedule/named.h"

namespace swell::perf {

namespace {

/// The groups of a stage on one node and in one allocation.
struct NodeShare {
  int groups = 0;
  double link = std::numeric_limits<double>::infinity();  ///< slowest link of their GPU types
  void add(const cluster::Cluster& cluster, const plan::GroupLayout& group) noexcept {
    ++groups;
    link = std::min(link, cluster.type(group.type).link_bytes_per_s);
  }
};

NodeShare share_of(const cluster::Cluster& cluster, const plan::StageLayout& stage,
                   const plan::GroupLayout& one) noexcept {
  NodeShare share;
  for (const plan::GroupLayout& group : stage.groups)
    if (plan::together(group, one)) share.add(cluster, group);
  return share;
}

/// Returns the bandwidth of the slowest pair of groups if Interconnect::is_regular(). Takes linear
/// time if the groups are ordered by node and allocation.
double regular_bandwidth(const cluster::Cluster& cluster, const plan::StageLayout& stage) noexcept {
  const plan::GroupLayout& first = stage.groups[0];
  const int first_rack = cluster.node(first.node).rack;
  double link = std::numeric_limits<double>::infinity(), network = link;
  bool several_nodes = false, several_racks = false, by_node = true;
  for (std::size_t j = 1; j < stage.groups.size(); ++j)
    by_node &= std::pair(stage.groups[j].node, stage.groups[j].part) >=
               std::pair(stage.groups[j - 1].node, stage.groups[j - 1].part);
  for (std::size_t j = 0; j < stage.groups.size();) {
    const plan::GroupLayout& one = stage.groups[j];
    NodeShare share;
    for (; j < stage.groups.size() && plan::together(stage.groups[j], one); ++j)
      share.add(cluster, stage.groups[j]);
    if (!by_node) share = share_of(cluster, stage, one);
    if (share.groups > 1) link = std::min(link, stage.tp * share.link);
    network = std::min(network, network_reach(cluster.node(one.node), share.groups * stage.tp));
    several_nodes |= !plan::together(one, first);
    several_racks |= cluster.node(one.node).rack != first_rack;
  }
  if (!several_nodes) return link;
  return std::min(link,
                  several_racks ? network * cluster.interconnect().cross_rack_factor : network);
}

double pairwise_bandwidth(const cluster::Cluster& cluster,
                          const plan::StageLayout& stage) noexcept {
  double slowest = std::numeric_limits<double>::infinity();
  const auto repeats = [&](std::size_t j) {  // same place and type as the group before
    return j > 0 && plan::together(stage.groups[j], stage.groups[j - 1]) &&
           stage.groups[j].type == stage.groups[j - 1].type;
  };
  for (std::size_t a = 0; a < stage.groups.size(); ++a) {
    if (repeats(a)) continue;  // has the same pairs as the group before
    const auto& one = stage.groups[a];
    const int own = share_of(cluster, stage, one).groups * stage.tp;
    for (std::size_t b = a + 1; b < stage.groups.size(); ++b) {
      if (b > a + 1 && repeats(b)) continue;
      const auto& other = stage.groups[b];
      const double bandwidth =
          plan::together(one, other)
              ? stage.tp * std::min(cluster.type(one.type).link_bytes_per_s,
                                    cluster.type(other.type).link_bytes_per_s)
              : cluster.network_bandwidth(one.node, own, other.node,
                                          share_of(cluster, stage, other).groups * stage.tp);
      slowest = std::min(slowest, bandwidth);
    }
  }
  return slowest;
}

}  // namespace

double PerformanceModel::stage_bandwidth(const plan::StageLayout& stage) const noexcept {
  double bandwidth = cluster_.interconnect().is_regular() ? regular_bandwidth(cluster_, stage)
                                                          : pairwise_bandwidth(cluster_, stage);
  if (model_.cp > 1)  // gradient rings also go through each group
    for (const plan::GroupLayout& group : stage.groups)
      bandwidth = std::min(bandwidth, stage.tp * cluster_.type(group.type).link_bytes_per_s);
  return bandwidth;
}

double PerformanceModel::layer_commu(int type, int gpus, int local_batch) const noexcept {
  const cluster::GpuType& gpu = cluster_.type(type);
  const int tp = gpus / model_.cp;
  if (coefficients_.types[static_cast<std::size_t>(type)].launch_s <= 0)
    return tp_commu_fwd(coefficients_.activ_bytes, local_batch, 1, tp, gpu.link_bytes_per_s,
                        gpu.link_saturation_bytes);
  if (tp <= 1) return 0;
  return 2 * allreduce_s(tp_transmission_bytes(coefficients_.activ_bytes, local_batch, tp),
                         gpu.link_bytes_per_s);
}

PerformanceModel::Passes PerformanceModel::layer_passes(int type, int tp,
                                                        int local_batch) const noexcept {
  const TypeCoefficients& k = coefficients_.types[static_cast<std::size_t>(type)];
  const double commu = layer_commu(type, tp, local_batch);
  if (costs_)
    if (const auto cost = costs_->of(NodeUnit::layer, type, tp, local_batch))
      return {cost->fwd + commu, cost->bwd + commu};
  if (k.launch_s <= 0) {
    const double comp = tp_comp_fwd(k.comp_s, local_batch, 1, tp);
    return {comp + commu, k.backward * comp + commu};
  }
  const double comp = tp_comp_fwd(k.comp_s, local_batch, 1, tp) + k.whole_s * local_batch;
  return {with_launches(comp + commu, k.launch_s),
          with_launches(k.backward * comp + commu, 2 * k.launch_s)};
}

double PerformanceModel::layer_time(int type, int tp, int local_batch) const noexcept {
  const Passes passes = layer_passes(type, tp, local_batch);
  return passes.fwd + passes.bwd;
}

double PerformanceModel::gradient_bytes(const models::Load& load) const noexcept {
  const Coefficients& k = coefficients_;
  double bytes = k.param_bytes * (load.layers + load.modules * chain_.module_parameters());
  if (k.head_layers > 0) {
    if (load.has_embedding()) bytes += k.first.param_bytes;
    if (load.has_output() && !(load.has_embedding() && k.tied_embedding))
      bytes += k.last.param_bytes;
  }
  // Sharded gradients: gathered before both passes and scattered once, each (1 - 1/DP). A ring
  // all-reduce takes twice that, so sharding adds half.
  return bytes * (1 + 0.5 * k.sharded_gradients);
}

double PerformanceModel::gather_s(const plan::StageLayout& stage,
                                  const models::Load& load) const noexcept {
  const Coefficients& k = coefficients_;
  const double share = k.stepped_share();
  const int replicas = k.max_shards > 0 ? std::min(stage.dp(), k.max_shards) : stage.dp();
  if (share <= 0 || replicas <= 1) return 0;
  // Gathering takes half the time of an all-reduce of as many bytes.
  return share * dp_commu(gradient_bytes(load), 1, replicas, stage_bandwidth(stage)) / 2;
}

namespace {

/// Computes the times of layers anew each time.
struct Direct {
  const PerformanceModel& model;
  PerformanceModel::Passes operator()(int type, int tp, int local_batch) const noexcept {
    return model.layer_passes(type, tp, local_batch);
  }
  double commu_extra(double bwd, double commu, double overlap) const noexcept {
    return dp_commu_extra(bwd, commu, overlap);
  }
};
/// Takes the times of layers from a table.
struct Remembered {
  PassTable& table;
  PerformanceModel::Passes operator()(int type, int tp, int local_batch) const {
    return table.of(type, tp, local_batch);
  }
  double commu_extra(double bwd, double commu, double overlap) const {
    return table.commu_extra(bwd, commu, overlap);
  }
};

}  // namespace

template <typename PassesOf>
StageTimes PerformanceModel::stage_times(const plan::StageLayout& stage, const models::Load& load,
                                         const PassesOf& passes_of) const {
  StageTimes times;
  const double layers = load.layers + load.modules * chain_.module_work();
  const double updated = load.layers + load.modules * chain_.module_parameters();
  const double part = coefficients_.updated_part(stage.dp());
  double overlap = std::numeric_limits<double>::infinity();
  int seen_type = -1, seen_batch = -1;
  for (const plan::GroupLayout& group : stage.groups) {
    if (group.type == seen_type && group.local_batch == seen_batch)
      continue;  // equal groups follow each other
    seen_type = group.type;
    seen_batch = group.local_batch;
    const TypeCoefficients& k = coefficients_.types[static_cast<std::size_t>(group.type)];
    overlap = std::min(overlap, k.overlap);  // the group with the least overlap delays its ring
    if (costs_)
      if (const auto cost = costs_->chunk(load, group.type, stage.tp, group.local_batch)) {
        const double commu = layer_commu(group.type, stage.tp, group.local_batch) * layers;
        times.fwd = std::max(times.fwd, cost->fwd + commu);
        times.bwd = std::max(times.bwd, cost->bwd + commu);
        times.optim = std::max(times.optim, cost->optim);
        continue;
      }
    const Passes layer = passes_of(group.type, stage.tp, group.local_batch);
    const double head = load.heads > 0
                            ? tp_comp_fwd(k.comp_s, group.local_batch,
                                          coefficients_.head_layers * load.heads, stage.tp)
                            : 0;
    times.fwd = std::max(times.fwd, layer.fwd * layers + head);
    times.bwd = std::max(times.bwd, layer.bwd * layers + k.backward * head);
    times.optim = std::max(times.optim, k.optim_s * updated * part / stage.tp);
  }
  if (const int ranks = stage.dp() * model_.cp; ranks > 1) {
    times.dp_commu = dp_commu(gradient_bytes(load), 1, ranks, stage_bandwidth(stage));
    times.commu_extra = passes_of.commu_extra(times.bwd, times.dp_commu, overlap);
  }
  times.gather = gather_s(stage, load);
  return times;
}

template <typename PassesOf>
IterationTime PerformanceModel::exact_time(const plan::Layout& layout,
                                           const PassesOf& passes_of) const {
  if (layout.is_scheduled()) {
    IterationTime time;
    const auto passes = plan::schedule_of(layout);
    if (!passes) {  // too many passes for a prediction
      time.steady = std::numeric_limits<double>::infinity();
      return time;
    }
    const auto graph = schedule::Graph::of_orders(*passes);
    time.steady = graph ? schedule::evaluate(*graph, chunk_costs(*this, layout)).seconds
                        : std::numeric_limits<double>::infinity();
    return time;
  }
  const auto load_at = [&](const plan::StageLayout& stage) {
    return load_of(stage, {&stage == &layout.stages.front(), &stage == &layout.stages.back()});
  };
  if (sends_ == Sends::counted && layout.pp() > 1) {
    SendingPipelineSum sum;
    const plan::StageLayout* before = nullptr;
    for (const plan::StageLayout& stage : layout.stages) {
      sum.add(stage_times(stage, load_at(stage), passes_of),
              before ? send_s(*before, stage, coefficients_.activ_bytes, cluster_, model_.cp) : 0);
      before = &stage;
    }
    return sum.finish(layout.micro_batches);
  }
  PipelineSum sum;
  for (const plan::StageLayout& stage : layout.stages)
    sum.add(stage_times(stage, load_at(stage), passes_of));
  return sum.finish(layout.micro_batches);
}

template <typename PassesOf>
IterationTime PerformanceModel::time_of(const plan::Layout& layout,
                                        const PassesOf& passes_of) const {
  const IterationTime exact = exact_time(layout, passes_of);
  double factor = 1;
  if (coefficients_.plan_error > 0)
    factor = injected_error(layout, coefficients_.plan_error, coefficients_.plan_error_seed);
  if (!coefficients_.measured.empty()) factor *= coefficients_.measured.factor_of(layout);
  return factor == 1 ? exact : exact * factor;
}

StageTimes PerformanceModel::stage_times(const plan::StageLayout& stage,
                                         Position position) const noexcept {
  return stage_times(stage, load_of(stage, position), Direct{*this});
}

StageTimes PerformanceModel::load_times(const plan::StageLayout& stage,
                                        const models::Load& load) const noexcept {
  return stage_times(stage, load, Direct{*this});
}

IterationTime PerformanceModel::iteration_time(const plan::Layout& layout) const noexcept {
  return time_of(layout, Direct{*this});
}

IterationTime PerformanceModel::iteration_time(const plan::Layout& layout, PassTable& table) const {
  return time_of(layout, Remembered{table});
}

}  // namespace swell::perf
