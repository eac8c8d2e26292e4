// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/coefficients.h"

namespace swell::perf {

namespace {

constexpr double kExpectedUtilization = 0.5;  // share of peak speed; 0.35 to 0.6 are usual
// Backward over forward time: gradients of inputs and of weights.
constexpr double kExpectedBackward = 2.0;
constexpr double kExpectedOverlap = 2.0;
// Bytes of state a parameter, itself and both of Adam's moments in bf16, and of its gradient: as
// PyTorch keeps a model loaded in bf16. The XL plans of Suika's Table 1 fit 80 GB only so.
constexpr double kStateBytes = 6;
constexpr double kGradientBytes = 2;
constexpr double kHalf = 2;  // bytes of an activation element, in half precision
// Activations that a layer keeps without recomputation, in units of k_activ: both norms' inputs,
// both dropouts' masks and the residual are whole on every GPU (5); the inner ones of attention and
// MLP are split (12 with an MLP four times wider).
constexpr double kWholeActivations = 5;
constexpr double kSplitActivations = 12;
// Seconds to launch one layer's kernels, forward and backward.
constexpr double kExpectedLaunch_s = 0.75e-3;
constexpr double kWholeTraffic = 19;  // bytes of forward traffic an element of the hidden state
// Time of output projection with loss over that of its products: the loss takes half as much again.
constexpr double kExpectedHead = 1.5;
// Times that the state crosses memory: read once, written once.
constexpr double kOptimizerTraffic = 2;

}  // namespace

void extrapolate(Coefficients& coefficients, const std::vector<bool>& seen,
                 const cluster::Cluster& cluster) {
  std::size_t from = 0;
  while (from < seen.size() && !seen[from]) ++from;
  if (from == seen.size()) return;
  auto speed = [&](std::size_t type) {
    return cluster.type(static_cast<int>(type)).tflops(cluster::Precision::bf16);
  };
  for (std::size_t type = 0; type < seen.size(); ++type) {
    if (seen[type]) continue;
    std::size_t known = from;  // a variant of the same GPU with other links is a better source
    for (std::size_t other = 0; other < seen.size(); ++other)
      if (seen[other] &&
          cluster.type(static_cast<int>(other)).name == cluster.type(static_cast<int>(type)).name)
        known = other;
    const TypeCoefficients& k = coefficients.types[known];
    const double slower = speed(known) / speed(type);
    coefficients.types[type] = {k.comp_s * slower, k.backward, k.optim_s * slower,
                                k.overlap,         k.launch_s, k.whole_s * slower};
  }
}

Coefficients expected_coefficients(const models::Model& model, const cluster::Cluster& cluster) {
  Coefficients made;
  const double parameters = model.layer_parameters();
  for (const cluster::GpuType& type : cluster.types()) {
    const double speed = kExpectedUtilization * type.tflops(cluster::Precision::bf16) * 1e12;
    const double traffic = kOptimizerTraffic * (kStateBytes + kGradientBytes) * parameters;
    const double memory_speed = type.hbm_bytes_per_s > 0 ? type.hbm_bytes_per_s : 1e12;
    made.types.push_back({model.layer_forward_flop() / speed, kExpectedBackward,
                          traffic / memory_speed, kExpectedOverlap});
  }
  made.activ_bytes = kHalf * model.sequence * model.hidden;
  made.param_bytes = kGradientBytes * parameters;
  made.param_optim_bytes = kStateBytes * parameters;
  made.activ_p_bytes = kSplitActivations * made.activ_bytes;
  made.activ_np_bytes = kWholeActivations * made.activ_bytes;
  const double embedding = model.embedding_parameters();
  made.first = {kGradientBytes * embedding, kStateBytes * embedding, 0};
  const double logits =
      3.0 * kHalf * model.sequence * model.vocab;  // in half and in full precision
  made.last = {kGradientBytes * embedding, kStateBytes * embedding, logits};
  made.tied_embedding = model.tied_embedding;
  // A.2 counts the projection within the layers; those of MTP heads are too many for that.
  if (model.mtp_heads > 0)
    made.head_layers = model.head_forward_flop() / model.layer_forward_flop();
  return made;
}

void expect_launches(Coefficients& coefficients, const models::Model& model,
                     const cluster::Cluster& cluster) {
  for (std::size_t type = 0; type < coefficients.types.size(); ++type) {
    const double memory_speed = cluster.type(static_cast<int>(type)).hbm_bytes_per_s;
    coefficients.types[type].launch_s = kExpectedLaunch_s / 4;
    coefficients.types[type].whole_s =
        kWholeTraffic * coefficients.activ_bytes / kHalf / (memory_speed > 0 ? memory_speed : 1e12);
  }
  coefficients.head_layers = kExpectedHead * model.head_forward_flop() / model.layer_forward_flop();
}

}  // namespace swell::perf
