// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <stdexcept>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/policy/view.h"
#include "sim/basic_plan.h"

namespace swell::sim {

/// Failure of an invariant of docs/simulator.md: the run ends with this one error.
class Broken : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Holder of a GPU: a job by its basic allocation (companion 0), or by a companion.
struct Holder {
  policy::JobId job = 0;
  policy::JobId companion = 0;
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// The holder of each GPU of the cluster. Throws Broken where a GPU would be in two allocations, or
/// is given back by another than its holder.
class Ledger {
 public:
  explicit Ledger(const cluster::Cluster& cluster);

  int nodes() const noexcept { return static_cast<int>(free_.size()); }
  bool is_up(int node) const noexcept { return up_[at(node)]; }
  /// Idle GPUs of a node; none where it is down.
  plan::GpuMask free(int node) const noexcept { return up_[at(node)] ? free_[at(node)] : 0; }
  /// GPUs of a node held by companions.
  plan::GpuMask lent(int node) const noexcept { return lent_[at(node)]; }
  plan::GpuMask all(int node) const noexcept { return all_[at(node)]; }
  bool has_free(const GpuSet& set) const noexcept;
  int used() const noexcept { return used_; }
  int used_by_companions() const noexcept { return used_lent_; }
  Holder holder(int node, int gpu) const noexcept {
    return holders_[at(node)][static_cast<std::size_t>(gpu)];
  }

  void take(const NodeGpus& gpus, Holder holder);
  void take(const GpuSet& set, Holder holder);
  void give_back(const NodeGpus& gpus, Holder holder);
  void give_back(const GpuSet& set, Holder holder);
  void set_up(int node, bool up) noexcept { up_[at(node)] = up; }

 private:
  static std::size_t at(int node) noexcept { return static_cast<std::size_t>(node); }
  std::vector<plan::GpuMask> all_, free_, lent_;
  std::vector<bool> up_;
  std::vector<std::vector<Holder>> holders_;
  int used_ = 0, used_lent_ = 0;
};

}  // namespace swell::sim
