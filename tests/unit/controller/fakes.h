// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/server.h"
#include "controller/admission.h"
#include "slurm/slurm_api.h"

/// A Slurm and a server that do what a test says, so that the controller's own decisions are seen.
namespace swell::test {

using controller::JobId;

class FakeSlurm : public slurm::SlurmApi {
 public:
  slurm::Snapshot now;
  std::vector<JobId> cancelled;
  /// Records that load_job() shows in place of the snapshot's.
  std::map<JobId, slurm::JobRecord> fresh;
  bool answers = true;           ///< load() does
  bool answers_for_jobs = true;  ///< load_job() does
  bool refuses_cancel = false;
  int asked_for_jobs = 0;  ///< by load_job()
  int comments_written = 0, forgotten = 0;
  bool refuses_comments = false;
  std::map<JobId, int>
      comments_wait;  ///< jobs whose comment cannot be written yet: how often tried
  std::vector<std::pair<JobId, std::string>> told;

  explicit FakeSlurm(int nodes) {
    now.taken = 1'000'000;
    slurm::PartitionRecord partition;
    partition.name = "train";
    partition.up = true;
    for (int i = 1; i <= nodes; ++i) {
      slurm::NodeRecord node;
      node.name = "node" + std::to_string(i);
      node.usable = true;
      node.gpus = {{8, "h100", ""}};
      node.cpus = 64;
      node.memory_mib = 512000;
      partition.nodes.push_back(node.name);
      now.nodes.push_back(node);
    }
    now.partitions.push_back(partition);
  }

  slurm::JobRecord& run(JobId id, const std::string& node, int gpus, const std::string& comment) {
    slurm::JobRecord job;
    job.id = id;
    job.uid = 1000;
    job.partition = "train";
    job.phase = slurm::JobPhase::running;
    job.admin_comment = comment;
    job.nodes = {node};
    job.gpus = {{node, {gpus, "h100", "0-" + std::to_string(gpus - 1)}}};
    job.cpus = 8 * gpus;
    job.memory_mib = 1000 * gpus;
    job.qos = comment.find("parent=") != std::string::npos ? "expansion" : "normal";
    job.start_time = 1;
    return now.jobs.emplace_back(job);
  }
  slurm::JobRecord& run_elastic(JobId id, const std::string& node, int gpus,
                                const std::string& more = "") {
    return run(id, node, gpus,
               "swell[elastic=max=4x,grace=20 basic=" + std::to_string(gpus) + more + "]");
  }
  slurm::JobRecord& wait(JobId id, int gpus) {
    slurm::JobRecord job;
    job.id = id;
    job.partition = "train";
    job.phase = slurm::JobPhase::pending;
    job.waiting = slurm::Waiting::for_resources;
    job.priority = 100;
    job.gpus_per_node = {gpus, "h100", ""};
    return now.jobs.emplace_back(job);
  }
  slurm::JobRecord* find(JobId id) {
    for (slurm::JobRecord& job : now.jobs)
      if (job.id == id) return &job;
    return nullptr;
  }
  void end(JobId id) {
    std::erase_if(now.jobs, [&](const slurm::JobRecord& job) { return job.id == id; });
  }

  Result<std::optional<slurm::Snapshot>> load() override {
    if (!answers) return Error("slurm_load_jobs: Unable to contact slurm controller");
    return std::optional<slurm::Snapshot>(now);
  }
  void forget() override { ++forgotten; }
  Result<std::optional<slurm::JobRecord>> load_job(JobId job) override {
    ++asked_for_jobs;
    if (!answers_for_jobs) return Error("slurm_load_job: Unable to contact slurm controller");
    if (const auto found = fresh.find(job); found != fresh.end())
      return std::optional<slurm::JobRecord>(found->second);
    const slurm::JobRecord* record = find(job);
    return record != nullptr ? std::optional<slurm::JobRecord>(*record) : std::nullopt;
  }
  Result<void> cancel(JobId job) override {
    if (refuses_cancel) return Error("slurm_kill_job: Access/permission denied");
    cancelled.push_back(job);
    end(job);
    return {};
  }
  Result<void> tell(JobId job, const std::string& line) override {
    told.emplace_back(job, line);
    return {};
  }
  Result<bool> set_admin_comment(JobId job, const std::string& text) override {
    ++comments_written;
    if (const auto waits = comments_wait.find(job); waits != comments_wait.end()) {
      ++waits->second;
      return false;
    }
    if (refuses_comments) return Error("Unspecified error");
    if (slurm::JobRecord* record = find(job)) record->admin_comment = text;
    return true;
  }
  std::vector<std::pair<JobId, std::string>> typed;  ///< set_gpu_type()
  bool refuses_types = false, changes_types = true, begin_at_once = false;
  std::vector<JobId> requeued;
  bool refuses_requeue = false;
  /// The test has it wait when it likes.
  Result<void> requeue(JobId job) override {
    if (refuses_requeue) return Error("slurm_requeue: Requested operation is presently disabled");
    requeued.push_back(job);
    return {};
  }
  bool changes_gpu_types() const noexcept override { return changes_types; }
  Result<bool> set_gpu_type(JobId job, const std::string& type, const std::string& admin_comment,
                            bool at_once) override {
    typed.emplace_back(job, type);
    begin_at_once = at_once;
    if (refuses_types) return Error("Requested operation not supported");
    if (slurm::JobRecord* record = find(job)) {
      record->admin_comment = admin_comment;
      (record->gpus_in_all.count > 0 ? record->gpus_in_all : record->gpus_per_node).type = type;
    }
    return true;
  }
};

class FakeServer final : public control::Server {
 public:
  std::vector<Event> events;
  std::vector<std::pair<control::ConnectionId, control::Message>> sent;
  std::vector<control::ConnectionId> closed;

  std::uint16_t port() const override { return 1; }
  std::vector<Event> take() override { return std::exchange(events, {}); }
  void send(control::ConnectionId connection, control::Message message) override {
    sent.emplace_back(connection, std::move(message));
  }
  void close(control::ConnectionId connection) override { closed.push_back(connection); }

  void says(control::ConnectionId connection, control::Message message, uid_t uid = 1000) {
    events.push_back({Event::Kind::message, connection, uid, "test", std::move(message)});
  }
  /// Something that cannot be read.
  void says_wrong(control::ConnectionId connection, const std::string& reason) {
    events.push_back({Event::Kind::dropped, connection, 1000, "test", control::Refused{reason}});
  }
  void hangs_up(control::ConnectionId connection) {
    events.push_back({Event::Kind::closed, connection, 1000, "test", control::Message{}});
  }
  /// How many messages of a type were sent.
  template <typename T>
  std::size_t count() const {
    return static_cast<std::size_t>(std::count_if(sent.begin(), sent.end(), [](const auto& one) {
      return std::holds_alternative<T>(one.second);
    }));
  }
  /// The last message of a type that was sent, or null.
  template <typename T>
  const T* last() const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it)
      if (const T* message = std::get_if<T>(&it->second)) return message;
    return nullptr;
  }
};

}  // namespace swell::test
