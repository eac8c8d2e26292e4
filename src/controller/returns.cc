// SPDX-License-Identifier: GPL-2.0-or-later
// Lent GPUs that go back for the state of their node or their job, whoever needs them.
#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "controller/companion_time.h"
#include "controller/controller.h"

namespace swell::controller {

void Controller::return_what_must(double now) {
  std::set<std::string_view> draining;
  for (const slurm::NodeRecord& node : snapshot_.nodes)
    if (node.draining) draining.insert(node.name);
  const std::time_t time = snapshot_.taken;
  for (const slurm::JobRecord& record : snapshot_.jobs) {
    const auto found = jobs_.find(record.id);
    if (found == jobs_.end()) continue;
    ElasticJob& job = found->second;
    const int grace_s = grace_of(job, parts_.config);
    const bool is_stopped = job.suspended_since && now >= *job.suspended_since + grace_s;
    for (Companion& companion : job.companions) {
      if (companion.leaving) continue;
      if (draining.contains(companion.node)) {
        reclaim(job, companion, now, "drain", "its node is drained");
      } else if (const slurm::ReservationRecord* held =
                     current_reservation(snapshot_, companion.node)) {
        // Made with flags=ignore_jobs: companions end before any other.
        reclaim(job, companion, now, "limit",
                fmt::format("reservation {} has begun on its node", held->name));
      } else if (is_stopped || (companion.suspended && !job.suspended_since)) {
        // Its processes are stopped: nobody there could act within a grace, and others wait for
        // workers of a companion that is suspended alone.
        leave(job, companion, now, "agent",
              is_stopped ? "Slurm has suspended its job" : "Slurm has suspended it", now);
        tell_shrink(job, companion, now);
      } else if (const auto [at, why] = end_of(companion, record);
                 at != 0 && at - time <= grace_s + kEndSlack_s) {
        reclaim(job, companion, now, "limit", fmt::format("it must end before its job: {}", why));
      } else continue;
      decide_due_ = true;
    }
  }
}

CompanionEnd Controller::end_of(const Companion& companion, const slurm::JobRecord& parent) const {
  CompanionEnd end;
  if (companion.ends != 0 && (parent.time_limit_min == 0 || companion.ends < parent.end_time - 60))
    end = {companion.ends, "its time limit"};
  if (const slurm::ReservationRecord* next =
          next_reservation(snapshot_, companion.node, snapshot_.taken))
    // A limit in whole minutes that was set for the reservation ends a little before it.
    if ((end.at == 0 && (parent.time_limit_min == 0 || next->start < parent.end_time)) ||
        next->start < end.at + 180)
      end = {end.at == 0 ? next->start : std::min(end.at, next->start),
             fmt::format("reservation {} begins on its node", next->name)};
  return end;
}

}  // namespace swell::controller
