// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/state_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <type_traits>
#include <unistd.h>

#include "control/write_all.h"
#include "core/json.h"
#include "core/number.h"

namespace swell::controller {

namespace {

/// Version of the file; older ones are read too.
constexpr std::int64_t kVersion = 3;
constexpr int kAllDigits = 17;  // a number that is read again is the same

Error failure(const std::string& path) {
  return Error(fmt::format("{}: {}", path, std::strerror(errno)));
}

Result<void> write_synced(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return failure(path);
  const bool good = control::write_all(fd, text) && ::fsync(fd) == 0;
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
  if (!is_integer(json) || id < 1 || id > kMaxJobId)
    return Error(fmt::format("{} is not a job id", json.dump()));
  IssuedGrant grant;
  grant.parent = static_cast<control::JobId>(id);
  return grant;
}

Result<IssuedGrant> grant_from(const Json& json) {
  if (!is_object(json)) return Error("it must be an object");
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
  if (!job.owners_plan.empty()) json.set("owners_plan", array_of(job.owners_plan));
  if (!job.pauses.empty()) json.set("pauses", job.pauses.to_json());
  if (job.training.is_known()) json.set("training", job.training.to_json());
  return json;
}

/// Parts of the file that cannot be read: the first of each kind is named.
class Dropped {
 public:
  void add(const char* kind, const Error& why) {
    Kind& seen = kinds_[kind];
    if (seen.count++ == 0) seen.first = why.message();
  }
  std::vector<std::string> sentences() const {
    std::vector<std::string> all;
    for (const auto& [kind, seen] : kinds_)
      all.push_back(fmt::format(
          "{} left out: {}{}", kind, seen.first,
          seen.count > 1 ? fmt::format(" (and {} more)", seen.count - 1) : std::string()));
    return all;
  }

 private:
  struct Kind {
    std::string first;
    std::size_t count = 0;
  };
  std::map<std::string, Kind> kinds_;
};

Result<std::vector<control::JobId>> companions_from(const Json& json) {
  std::vector<control::JobId> companions;
  for (const Json& companion : json.items()) {
    const json_int_t id = json_integer_value(companion.get());
    if (!is_integer(companion) || id < 1 || id > kMaxJobId)
      return Error(fmt::format("{} is not a job id", companion.dump()));
    companions.push_back(static_cast<control::JobId>(id));
  }
  return companions;
}

/// Sets `into` to what `read` makes of the member, where there is one.
template <typename T, typename Read>
void take(const Json& json, const char* key, const std::string& where, Read read, T& into,
          Dropped& dropped) {
  if (!json.has(key)) return;
  if (Result<T> value = read(json.at(key))) into = std::move(*value);
  else dropped.add(key, value.error().while_doing(where + key));
}

Result<SavedJob> job_from(const Json& json, const std::string& where, Dropped& dropped) {
  if (!is_object(json)) return Error("it must be an object");
  const auto started = json.integer_at("started", 0, std::numeric_limits<std::int64_t>::max());
  if (!started) return started.error();
  SavedJob job;
  job.started = *started;
  if (const auto paused = json.bool_at("paused")) job.paused = *paused;
  else dropped.add("paused", paused.error().while_doing(where + "paused"));
  if (const auto max = json.integer_at("max", 0, kMaxInt)) job.own_max = static_cast<int>(*max);
  else dropped.add("max", max.error().while_doing(where + "max"));
  take(json, "owners_plan", where, companions_from, job.owners_plan, dropped);
  take(json, "pauses", where, redeploy::Pauses::from_json, job.pauses, dropped);
  take(json, "training", where, JobTraining::from_json, job.training, dropped);
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
  if (Result<void> written = write_synced(fresh, pretty_text(json, kAllDigits)); !written)
    return written;
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return failure(path);
  return {};
}

Result<SavedState> load_state(const std::string& path, std::vector<std::string>* dropped) {
  std::ifstream in(path);
  if (!in && errno == ENOENT) return SavedState{};
  if (std::error_code no; std::filesystem::is_directory(path, no))
    errno = EISDIR, in.setstate(in.failbit);
  if (!in) return failure(path);
  std::ostringstream text;
  text << in.rdbuf();
  const Result<Json> json = Json::parse(text.str());
  if (!json) return json.error().while_doing(path);
  const Result<std::int64_t> version = json->integer_at("version", 1, kVersion);
  if (!version) return version.error().while_doing(path);
  SavedState state;
  const Json issued = json->at("issued");
  if (!is_object(issued)) return Error("\"issued\" must be an object").while_doing(path);
  for (const auto& [nonce, member] : members(issued)) {
    const Result<IssuedGrant> grant = *version == 1 ? parent_alone(member) : grant_from(member);
    if (!grant) return grant.error().while_doing(fmt::format("{}: grant {}", path, nonce));
    state.issued[nonce] = *grant;
  }
  if (*version < 3) return state;
  Dropped left_out;
  const Json jobs = json->at("jobs");
  if (!is_object(jobs)) left_out.add("jobs", Error("\"jobs\" must be an object"));
  for (const auto& [name, member] : members(jobs)) {
    const std::string where = fmt::format("job {}: ", name);
    const auto id = read_number<control::JobId>(name);
    auto job = id ? job_from(member, where, left_out)
                  : Result<SavedJob>(Error(fmt::format("\"{}\" is not a job id", name)));
    if (job) state.jobs[*id] = std::move(*job);
    else left_out.add("jobs", job.error().while_doing("job " + name));
  }
  // Newer than the version.
  take(*json, "health", "", NodeHealth::from_json, state.health, left_out);
  take(*json, "submissions", "", SubmissionLog::from_json, state.submissions, left_out);
  take(*json, "pauses", "", redeploy::ClusterPauses::from_json, state.pauses, left_out);
  if (dropped != nullptr) *dropped = left_out.sentences();
  return state;
}

}  // namespace swell::controller
