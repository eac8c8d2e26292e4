// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>

#include "core/policy/view.h"

namespace swell::policy {

/// Sizes of sets of GPUs, Suika's ||R|| (section 3.2): their number or, if the cluster has several
/// types, the sum of their TFLOPS. Refers to the view.
class GpuSizes {
 public:
  explicit GpuSizes(const ClusterView& view)
      : machines_(view.machines && view.machines->types().size() > 1 ? view.machines.get()
                                                                     : nullptr) {}
  double of(NodeIndex node, plan::GpuMask gpus) const {
    if (machines_ == nullptr || node < 0) return std::popcount(gpus);
    double sum = 0;
    for (; gpus != 0; gpus &= gpus - 1) sum += of({node, std::countr_zero(gpus)});
    return sum;
  }
  double of(cluster::GpuRef gpu) const {
    return machines_ == nullptr
               ? 1
               : machines_->type(machines_->type_of(gpu)).tflops(cluster::Precision::bf16);
  }
  double of(const plan::Layout& layout) const {
    double sum = 0;
    for (const plan::StageLayout& stage : layout.stages)
      for (const plan::GroupLayout& group : stage.groups) sum += of(group.node, group.gpus);
    return sum;
  }
  /// Returns the mean size of the node's GPUs.
  double each_on(NodeIndex node) const {
    if (machines_ == nullptr) return 1;
    const auto gpus = static_cast<int>(machines_->node(node).gpus.size());
    double sum = 0;
    for (int gpu = 0; gpu < gpus; ++gpu) sum += of({node, gpu});
    return gpus > 0 ? sum / gpus : 1;
  }

 private:
  const cluster::Cluster* machines_;
};

}  // namespace swell::policy
