// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/view.h"

namespace swell::policy {

/// Lend GPUs of one node to a job, as one companion.
struct Grant {
  JobId job = 0;
  NodeIndex node = -1;
  Resources lent;
  friend bool operator==(const Grant&, const Grant&) = default;
};

/// Take one companion back.
struct Reclaim {
  JobId job = 0;
  JobId companion = 0;
  JobId needed_by = 0;  ///< the pending job that it makes room for; 0: the job's sizes changed
  friend bool operator==(const Reclaim&, const Reclaim&) = default;
};

struct Decisions {
  std::vector<Grant> grants;
  std::vector<Reclaim> reclaims;
};

/// Decides who is lent idle GPUs, and who gives them back. Implementations are pure and
/// thread-safe: the live controller and the simulator run the same object.
class Policy {
 public:
  virtual ~Policy() = default;
  /// Never grants GPUs that a job in `view.queue` could start on, nor more than is free; reclaims
  /// only companions in the view that are not leaving yet.
  virtual Decisions decide(const ClusterView& view) const = 0;
};

}  // namespace swell::policy
