// SPDX-License-Identifier: GPL-2.0-or-later
// Part of Controller: records for the history, and queries of it.
#include <fmt/format.h>
#include <limits>
#include <set>
#include <string_view>
#include <unistd.h>

#include "controller/controller.h"
#include "core/perf/coefficients.h"
#include "core/saturating.h"

namespace swell::controller {

namespace {

/// Bytes of a pause's parts, as an agent reports them.
constexpr std::size_t kMaxParts = 4096;

/// Events of EventLog that the history has too; others are of the controller or pass by.
bool is_kept(std::string_view kind) {
  static const std::set<std::string_view> kKinds = {"agent-left",
                                                    "agent-lost",
                                                    "asked",
                                                    "cancel",
                                                    "change-cost",
                                                    "companion-ended",
                                                    "companion-excessive",
                                                    "companion-lost",
                                                    "companion-preempted",
                                                    "companion-started",
                                                    "deadline-missed",
                                                    "decided-by",
                                                    "events-left-out",
                                                    "grant",
                                                    "grant-expired",
                                                    "grant-refused",
                                                    "job-ended",
                                                    "job-started",
                                                    "model-refused",
                                                    "no-growth",
                                                    "plan",
                                                    "profile-refused",
                                                    "reclaim"};
  return kKinds.contains(kind);
}

std::string text_in(const Json& json, const char* key) {
  const auto text = json.string_at(key);
  return text ? *text : std::string();
}

std::int64_t number_in(const Json& json, const char* key) {
  const auto number = json.integer_at(key, 0, std::numeric_limits<std::int64_t>::max());
  return number ? *number : 0;
}

double seconds_in(const Json& json, const char* key) {
  const auto seconds = json.number_at(key, 0, 1e9);
  return seconds ? *seconds : 0;
}

}  // namespace

void Controller::heard(const std::string& kind, const Json& line) {
  meters_.heard(kind, line);
  if (parts_.history == nullptr || !is_kept(kind)) return;
  history::Event event;
  event.job = static_cast<JobId>(number_in(line, "job"));
  event.kind = kind;
  if (kind == "job-started") {
    const auto job = jobs_.find(event.job);
    if (job == jobs_.end()) return;
    parts_.history->add(history::Job{job->second.id, static_cast<std::int64_t>(job->second.started),
                                     job->second.uid, job->second.spec.text(),
                                     job->second.basic_gpus});
    event.once = kind;
  }
  const Json companion = line.at("companion");
  event.companion = static_cast<JobId>(number_in(companion, "id"));
  event.node = text_in(companion.is_object() ? companion : line, "node");
  event.gpus = static_cast<int>(number_in(companion.is_object() ? companion : line, "gpus"));
  event.reason = text_in(line, "reason");
  if (kind == "grant-refused") event.reason = text_in(line, "kind") + ": " + event.reason;
  // Slurm's records show it again after a restart.
  if (const std::string grant = text_in(line, "grant"); !grant.empty()) event.once = kind + grant;
  Json rest = Json::object();
  static const std::set<std::string_view> kOwnColumn = {"time", "event", "job",    "companion",
                                                        "node", "gpus",  "reason", "grant"};
  for (const auto& [key, value] : line.members())
    if (!kOwnColumn.contains(key)) rest.set(key.c_str(), value);
  if (rest.size() > 0) event.details = rest.dump();
  parts_.history->add(std::move(event));
}

void Controller::keep_profile(const ElasticJob& job) {
  if (parts_.history == nullptr) return;
  history::Profile profile;
  profile.job = job.id;
  profile.epoch = job.report->epoch;
  profile.gpus = job.training.gpus();
  profile.samples_per_s = job.training.rate();
  if (const auto& speedup = job.training.speedup()) {
    profile.predicted = speedup->predicted;
    profile.measured = speedup->measured;
  }
  profile.profile = job.report->profile.dump();
  if (const auto coefficients = job.training.coefficients(); coefficients && machines())
    profile.coefficients = perf::to_json(*coefficients, *machines()).dump();
  parts_.history->add(std::move(profile));
}

void Controller::take_scales(const std::map<JobId, planner::NamedTable>& scales) {
  for (const auto& [id, table] : scales) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || table.rows.empty() || job->second.scale == table) continue;
    job->second.scale = table;
    if (parts_.history != nullptr) parts_.history->add(history::Scale{id, table.to_json().dump()});
  }
}

