// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/compute.h"

#include <algorithm>
#include <cmath>

namespace swell::sim::judge {

namespace {

constexpr double kTile = 128;

double peak(const cluster::GpuType& gpu) { return gpu.tflops(cluster::Precision::bf16) * 1e12; }

/// Returns the number of multiprocessors of a GPU type, from the vendor's sheets.
double multiprocessors(const cluster::GpuType& gpu) {
  static const struct {
    const char* name;
    double count;
  } known[] = {{"b200", 148}, {"h200", 132}, {"h100", 132}, {"a100", 108}, {"v100", 80},
               {"l20", 92},   {"a40", 84},   {"a10", 72},   {"1080ti", 28}};
  for (const auto& one : known)
    if (gpu.name.rfind(one.name, 0) == 0) return one.count;
  return 108;
}

double both_limits(double device, double host, double exponent) {
  const double larger = std::max(device, host);
  if (larger <= 0) return 0;
  return larger * std::pow(std::pow(device / larger, exponent) + std::pow(host / larger, exponent),
                           1 / exponent);
}

/// Returns the seconds of the products of a layer's forward pass.
double layer_products_s(const models::Model& m, const Software& software, const Device& device,
                        double tokens) {
  const double h = m.hidden, tp = device.tp, query = m.query_width(),
               kv = query * m.kv_heads / m.heads;
  const auto product = [&](double rows, double columns, double inner) {
    return product_s(rows, columns, inner, device, software, software.product_share);
  };
  double sum = product(tokens, (query + 2 * kv) / tp, h) + product(tokens, h, query / tp);
  const double up = m.gated_mlp ? 2 : 1;
  if (m.moe.experts == 0)
    return sum + product(tokens, up * m.ffn / tp, h) + product(tokens, h, m.ffn / tp);
  const double inner = m.moe.expert_ffn / tp;
  const double each = std::max(1.0, tokens * m.moe.active / m.moe.experts);  // tokens of one expert
  sum += m.moe.experts * (product(each, up * inner, h) + product(each, h, inner)) +
         product(tokens, m.moe.experts, h);
  if (m.moe.shared > 0)
    sum += product(tokens, up * inner * m.moe.shared, h) + product(tokens, h, inner * m.moe.shared);
  return sum;
}

}  // namespace

double product_s(double m, double n, double k, const Device& device, const Software& software,
                 double share) {
  const double processors = multiprocessors(device.gpu);
  const double tiles = std::ceil(m / kTile) * std::ceil(n / kTile);
  const double occupancy = tiles / (std::ceil(tiles / processors) * processors);
  return 2 * m * n * k / (peak(device.gpu) * share * std::pow(occupancy, software.tile_exponent));
}

Passes layer_passes(const models::Model& m, const Software& software, const Device& device,
                    int samples, double allreduce_s) {
  const double s = m.sequence, h = m.hidden, tp = device.tp, tokens = samples * s;
  const double passes = 3 + software.repeated_forward;
  const double products = layer_products_s(m, software, device, tokens);
  const double attention =
      4 * tokens * s * m.query_width() / tp / (peak(device.gpu) * software.attention_share);
  const double traffic = samples * m.heads / tp * s * s * software.score_bytes +
                         tokens * h * (software.whole_bytes + software.split_bytes / tp);
  const double reduces = tp > 1 ? 4 + 2 * software.repeated_forward : 0;
  const double computes = device.slowness * (passes * (products + attention) +
                                             passes / 4 * traffic / device.gpu.hbm_bytes_per_s);
  const double host =
      passes / 4 * software.layer_launch_s + reduces * 2 * (tp - 1) * software.step_wait_s;
  const double all = both_limits(computes + reduces * allreduce_s, host, software.limits_exponent);
  // The gradient of each weight is one more product; attention itself has no weights.
  const double device_s = computes + reduces * allreduce_s;
  const double share = device_s > 0 ? device.slowness * products / device_s : 0;
  return {all / passes, all - all / passes, all * share};
}

Passes embedding_passes(const Software& software) {
  const double all = software.head_launch_s / 4;
  return {all / 3, all - all / 3, all - all / 3};  // the input of the embedding has no gradient
}

Passes head_passes(const models::Model& m, const Software& software, const Device& device,
                   int samples) {
  const double tokens = static_cast<double>(samples) * m.sequence,
               columns = static_cast<double>(m.vocab) / device.tp;
  const double products =
      3 * product_s(tokens, columns, m.hidden, device, software, software.head_share);
  const double traffic = tokens * columns * software.logit_bytes / device.gpu.hbm_bytes_per_s;
  const double all = both_limits(device.slowness * (products + traffic), software.head_launch_s,
                                 software.limits_exponent);
  return {all / 3, all - all / 3, all / 3};
}

Passes module_passes(const models::Model& m, const Software& software, const Device& device,
                     int samples, const Passes& layer) {
  const double tokens = static_cast<double>(samples) * m.sequence;
  const double product = device.slowness * product_s(tokens, m.hidden / device.tp, 2.0 * m.hidden,
                                                     device, software, software.product_share);
  Passes all = layer;
  all += {product, (2 + software.repeated_forward) * product, product};
  return all;
}

double update_s(double parameters, const Software& software, const cluster::GpuType& gpu) {
  return software.update_launch_s + parameters * software.optimizer_bytes / gpu.hbm_bytes_per_s;
}

double parameters_of_layer(const models::Model& m) {
  const double h = m.hidden, query = m.query_width(), kv = query * m.kv_heads / m.heads,
               matrices = m.gated_mlp ? 3 : 2;
  const double attention = 2 * h * (query + kv), norms = 4 * h;
  if (m.moe.experts == 0) return attention + matrices * h * m.ffn + norms;
  return attention + (m.moe.experts + m.moe.shared) * matrices * h * m.moe.expert_ffn +
         h * m.moe.experts + norms;
}

double parameters_of_module(const models::Model& m) {
  const double h = m.hidden;
  return parameters_of_layer(m) + 2 * h * h + 4 * h;
}

double parameters_of_embedding(const models::Model& m) {
  return static_cast<double>(m.vocab) * m.hidden;
}

double parameters_of(const models::Load& load, const models::Model& m) {
  const int matrices = load.matrices(m.tied_embedding);
  double sum = load.layers * parameters_of_layer(m) + matrices * parameters_of_embedding(m);
  if (load.modules > 0) sum += load.modules * parameters_of_module(m);
  return sum;
}

}  // namespace swell::sim::judge
