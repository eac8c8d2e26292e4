// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/state_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <type_traits>
#include <unistd.h>

#include "core/json.h"
#include "core/number.h"

namespace swell::controller {

namespace {

/// Of the file; older ones are read too.
constexpr std::int64_t kVersion = 3;

Error failure(const std::string& path) {
  return Error(fmt::format("{}: {}", path, std::strerror(errno)));
}

Result<void> write_synced(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return failure(path);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  const bool good = done == text.size() && ::fsync(fd) == 0;
  const Error problem = failure(path);
  ::close(fd);
  if (!good) return problem;
  return {};
}

constexpr std::int64_t kMaxJobId = std::numeric_limits<control::JobId>::max();
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

/// Version 1 kept the parent's id alone.
Result<IssuedGrant> parent_alone(const Json& json) {
  const json_int_t id = json_integer_value(json.get());
  if (!json.is_integer() || id < 1 || id > kMaxJobId)
    return Error(fmt::format("{} is no job id", json.dump()));
  IssuedGrant grant;
  grant.parent = static_cast<control::JobId>(id);
  return grant;
}

Result<IssuedGrant> grant_from(const Json& json) {
  if (!json.is_object()) return Error("it must be an object");
  IssuedGrant grant;
  std::optional<Error> problem;
  auto number = [&](const char* key, auto& into, std::int64_t min, std::int64_t max) {
    const Result<std::int64_t> read = json.integer_at(key, min, max);
    if (!read && !problem) problem = read.error();
    if (read) into = static_cast<std::remove_reference_t<decltype(into)>>(*read);
  };
  auto text = [&](const char* key, std::string& into) {
    Result<std::string> read = json.string_at(key);
    if (!read && !problem) problem = read.error();
    if (read) into = std::move(*read);
  };
  number("parent", grant.parent, 1, kMaxJobId);
  text("node", grant.node);
  text("gpu_type", grant.gpu_type);
  text("partition", grant.partition);
  text("qos", grant.qos);
  number("gpus", grant.gpus, 0, kMaxInt);
  number("workers", grant.workers, 0, kMaxInt);
  number("cpus", grant.cpus, 0, kMaxInt);
  number("memory_mib", grant.memory_mib, 0, std::numeric_limits<std::int64_t>::max());
  if (problem) return *problem;
  return grant;
}

Json to_json(const SavedJob& job) {
  Json json =
      Json::object({{"started", job.started}, {"paused", job.paused}, {"max", job.own_max}});
  if (!job.owners_plan.empty()) json.set("owners_plan", Json::array_of(job.owners_plan));
  if (!job.pauses.empty()) json.set("pauses", job.pauses.to_json());
  if (job.training.is_known()) json.set("training", job.training.to_json());
  return json;
}

Result<SavedJob> job_from(const Json& json) {
  if (!json.is_object()) return Error("it must be an object");
  const auto started = json.integer_at("started", 0, std::numeric_limits<std::int64_t>::max());
  const auto max = json.integer_at("max", 0, kMaxInt);
  const auto paused = json.bool_at("paused");
  if (!started) return started.error();
  if (!max) return max.error();
  if (!paused) return paused.error();
  SavedJob job{*started, {}, *paused, static_cast<int>(*max), {}, {}};
  if (json.has("owners_plan")) {
    for (const Json& companion : json.at("owners_plan").items()) {
      const json_int_t id = json_integer_value(companion.get());
      if (!companion.is_integer() || id < 1 || id > kMaxJobId)
        return Error(fmt::format("owners_plan: {} is no job id", companion.dump()));
      job.owners_plan.push_back(static_cast<control::JobId>(id));
    }
  }
  if (json.has("pauses")) {
    auto pauses = redeploy::Pauses::from_json(json.at("pauses"));
    if (!pauses) return pauses.error().while_doing("pauses");
    job.pauses = std::move(*pauses);
  }
  if (!json.has("training")) return job;
  auto training = JobTraining::from_json(json.at("training"));
  if (!training) return training.error().while_doing("training");
  job.training = std::move(*training);
  return job;
}

}  // namespace

Result<void> save_state(const std::string& path, const SavedState& state) {
  Json issued = Json::object();
  for (const auto& [nonce, grant] : state.issued)
    issued.set(nonce.c_str(), Json::object({{"parent", grant.parent},
                                            {"node", grant.node},
                                            {"gpu_type", grant.gpu_type},
                                            {"partition", grant.partition},
                                            {"qos", grant.qos},
                                            {"gpus", grant.gpus},
                                            {"workers", grant.workers},
                                            {"cpus", grant.cpus},
                                            {"memory_mib", grant.memory_mib}}));
  Json jobs = Json::object();
  for (const auto& [id, job] : state.jobs) jobs.set(std::to_string(id).c_str(), to_json(job));
  const Json json = Json::object({{"version", kVersion},
                                  {"issued", issued},
                                  {"jobs", jobs},
                                  {"health", state.health.to_json()},
                                  {"submissions", state.submissions.to_json()},
                                  {"pauses", state.pauses.to_json()}});
  const std::string fresh = path + ".new";
  if (Result<void> written = write_synced(fresh, json.dump_pretty()); !written) return written;
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return failure(path);
  return {};
}

Result<SavedState> load_state(const std::string& path) {
  std::ifstream in(path);
  if (!in && errno == ENOENT) return SavedState{};
  if (!in) return failure(path);
  std::ostringstream text;
  text << in.rdbuf();
  const Result<Json> json = Json::parse(text.str());
  if (!json) return json.error().while_doing(path);
  const Result<std::int64_t> version = json->integer_at("version", 1, kVersion);
  if (!version) return version.error().while_doing(path);
  SavedState state;
  const Json issued = json->at("issued");
  if (!issued.is_object()) return Error("\"issued\" must be an object").while_doing(path);
  for (const auto& [nonce, member] : issued.members()) {
    const Result<IssuedGrant> grant = *version == 1 ? parent_alone(member) : grant_from(member);
    if (!grant) return grant.error().while_doing(fmt::format("{}: grant {}", path, nonce));
    state.issued[nonce] = *grant;
  }
  if (*version < 3) return state;
  const Json jobs = json->at("jobs");
  if (!jobs.is_object()) return Error("\"jobs\" must be an object").while_doing(path);
  for (const auto& [name, member] : jobs.members()) {
    const auto id = read_number<control::JobId>(name);
    if (!id) return Error(fmt::format("\"{}\" is no job id", name)).while_doing(path);
    auto job = job_from(member);
    if (!job) return job.error().while_doing(fmt::format("{}: job {}", path, *id));
    state.jobs[*id] = std::move(*job);
  }
  if (json->has("health")) {  // newer than the version, as what follows
    auto health = NodeHealth::from_json(json->at("health"));
    if (!health) return health.error().while_doing(path + ": health");
    state.health = std::move(*health);
  }
  if (json->has("submissions")) {
    auto submissions = SubmissionLog::from_json(json->at("submissions"));
    if (!submissions) return submissions.error().while_doing(path + ": submissions");
    state.submissions = std::move(*submissions);
  }
  if (json->has("pauses")) {
    auto pauses = redeploy::ClusterPauses::from_json(json->at("pauses"));
    if (!pauses) return pauses.error().while_doing(path + ": pauses");
    state.pauses = std::move(*pauses);
  }
  return state;
}

}  // namespace swell::controller