void Controller::take_kept_scales() {
  for (const history::Scale& kept : parts_.history->take_scales()) {
    const auto job = jobs_.find(kept.job);
    if (job == jobs_.end() || !job->second.scale.rows.empty()) continue;
    if (auto table = planner::NamedTable::parse(kept.table)) job->second.scale = *std::move(table);
    else
      events_.say(
          fmt::format("job {}: its kept table is not used: {}", kept.job, table.error().message()));
  }
}

void Controller::handle(ElasticJob& job, const control::Switched& switched, double now) {
  if (!events_.may_say(job.id, now)) return;
  const Json parts = switched.parts.dump().size() <= kMaxParts ? switched.parts : Json::object();
  const bool is_live = switched.mode == "live";
  events_.event("pause", {{"job", job.id},
                          {"mode", is_live ? "live" : "restart"},
                          {"stopped_s", switched.stopped_s},
                          {"workers", switched.workers},
                          {"parts", parts}});
  if (const auto seen_s = job.ordered.take_word(switched.epoch, switched.stopped_s, now)) {
    const auto way = is_live ? redeploy::Measured::live : redeploy::Measured::restart;
    const double delay_s =
        is_live ? seconds_in(parts, "prepare_s") + seconds_in(parts, "wait_s") : 0;
    const redeploy::Cost cost{std::min(delay_s, *seen_s - switched.stopped_s), switched.stopped_s};
    const auto at = static_cast<double>(snapshot_.taken);
    job.pauses.changed(way, cost, at);
    saved_.pauses.changed(static_cast<std::int64_t>(job.uid), way, cost, at);
    remember(job);
  }
  if (parts_.history == nullptr) return;
  history::Pause pause;
  pause.job = job.id;
  pause.is_live = is_live;
  pause.epoch = switched.epoch;
  pause.workers = switched.workers;
  pause.stopped_s = switched.stopped_s;
  pause.prepare_s = seconds_in(parts, "prepare_s");
  pause.wait_s = seconds_in(parts, "wait_s");
  pause.quiesce_s = seconds_in(parts, "quiesce_s");
  pause.move_s = seconds_in(parts, "move_s");
  pause.commit_s = seconds_in(parts, "commit_s");
  if (const Json bytes = parts.at("bytes"); bytes.is_object()) {
    for (const auto& [path, count] : bytes.members())
      pause.bytes_moved = saturating_sum(pause.bytes_moved, number_in(bytes, path.c_str()));
    pause.bytes_by_path = bytes.dump();
  }
  parts_.history->add(std::move(pause));
}

void Controller::ask_history(const control::Server::Event& event, const control::Ask& ask,
                             double now) {
  if (parts_.history == nullptr)
    return refuse(event.connection,
                  history_is_built_in() ? "no history is kept: HistoryDays=0 in swell.conf"
                                        : "no history is kept: this Swell was built without SQLite",
                  now);
  History::Question question;
  question.connection = event.connection;
  question.job = ask.job;
  if (event.uid != 0 && event.uid != geteuid()) question.uid = event.uid;
  question.after = ask.number;
  question.last = ask.last;
  question.with_profiles = ask.profiles;
  if (!parts_.history->ask(question))
    refuse(event.connection, "too many ask for history just now: ask again", now);
}

void Controller::answer_history(double now) {
  if (parts_.history == nullptr) return;
  take_kept_scales();
  for (History::Reply& reply : parts_.history->take()) {
    if (!reply.found) {
      refuse(reply.connection, reply.found.error().message(), now);
      continue;
    }
    sessions_.send(reply.connection, control::Answer{{}, std::move(*reply.found)});
    sessions_.close(reply.connection);
  }
}

}  // namespace swell::controller
