// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/roofline.h"

#include <algorithm>

namespace swell::perf {

namespace {

constexpr double kOverlap = 2;
constexpr double kMoments = 2;  // of Adam, for each parameter
constexpr double kUnknownBandwidth = 1e12;

double cluster_s(const models::Graph& graph, const models::OperatorCluster& cluster,
                 const cluster::GpuType& gpu, double samples) noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < cluster.counts.size(); ++i)
    if (cluster.counts[i] > 0)
      sum += cluster.counts[i] * forward_s(graph.operators[i], gpu, samples);
  return sum;
}

}  // namespace

double Attainable::of(models::OperatorKind kind) const noexcept {
  switch (kind) {
    case models::OperatorKind::matmul: return matmul;
    case models::OperatorKind::convolution: return convolution;
    case models::OperatorKind::attention: return attention;
    default: return 1;
  }
}

double memory_s(double bytes, const cluster::GpuType& gpu, const Attainable& reached) noexcept {
  return bytes /
         (reached.memory * (gpu.hbm_bytes_per_s > 0 ? gpu.hbm_bytes_per_s : kUnknownBandwidth));
}

double forward_s(const models::Operator& one, const cluster::GpuType& gpu, double samples,
                 const Attainable& reached) noexcept {
  const double peak = gpu.tflops(cluster::Precision::bf16) * 1e12 * reached.of(one.kind);
  const double bytes = one.read_bytes + one.write_bytes + one.weight_bytes / samples;
  return roofline_s(one.flop, bytes, peak, 1 / memory_s(1, gpu, reached));
}

ForwardTime forward_s(const std::vector<models::Operator>& operators, const cluster::GpuType& gpu,
                      double samples, const Attainable& reached) noexcept {
  ForwardTime time;
  for (const models::Operator& one : operators)
    (one.is_split_in_model() ? time.split_s : time.whole_s) +=
        forward_s(one, gpu, samples, reached);
  return time;
}

models::OperatorLoad roofline_load(const cluster::GpuType& gpu, double samples) {
  return [&gpu, samples](const models::Operator& one) { return forward_s(one, gpu, samples); };
}

Coefficients expected_coefficients(const models::Graph& graph, const models::GraphChain& chain,
                                   const cluster::Cluster& cluster, double samples) {
  const models::Unit& layer = chain.layer.unit;
  const double gradient = graph.parameter_bytes, state = (1 + kMoments) * graph.parameter_bytes;
  Coefficients made;
  made.tied_embedding = chain.model.tied_embedding;
  for (const cluster::GpuType& gpu : cluster.types()) {
    const double updated = update_bytes(state, gradient) * layer.parameters;
    const double layer_s = cluster_s(graph, chain.layer, gpu, samples);
    made.types.push_back({layer_s, kBackwardPasses, memory_s(updated, gpu), kOverlap});
    // There is one number for all types: the maximum over the types.
    if (layer_s > 0)
      made.head_layers =
          std::max(made.head_layers, cluster_s(graph, chain.last, gpu, samples) / layer_s);
  }
  made.activ_bytes = layer.boundary_bytes;
  made.param_bytes = gradient * layer.parameters;
  made.param_optim_bytes = state * layer.parameters;
  made.activ_p_bytes = layer.split_bytes;
  made.activ_np_bytes = layer.whole_bytes;
  const auto extras = [&](const models::OperatorCluster& part) {
    const double parameters = part.unit.parameters + part.shared_parameters;
    return StageExtras{gradient * parameters, state * parameters,
                       part.unit.split_bytes + part.unit.whole_bytes};
  };
  made.first = extras(chain.first);
  made.last = extras(chain.last);
  return made;
}

}  // namespace swell::perf
