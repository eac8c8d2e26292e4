// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/gpu_type.h"
#include "core/models/chain.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// Seconds of one micro-batch's passes. A repeated forward pass counts as backward.
struct Passes {
  double forward_s = 0;
  double backward_s = 0;
  /// Part of backward_s for the gradients of weights, which a schedule may delay.
  double weights_s = 0;
  Passes& operator+=(const Passes& other) {
    forward_s += other.forward_s;
    backward_s += other.backward_s;
    weights_s += other.weights_s;
    return *this;
  }
};

/// One GPU of a group of `tp` GPUs.
struct Device {
  const cluster::GpuType& gpu;
  int tp = 1;
  double slowness = 1;  ///< factor on computation time
};

/// Returns the seconds of one product of an m x k and a k x n matrix. `share`: share of peak speed
/// that large products reach. Products are computed in tiles of 128 x 128, one on each
/// multiprocessor at a time: the last wave of tiles leaves some multiprocessors idle, and a small
/// product leaves most of them idle.
double product_s(double m, double n, double k, const Device& device, const Software& software,
                 double share);

/// Returns the passes of one transformer layer over `samples`. `allreduce_s`: seconds of one TP
/// all-reduce of its activations.
Passes layer_passes(const models::Model& model, const Software& software, const Device& device,
                    int samples, double allreduce_s);
/// Returns the passes of the embedding lookup on the first stage: only kernel launches.
Passes embedding_passes(const Software& software);
/// Returns the passes of one output projection and loss.
Passes head_passes(const models::Model& model, const Software& software, const Device& device,
                   int samples);
/// Returns the passes of the module of an MTP head: a layer, and the projection of state and
/// embedding to one state.
Passes module_passes(const models::Model& model, const Software& software, const Device& device,
                     int samples, const Passes& layer);
/// Returns the seconds to update `parameters` on one GPU.
double update_s(double parameters, const Software& software, const cluster::GpuType& gpu);

/// Returns the number of parameters of one layer; below, of an MTP module and of the embedding (the
/// head has as many). Counted independently of models::Model.
double parameters_of_layer(const models::Model& model);
double parameters_of_module(const models::Model& model);
double parameters_of_embedding(const models::Model& model);
/// Returns the number of parameters of a stage; units that share a matrix count it once.
double parameters_of(const models::Load& load, const models::Model& model);

}  // namespace swell::sim::judge
