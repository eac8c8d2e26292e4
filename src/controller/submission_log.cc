// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/submission_log.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "controller/companion_identity.h"

namespace swell::controller {

namespace {

/// No array counts for more tasks: Slurm's own MaxArraySize is 4,000,001 at most.
constexpr int kMaxTasks = 4'000'001;
constexpr std::int64_t kMaxTime = std::numeric_limits<std::int32_t>::max() * std::int64_t{64};

/// Returns the GPUs that a job of this record holds or asks for, in all.
int gpus_of(const slurm::JobRecord& record) {
  if (const int held = record.gpu_count(); held > 0) return held;
  return std::max(record.gpus_in_all.count, record.gpus_per_node.count * record.min_nodes);
}

}  // namespace

void SubmissionLog::look(const slurm::Snapshot& snapshot, double window_s, int least_gpus) {
  const auto oldest = snapshot.taken - static_cast<std::time_t>(window_s);
  std::erase_if(jobs_, [&](const auto& job) { return job.second.submitted <= oldest; });
  std::map<control::JobId, Entry> seen;
  for (const slurm::JobRecord& record : snapshot.jobs) {
    if (record.phase == slurm::JobPhase::ended || record.submit_time <= oldest) continue;
    const int gpus = gpus_of(record);
    if (gpus < least_gpus || identity_in(record)) continue;
    Entry& entry = seen[record.array != 0 ? record.array : record.id];
    const int tasks = record.phase == slurm::JobPhase::pending ? record.pending_tasks : 1;
    const bool is_new = entry.gpus == 0;
    entry.gpus = std::max(entry.gpus, gpus);
    entry.submitted = is_new ? record.submit_time : std::min(entry.submitted, record.submit_time);
    entry.tasks = std::min((is_new ? 0 : entry.tasks) + tasks, kMaxTasks);
  }
  for (const auto& [id, entry] : seen) {
    const auto [known, is_new] = jobs_.try_emplace(id, entry);
    // Tasks of an array that ended are gone from the records.
    if (!is_new) known->second.tasks = std::max(known->second.tasks, entry.tasks);
  }
  while (jobs_.size() > kMax) drop_oldest();
}

void SubmissionLog::drop_oldest() {
  jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second.submitted < b.second.submitted;
  }));
}

std::vector<policy::Submission> SubmissionLog::on_clock(double now_s, std::time_t now) const {
  std::vector<policy::Submission> all;
  all.reserve(jobs_.size());
  for (const auto& [id, entry] : jobs_)
    all.push_back({now_s - static_cast<double>(now - entry.submitted), entry.gpus, entry.tasks});
  std::sort(all.begin(), all.end(), [](const policy::Submission& a, const policy::Submission& b) {
    return a.submitted_s < b.submitted_s;
  });
  return all;
}

Json SubmissionLog::to_json() const {
  Json json = Json::array();
  for (const auto& [id, entry] : jobs_) {
    Json one = Json::array();
    for (const std::int64_t value :
         {static_cast<std::int64_t>(id), static_cast<std::int64_t>(entry.submitted),
          static_cast<std::int64_t>(entry.gpus), static_cast<std::int64_t>(entry.tasks)})
      one.append(value);
    json.append(one);
  }
  return json;
}

Result<SubmissionLog> SubmissionLog::from_json(const Json& json) {
  if (!json.is_array() || json.size() > kMax)
    return Error(fmt::format("it must be a list of at most {} submissions", kMax));
  SubmissionLog log;
  for (const Json& one : json.items()) {
    const std::vector<Json> parts = one.is_array() ? one.items() : std::vector<Json>{};
    const auto number = [&](std::size_t i, std::int64_t min, std::int64_t max) {
      const json_int_t value = json_integer_value(parts[i].get());
      return parts[i].is_integer() && value >= min && value <= max;
    };
    if (parts.size() != 4 || !number(0, 1, std::numeric_limits<control::JobId>::max()) ||
        !number(1, 0, kMaxTime) || !number(2, 1, std::numeric_limits<int>::max()) ||
        !number(3, 1, kMaxTasks))
      return Error(fmt::format("{} is not [job, submitted, gpus, tasks]", one.dump()));
    log.jobs_[static_cast<control::JobId>(json_integer_value(parts[0].get()))] = {
        json_integer_value(parts[1].get()), static_cast<int>(json_integer_value(parts[2].get())),
        static_cast<int>(json_integer_value(parts[3].get()))};
  }
  return log;
}

}  // namespace swell::controller
