// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/coefficients.h"

#include <algorithm>

#include "core/models/transformer.h"
#include "core/perf/roofline.h"

namespace swell::perf {

namespace {

// Samples of a micro-batch on one GPU. A micro-batch reads the weights once.
constexpr double kExpectedSamples = 4;
constexpr double kExpectedOverlap = 2.0;
// Bytes of state and of gradients for each parameter. State is the parameter and both of Adam's
// moments, in bf16, as PyTorch keeps a model loaded in bf16. The XL plans of Suika's Table 1 need
// this to fit 80 GB.
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

/// Returns the time of output projection and loss, in units of comp_s. A job has one number for all
/// types, so this is the maximum over the GPU types.
double head_layers(const Coefficients& coefficients, const models::Model& model,
                   const cluster::Cluster& cluster) {
  const auto head = models::head_operators(model);
  double most = 0;
  for (std::size_t type = 0; type < coefficients.types.size(); ++type)
    most = std::max(
        most, forward_s(head, cluster.type(static_cast<int>(type)), kExpectedSamples).total() /
                  coefficients.types[type].comp_s);
  return most;
}

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
                                k.overlap,         k.launch_s, k.whole_s * slower,
                                k.weights_share};
  }
}

Coefficients expected_coefficients(const models::Model& model, const cluster::Cluster& cluster) {
  Coefficients made;
  // Number of GPUs that hold each part of a layer: each CP rank has a copy.
  const double copies = model.cp;
  const double parameters = copies * model.held_layer_parameters();
  const auto layer = models::layer_operators(model), head = models::head_operators(model);
  for (const cluster::GpuType& type : cluster.types()) {
    // A.2 counts the projection within the layers, but not the large projections of MTP heads.
    double comp_s = forward_s(layer, type, kExpectedSamples).total();
    if (model.mtp_heads == 0)
      comp_s += forward_s(head, type, kExpectedSamples).total() / model.layers;
    made.types.push_back({comp_s, kBackwardPasses,
                          memory_s(update_bytes(kStateBytes, kGradientBytes) * parameters, type),
                          kExpectedOverlap});
  }
  made.activ_bytes = kHalf * model.sequence * model.hidden / model.cp;
  made.param_bytes = kGradientBytes * parameters;
  made.param_optim_bytes = kStateBytes * parameters;
  made.activ_p_bytes = copies * kSplitActivations * made.activ_bytes;
  made.activ_np_bytes = kWholeActivations * made.activ_bytes;
  const double embedding = copies * model.embedding_parameters();
  made.first = {kGradientBytes * embedding, kStateBytes * embedding, 0};
  const double logits =
      3.0 * kHalf * model.sequence * model.vocab;  // in half and in full precision
  made.last = {kGradientBytes * embedding, kStateBytes * embedding, logits};
  made.tied_embedding = model.tied_embedding;
  if (model.mtp_heads > 0) made.head_layers = head_layers(made, model, cluster);
  return made;
}

void expect_launches(Coefficients& coefficients, const models::Model& model,
                     const cluster::Cluster& cluster) {
  const auto layer = models::layer_operators(model);
  for (std::size_t type = 0; type < coefficients.types.size(); ++type) {
    const ForwardTime time =
        forward_s(layer, cluster.type(static_cast<int>(type)), kExpectedSamples);
    coefficients.types[type].comp_s = time.split_s;
    coefficients.types[type].launch_s = kExpectedLaunch_s / 4;
    coefficients.types[type].whole_s = time.whole_s / model.cp;
  }
  coefficients.head_layers = head_layers(coefficients, model, cluster);
}

}  // namespace swell::perf
