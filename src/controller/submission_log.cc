// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/submission_log.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "controller/companion_identity.h"
#include "core/count_of.h"

namespace swell::controller {

namespace {

constexpr std::int64_t kMaxTime = std::numeric_limits<std::int32_t>::max() * std::int64_t{64};

/// Returns the GPUs that a job of this record holds or asks for, in all.
int gpus_of(const slurm::JobRecord& record) {
  if (const int held = record.gpu_count(); held > 0) return held;
  const auto by_node = std::int64_t{record.gpus_per_node.count} * record.min_nodes;
  return static_cast<int>(std::min<std::int64_t>(
      std::max<std::int64_t>(record.gpus_in_all.count, by_node), std::numeric_limits<int>::max()));
}

}  // namespace

void SubmissionLog::look(const slurm::Snapshot& snapshot, double window_s, int least_gpus) {
  const auto oldest = snapshot.taken - static_cast<std::time_t>(window_s);
  std::erase_if(started_, [&](const auto& job) { return job.second.submitted <= oldest; });
  waiting_.clear();
  for (const slurm::JobRecord& record : snapshot.jobs) {
    if (record.phase == slurm::JobPhase::ended || record.submit_time <= oldest) continue;
    const Entry entry{record.submit_time, gpus_of(record), record.pending_tasks};
    if (entry.gpus < least_gpus || identity_in(record)) continue;
    if (record.phase != slurm::JobPhase::pending)
      started_.try_emplace(record.id, Entry{entry.submitted, entry.gpus, 1});
    else if (record.waiting == slurm::Waiting::for_resources && !started_.contains(record.id))
      waiting_.push_back(entry);
  }
  drop_oldest();
}

void SubmissionLog::drop_oldest() {
  if (started_.size() <= policy::kMaxSubmissions) return;
  std::vector<std::time_t> times;
  for (const auto& [id, entry] : started_) times.push_back(entry.submitted);
  const auto first =
      times.begin() + static_cast<std::ptrdiff_t>(times.size() - policy::kMaxSubmissions);
  std::nth_element(times.begin(), first, times.end());
  std::erase_if(started_, [&](const auto& job) { return job.second.submitted < *first; });
  while (started_.size() > policy::kMaxSubmissions)  // several of that very second
    started_.erase(std::find_if(started_.begin(), started_.end(),
                                [&](const auto& job) { return job.second.submitted == *first; }));
}

std::vector<policy::Submission> SubmissionLog::on_clock(double now_s, std::time_t now) const {
  std::vector<policy::Submission> all;
  const auto add = [&](const Entry& entry) {
    all.push_back({now_s - static_cast<double>(now - entry.submitted), entry.gpus, entry.tasks});
  };
  for (const auto& [id, entry] : started_) add(entry);
  for (const Entry& entry : waiting_) add(entry);
  std::sort(all.begin(), all.end(), [](const policy::Submission& a, const policy::Submission& b) {
    return a.submitted_s < b.submitted_s;
  });
  if (all.size() > policy::kMaxSubmissions)
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(policy::kMaxSubmissions));
  return all;
}

Json SubmissionLog::to_json() const {
  Json json = Json::array();
  for (const auto& [id, entry] : started_) {
    Json one = Json::array();
    for (const std::int64_t value :
         {static_cast<std::int64_t>(id), static_cast<std::int64_t>(entry.submitted),
          static_cast<std::int64_t>(entry.gpus)})
      one.append(value);
    json.append(one);
  }
  return json;
}

Result<SubmissionLog> SubmissionLog::from_json(const Json& json) {
  if (!is_array(json) || json.size() > policy::kMaxSubmissions)
    return Error(fmt::format("it must be a list of at most {}",
                             count_of(policy::kMaxSubmissions, "submission")));
  SubmissionLog log;
  for (const Json& one : json.items()) {
    const std::vector<Json> parts = is_array(one) ? one.items() : std::vector<Json>{};
    const auto is_number = [&](std::size_t i, std::int64_t min, std::int64_t max) {
      const json_int_t value = json_integer_value(parts[i].get());
      return is_integer(parts[i]) && value >= min && value <= max;
    };
    if (parts.size() != 3 || !is_number(0, 1, std::numeric_limits<control::JobId>::max()) ||
        !is_number(1, 0, kMaxTime) || !is_number(2, 1, std::numeric_limits<int>::max()))
      return Error(fmt::format("{} is not [job, submitted, gpus]", one.dump()));
    log.started_[static_cast<control::JobId>(json_integer_value(parts[0].get()))] = {
        json_integer_value(parts[1].get()), static_cast<int>(json_integer_value(parts[2].get())),
        1};
  }
  return log;
}

}  // namespace swell::controller
