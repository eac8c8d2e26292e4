// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <string>

#include "controller/config.h"
#include "controller/elastic_job.h"
#include "slurm/records.h"

namespace swell::controller {

/// Returns the reservation that begins next on the node, after `now`; null: there is none.
const slurm::ReservationRecord* next_reservation(const slurm::Snapshot& snapshot,
                                                 const std::string& node, std::time_t now);

/// Returns a reservation that has begun on the node and not ended; null: there is none.
const slurm::ReservationRecord* current_reservation(const slurm::Snapshot& snapshot,
                                                    const std::string& node);

/// When a companion on a node ends at the latest, though its job may go on.
struct CompanionEnd {
  std::time_t at = 0;  ///< by Slurm's clock; 0: it has no limit
  std::string why;     ///< what limits it, for people; empty: the end of its job alone
};
/// Returns the end of a companion that would start at `now`: that of its job, but not beyond
/// MaxTime of its partition and MaxWall of its QOS, which Slurm would refuse.
CompanionEnd end_anywhere(const slurm::Snapshot& snapshot, const slurm::JobRecord& parent,
                          const Config& config, std::time_t now);
/// The same, and not after the beginning of a reservation of its node.
CompanionEnd end_of_companion(const slurm::Snapshot& snapshot, const slurm::JobRecord& parent,
                              const Config& config, const std::string& node, std::time_t now);

/// Returns when a companion has to end before its job, and why.
CompanionEnd end_of(const Companion& companion, const slurm::JobRecord& parent,
                    const slurm::Snapshot& snapshot);

/// Partition in which companions of the job run.
const std::string& companion_partition(const slurm::JobRecord& parent, const Config& config);

/// The job's grace, or MaxGrace where that is less.
int grace_of(const ElasticJob& job, const Config& config) noexcept;

/// Time before the end of a companion at which its GPUs are asked back, beyond the job's grace: the
/// controller looks once a round, and Slurm counts limits in minutes.
inline constexpr int kEndSlack_s = 20;

/// Minimum time of a companion that is worth its start, where it ends before its job:
/// LeastRemaining, and after that the job's grace. Limits are in whole minutes, so that one may be
/// lost.
double least_time_s(const Config& config, const ElasticJob& job);

}  // namespace swell::controller
