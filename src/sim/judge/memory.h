// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/plan/layout.h"
#include "sim/judge/judge.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// Memory of one GPU, counted tensor by tensor, in bytes.
struct Memory {
  double state = 0;  ///< parameters and optimizer
  double gradients = 0;
  /// Activations of all micro-batches in flight, and the working set of one layer.
  double activations = 0;
  double logits = 0;   ///< logits in half and full precision, and their gradient
  double buffers = 0;  ///< pieces of gradients being sent
  double context = 0;  ///< CUDA and NCCL, outside the allocator
  /// Returns the maximum sum that the program's allocator hands out.
  double allocated() const noexcept { return state + gradients + activations + logits + buffers; }
  /// Returns the device memory needed for this: whole pages, with holes between tensors.
  double reserved() const noexcept;
};

/// Returns the bytes of the logits of one head on one GPU, for `samples`.
double logits_bytes(const models::Model& model, int tp, int samples);

/// Returns the peak memory of an iteration on a GPU of `group` in stage `stage`.
Memory peak(const plan::Layout& layout, int stage, const plan::GroupLayout& group,
            const models::Model& model, const Software& software);

/// Does the same for a stage of `pipeline`, which belongs to the plan.
Memory peak(const plan::Layout& layout, const Pipeline& pipeline, int stage,
            const plan::GroupLayout& group, const models::Model& model, const Software& software);

/// Returns whether the plan fits the memory of every GPU. A real program whose plan does not fit
/// ends with an error.
bool fits(const plan::Layout& layout, const cluster::Cluster& cluster, const models::Model& model,
          const Software& software);

}  // namespace swell::sim::judge
