// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/companion_time.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <strings.h>

namespace swell::controller {

namespace {

/// MaxWall of the QOS in minutes; 0: none.
std::uint32_t max_wall_min(const slurm::Snapshot& snapshot, const std::string& qos) {
  for (const auto& [name, minutes] : snapshot.qos_max_time_min)
    if (strcasecmp(name.c_str(), qos.c_str()) == 0) return minutes;
  return 0;
}

}  // namespace

const slurm::ReservationRecord* next_reservation(const slurm::Snapshot& snapshot,
                                                 const std::string& node, std::time_t now) {
  const slurm::ReservationRecord* next = nullptr;
  for (const slurm::ReservationRecord& each : snapshot.reservations)
    if (each.start > now && (next == nullptr || each.start < next->start) &&
        std::binary_search(each.nodes.begin(), each.nodes.end(), node))
      next = &each;
  return next;
}

const slurm::ReservationRecord* current_reservation(const slurm::Snapshot& snapshot,
                                                    const std::string& node) {
  for (const slurm::ReservationRecord& each : snapshot.reservations)
    if (each.start <= snapshot.taken && each.end > snapshot.taken &&
        std::binary_search(each.nodes.begin(), each.nodes.end(), node))
      return &each;
  return nullptr;
}

const std::string& companion_partition(const slurm::JobRecord& parent, const Config& config) {
  return config.expansion_partition.empty() ? parent.partition : config.expansion_partition;
}

CompanionEnd end_anywhere(const slurm::Snapshot& snapshot, const slurm::JobRecord& parent,
                          const Config& config, std::time_t now) {
  CompanionEnd end;
  if (parent.time_limit_min > 0) end.at = parent.end_time;
  const auto limit = [&](std::uint32_t minutes, const char* what, const std::string& name) {
    const std::time_t at = now + 60 * static_cast<std::time_t>(minutes);
    if (minutes > 0 && (end.at == 0 || at < end.at)) end = {at, fmt::format("{} {}", what, name)};
  };
  const std::string& name = companion_partition(parent, config);
  for (const slurm::PartitionRecord& partition : snapshot.partitions) {
    if (partition.name != name) continue;
    limit(partition.max_time_min, "MaxTime of partition", name);
    limit(max_wall_min(snapshot, partition.qos), "MaxWall of QOS", partition.qos);
  }
  limit(max_wall_min(snapshot, config.expansion_qos), "MaxWall of QOS", config.expansion_qos);
  return end;
}

CompanionEnd end_of_companion(const slurm::Snapshot& snapshot, const slurm::JobRecord& parent,
                              const Config& config, const std::string& node, std::time_t now) {
  CompanionEnd end = end_anywhere(snapshot, parent, config, now);
  if (const slurm::ReservationRecord* next = next_reservation(snapshot, node, now))
    if (end.at == 0 || next->start < end.at)
      end = {next->start, fmt::format("reservation {}", next->name)};
  return end;
}

int grace_of(const ElasticJob& job, const Config& config) noexcept {
  return config.max_grace_s > 0 ? std::min(job.spec.grace_s, config.max_grace_s) : job.spec.grace_s;
}

double least_time_s(const Config& config, const ElasticJob& job) {
  return config.min_remaining_s + grace_of(job, config) + kEndSlack_s + 60;
}

CompanionEnd end_of(const Companion& companion, const slurm::JobRecord& parent,
                    const slurm::Snapshot& snapshot) {
  CompanionEnd end;
  if (companion.ends != 0 && (parent.time_limit_min == 0 || companion.ends < parent.end_time - 60))
    end = {companion.ends, "its time limit"};
  if (const slurm::ReservationRecord* next =
          next_reservation(snapshot, companion.node, snapshot.taken))
    // A limit in whole minutes that was set for the reservation ends a little before it.
    if ((end.at == 0 && (parent.time_limit_min == 0 || next->start < parent.end_time)) ||
        next->start < end.at + 180)
      end = {end.at == 0 ? next->start : std::min(end.at, next->start),
             fmt::format("reservation {} begins on its node", next->name)};
  return end;
}

}  // namespace swell::controller
