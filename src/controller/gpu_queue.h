// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/records.h"

namespace swell::controller {

/// When GPUs of each type come free: a list schedule of the running jobs until their time limits,
/// and of the pending ones in the queue's order. Lent GPUs mostly count as free, since they go back
/// to pending jobs. It estimates: CPUs and memory are compared with those of a whole node, and no
/// job is moved ahead of another one. Owns what it reads, so that it outlives the snapshot.
class GpuQueue {
 public:
  /// Time for which jobs without a time limit are taken to hold their GPUs.
  static constexpr double kForever_s = 366.0 * 24 * 3600;

  /// `all_pending`: whether pending jobs are placed in it. `asking`: GPUs that are lent to other
  /// jobs than this one do not come free; 0: all lent ones are free.
  GpuQueue(const slurm::Snapshot& snapshot, bool all_pending, slurm::JobId asking = 0);
  ~GpuQueue();

  /// GPU types of the usable nodes, without repeats, in the order of their names.
  const std::vector<std::string>& types() const noexcept { return types_; }

  /// Seconds until the pending `job` starts on GPUs of `type`, behind all that was placed; nothing
  /// where it never does. Its record's own type does not matter.
  std::optional<double> start_of(const slurm::JobRecord& job, std::string_view type);
  /// Reserves what start_of() found for `takes_s`; nothing where that found nothing.
  void place(const slurm::JobRecord& job, std::string_view type, double takes_s);
  /// The pending jobs of a snapshot that may start, in the order in which Slurm serves them.
  static std::vector<const slurm::JobRecord*> in_order(const slurm::Snapshot& snapshot);
  /// Places a pending job on the type that it asks for, or else on that where it starts first, for
  /// its time limit.
  void place_as_asked(const slurm::JobRecord& job);

 private:
  struct Place {
    std::vector<std::size_t> nodes;
    int gpus = 0;
    double start_s = 0;
  };
  std::optional<Place> find(const slurm::JobRecord& job, std::string_view type);

  struct Nodes;  ///< with what users write about them, read
  std::unique_ptr<Nodes> nodes_;
  std::vector<std::string> types_;
};

/// GPUs that a pending job asks for in all.
int gpus_asked_by(const slurm::JobRecord& pending) noexcept;
/// The GPU type that a pending job asks for; empty: any.
const std::string& type_asked_by(const slurm::JobRecord& pending) noexcept;

}  // namespace swell::controller
