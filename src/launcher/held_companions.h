// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// A time that never comes.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A companion as the agent holds it, from its allocation until nothing runs there any more.
struct HeldCompanion {
  JobId job = 0;
  std::vector<WorkerNode> nodes;
  double up_by = 0;
  double grown_by = kNever;  ///< deadline for training to run there
  bool started = false;      ///< one of its shims has connected
  bool up = false;           ///< all its shims have connected
  std::optional<double> waits_until =
      std::nullopt;     ///< if up: deadline of its wait for other companions
  double joins_by = 0;  ///< if up: when it is given back unless it has joined
  bool reclaimed = false;
  double leave_by = 0;      ///< if reclaimed: deadline for its workers to leave
  bool failed = false;      ///< Released::failed
  bool ends_early = false;  ///< Slurm has sent its programs a signal at which they end
  std::string reason;
};

/// The nodes of a run: the job's own, and those of the companions that it holds.
class HeldCompanions {
 public:
  explicit HeldCompanions(std::vector<WorkerNode> basic);

  /// Returns the job's own nodes.
  const std::vector<WorkerNode>& basic() const noexcept { return basic_; }
  int basic_gpus() const;
  bool is_basic(int node) const;

  /// Adds a companion; gives each of its nodes an id.
  HeldCompanion& add(JobId job, std::vector<WorkerNode> nodes);
  std::vector<HeldCompanion>& held() noexcept { return held_; }
  const std::vector<HeldCompanion>& held() const noexcept { return held_; }
  std::vector<JobId> jobs() const;
  /// Returns nullptr if no such companion is held.
  HeldCompanion* find(JobId job);
  /// Returns nullptr if no companion that is held has this node.
  HeldCompanion* of_node(int node);

  /// Returns the basic nodes, then those of all companions.
  std::vector<WorkerNode> nodes() const;
  /// Returns the basic nodes, then those of companions that are up and do not go back.
  std::vector<WorkerNode> usable() const;

  /// Removes the companion from held(). Slurm has not ended it yet.
  void release(JobId job);
  bool is_releasing(JobId job) const { return releasing_.contains(job); }
  /// Removes and returns a companion that Slurm has ended; nullopt: it was not being released.
  std::optional<HeldCompanion> released(JobId job);

 private:
  const std::vector<WorkerNode> basic_;
  std::vector<HeldCompanion> held_;
  std::map<JobId, HeldCompanion> releasing_;
  int next_node_ = 0;
};

}  // namespace swell::launcher
