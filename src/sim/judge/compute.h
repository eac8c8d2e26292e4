// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/gpu_type.h"
#include "core/models/model.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// One micro-batch's passes through something. The repetition of a forward pass counts as backward.
struct Passes {
  double forward_s = 0;
  double backward_s = 0;
  Passes& operator+=(const Passes& other) {
    forward_s += other.forward_s;
    backward_s += other.backward_s;
    return *this;
  }
};

/// What one GPU of a group of `tp` does.
struct Device {
  const cluster::GpuType& gpu;
  int tp = 1;
  double slowness = 1;
};

/// Seconds of one product of an m x k and a k x n matrix. Products are computed in tiles of 128 x
/// 128, one a multiprocessor at a time: the last wave of tiles leaves some of them idle, and small
/// products all but a few.
double product_s(double m, double n, double k, const Device& device, const Software& software,
                 double share);

/// One transformer layer over `samples`; `allreduce_s`: one TP all-reduce of its activations.
Passes layer_passes(const models::Model& model, const Software& software, const Device& device,
                    int samples, double allreduce_s);
/// Embedding lookup on the first stage: launches alone.
Passes embedding_passes(const Software& software);
/// Output projection and loss on the last stage.
Passes head_passes(const models::Model& model, const Software& software, const Device& device,
                   int samples);
/// Updating `parameters` on one GPU.
double update_s(double parameters, const Software& software, const cluster::GpuType& gpu);

/// Parameters of one layer, of the embedding (the head has as many), counted for the judge alone.
double parameters_of_layer(const models::Model& model);
double parameters_of_embedding(const models::Model& model);

}  // namespace swell::sim::judge
