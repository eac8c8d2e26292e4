// SPDX-License-Identifier: GPL-2.0-or-later
// Part of Controller: records of events for the meters and the history.
#include <limits>
#include <set>
#include <string_view>

#include "controller/controller.h"

namespace swell::controller {

namespace {

/// Returns whether the history keeps this kind of EventLog's events. It does not keep events of the
/// controller itself, nor those that matter for a short time only.
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
                                                    "reclaim",
                                                    "type-move-begun",
                                                    "type-move-called-off",
                                                    "type-moved"};
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

}  // namespace

void Controller::heard(const std::string& kind, const Json& line) {
  loop_.meters.heard(kind, line);
  if (loop_.history == nullptr || !is_kept(kind)) return;
  history::Event event;
  event.job = static_cast<JobId>(number_in(line, "job"));
  event.kind = kind;
  if (kind == "job-started") {
    const auto job = loop_.jobs.find(event.job);
    if (job == loop_.jobs.end()) return;
    loop_.history->add(history::Job{job->second.id, static_cast<std::int64_t>(job->second.started),
                                    job->second.uid, job->second.spec.text(),
                                    job->second.basic_gpus});
    event.once = kind;
  }
  const Json companion = line.at("companion");
  event.companion = static_cast<JobId>(number_in(companion, "id"));
  event.node = text_in(is_object(companion) ? companion : line, "node");
  event.gpus = static_cast<int>(number_in(is_object(companion) ? companion : line, "gpus"));
  event.reason = text_in(line, "reason");
  if (kind == "grant-refused") event.reason = text_in(line, "kind") + ": " + event.reason;
  // Slurm's records show it again after a restart.
  if (const std::string grant = text_in(line, "grant"); !grant.empty()) event.once = kind + grant;
  Json rest = Json::object();
  static const std::set<std::string_view> kOwnColumn = {"time", "event", "job",    "companion",
                                                        "node", "gpus",  "reason", "grant"};
  for (const auto& [key, value] : members(line))
    if (!kOwnColumn.contains(key)) rest.set(key.c_str(), value);
  if (rest.size() > 0) event.details = rest.dump();
  loop_.history->add(std::move(event));
}

}  // namespace swell::controller
