// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/plan/layout.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// What one GPU of a group comes to hold, counted tensor by tensor, in bytes.
struct Memory {
  double state = 0;  ///< parameters and optimizer
  double gradients = 0;
  double activations = 0;  ///< of all micro-batches under way, and the working set of one layer
  double logits = 0;       ///< in half and full precision, and their gradient
  double buffers = 0;      ///< pieces of gradients on their way
  double context = 0;      ///< CUDA and NCCL, outside the allocator
  /// What the program's allocator says it handed out at most.
  double allocated() const noexcept { return state + gradients + activations + logits + buffers; }
  /// What it needs of the device for that: whole pages, and holes between them.
  double reserved() const noexcept;
};

/// At the peak of an iteration, of a GPU of group `group` in stage `stage`.
Memory peak(const plan::Layout& layout, int stage, const plan::GroupLayout& group,
            const models::Model& model, const Software& software);

/// Whether every GPU's memory is enough. A real program that needs more ends with an error.
bool fits(const plan::Layout& layout, const cluster::Cluster& cluster, const models::Model& model,
          const Software& software);

}  // namespace swell::sim::judge
