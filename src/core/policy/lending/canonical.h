// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"
#include "core/policy/training.h"

namespace swell::policy {

/// A planning problem with its nodes and GPUs renumbered by their role, so that problems that
/// differ only in which nodes are idle have equal keys. Nodes of the current plan come first, then
/// those of the free GPUs as they are listed; GPUs in use or free come before the other ones of
/// their node.
class Canonical {
 public:
  /// `free`: in affinity order. `machines` must outlive the object.
  Canonical(const Training& training, const plan::Layout& current,
            const std::vector<cluster::GpuRef>& free, const cluster::Cluster& machines);

  /// Returns the key of the problem: equal keys mean equal problems.
  const std::string& key() const noexcept { return key_; }
  const plan::Layout& current() const noexcept { return current_; }
  const std::vector<cluster::GpuRef>& free() const noexcept { return free_; }
  /// Returns the cluster of the nodes that the problem uses, renumbered.
  cluster::Cluster machines() const;

  /// Translate the renumbered problem's nodes and GPUs back.
  plan::Layout original(const plan::Layout& layout) const;
  cluster::GpuRef original(cluster::GpuRef gpu) const;

 private:
  struct NodeMap {
    int node = 0;             ///< index in the original machines
    int rack = 0;             ///< renumbered rack
    std::vector<int> gpus;    ///< original index of each new one
    std::vector<int> number;  ///< new index of each original one
  };
  int add_node(int node, plan::GpuMask used);
  plan::GpuMask renumber(const NodeMap& map, plan::GpuMask gpus) const;
  void write_key(const Training& training);

  const cluster::Cluster& all_;
  std::vector<NodeMap> maps_;
  plan::Layout current_;
  std::vector<cluster::GpuRef> free_;
  std::string key_;
};

}  // namespace swell::policy
