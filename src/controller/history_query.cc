// SPDX-License-Identifier: GPL-2.0-or-later
// Part of HistoryStore: queries.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>
#include <vector>

#include "controller/history_store.h"
#include "controller/sqlite_statement.h"

namespace swell::controller {

using namespace sqlite;

namespace {

/// Columns that event_in() reads; the rest of a statement follows.
constexpr const char* kEvents =
    "SELECT e.id, e.run, e.time, e.kind, e.companion, e.node, e.gpus, e.reason, e.details, "
    "p.generation, p.gpus, p.samples_per_s, p.predicted_speedup, p.measured_speedup, p.coefficients, "
    "w.mode, w.generation, w.workers, w.stopped_s, w.prepare_s, w.quiesce_s, w.move_s, w.commit_s, "
    "w.bytes_moved, w.bytes_by_path, s.scale_table, w.wait_s, p.profile FROM events e LEFT JOIN "
    "profiles p USING(id) LEFT JOIN pauses w USING(id) LEFT JOIN scales s USING(id) WHERE e.run ";
constexpr int kProfile = 27;

Json event_in(sqlite3_stmt* row) {
  Json one = Json::object({{"id", static_cast<std::int64_t>(sqlite3_column_int64(row, 0))}});
  set_number(one, "run", row, 1);
  set_number(one, "time", row, 2);
  set_text(one, "event", row, 3);
  set_number(one, "companion", row, 4);
  set_text(one, "node", row, 5);
  set_number(one, "gpus", row, 6);
  set_text(one, "reason", row, 7);
  set_document(one, "details", row, 8);
  const char* const kNumbers[] = {"generation", "gpus", "samples_per_s", "predicted_speedup",
                                  "measured_speedup"};
  for (int i = 0; i < 5; ++i) set_number(one, kNumbers[i], row, 9 + i);
  set_document(one, "coefficients", row, 14);
  set_text(one, "mode", row, 15);
  const char* const kParts[] = {"generation", "workers", "stopped_s", "prepare_s",
                                "quiesce_s",  "move_s",  "commit_s",  "bytes_moved"};
  for (int i = 0; i < 8; ++i) set_number(one, kParts[i], row, 16 + i);
  set_document(one, "bytes_by_path", row, 24);
  set_document(one, "table", row, 25);
  if (const Json table = one.at("table"); is_object(table)) {
    one.set("table", table.at("rows"));
    if (table.has("source")) one.set("source", table.at("source"));
  }
  set_number(one, "wait_s", row, 26);
  return one;
}

/// Adds a row's profile to its event where both fit.
void add_profile(Json& event, sqlite3_stmt* row, std::size_t max_bytes) {
  const int bytes = sqlite3_column_bytes(row, kProfile);
  if (bytes == 0) return;
  if (event.dump().size() + static_cast<std::size_t>(bytes) <= max_bytes)
    set_document(event, "profile", row, kProfile);
  else event.set("profile_bytes", bytes);
}

}  // namespace

Result<HistoryStore::Runs> HistoryStore::runs_of(control::JobId job,
                                                 std::optional<uid_t> uid) const {
  Runs found;
  bool is_anybodys = false;
  Statement runs(
      database_.get(),
      "SELECT run, started, uid, spec, basic_gpus, ended FROM jobs WHERE job = ? ORDER BY "
      "started");
  runs.with(std::int64_t{job});
  while (runs.next()) {
    sqlite3_stmt* row = runs.row();
    is_anybodys = true;
    if (uid && sqlite3_column_int64(row, 2) != static_cast<std::int64_t>(*uid)) continue;
    const auto run = static_cast<std::int64_t>(sqlite3_column_int64(row, 0));
    found.list += fmt::format("{}{}", found.list.empty() ? "" : ",", run);
    Json one = Json::object({{"run", run}});
    set_number(one, "started", row, 1);
    set_number(one, "uid", row, 2);
    set_text(one, "elastic", row, 3);
    set_number(one, "basic_gpus", row, 4);
    set_number(one, "ended", row, 5);
    found.json.append(std::move(one));
  }
  if (runs.has_failed()) return failure("it cannot be read");
  if (!found.list.empty()) return found;
  if (is_anybodys) return Error(fmt::format("job {} belongs to another user", job));
  Statement parents(database_.get(),
                    "SELECT job, uid FROM events JOIN jobs USING(run) WHERE companion = ? LIMIT 1");
  parents.with(std::int64_t{job});
  if (parents.next() &&
      (!uid || sqlite3_column_int64(parents.row(), 1) == static_cast<std::int64_t>(*uid)))
    return Error(fmt::format("job {0} was a companion of job {1}: swell history {1}", job,
                             std::int64_t{sqlite3_column_int64(parents.row(), 0)}));
  return Error(fmt::format("the history has no elastic job {}", job));
}

Result<Json> HistoryStore::of_job(control::JobId job, std::optional<uid_t> uid, std::int64_t after,
                                  std::size_t max_bytes, bool with_profiles) const {
  const Result<Runs> runs = runs_of(job, uid);
  if (!runs) return runs.error();
  Statement select(
      database_.get(),
      fmt::format("{} IN ({}) AND e.id > ? ORDER BY e.id", kEvents, runs->list).c_str());
  select.with(after);
  Json events = Json::array();
  std::size_t bytes = runs->json.dump().size();
  bool more = false;
  while (!more && select.next()) {
    Json one = event_in(select.row());
    if (with_profiles) add_profile(one, select.row(), max_bytes);
    const std::size_t size = one.dump().size();
    more = bytes + size > max_bytes && events.size() > 0;
    bytes += size;
    if (!more) events.append(std::move(one));
  }
  if (select.has_failed()) return failure("it cannot be read");
  return Json::object({{"job", job}, {"jobs", runs->json}, {"events", events}, {"more", more}});
}

Result<Json> HistoryStore::last_changes(control::JobId job, std::optional<uid_t> uid, int count,
                                        std::size_t max_bytes) const {
  const Result<Runs> runs = runs_of(job, uid);
  if (!runs) return runs.error();
  Statement select(database_.get(),
                   fmt::format("{} IN ({}) AND e.kind IN ('{}') ORDER BY e.id DESC LIMIT ?",
                               kEvents, runs->list, fmt::join(history::kGpuChanges, "','"))
                       .c_str());
  select.with(std::int64_t{count});
  std::vector<Json> newest;
  std::size_t bytes = runs->json.dump().size();
  while (select.next()) {
    newest.push_back(event_in(select.row()));
    bytes += newest.back().dump().size();
    if (bytes <= max_bytes) continue;
    newest.pop_back();
    break;
  }
  if (select.has_failed()) return failure("it cannot be read");
  Json events = Json::array();
  for (auto each = newest.rbegin(); each != newest.rend(); ++each) events.append(*each);
  return Json::object({{"job", job}, {"jobs", runs->json}, {"events", events}, {"more", false}});
}

std::vector<history::Scale> HistoryStore::scales_of(const std::vector<control::JobId>& jobs) const {
  std::vector<history::Scale> found;
  for (const control::JobId job : jobs) {
    Statement select(database_.get(),
                     "SELECT scale_table FROM scales JOIN events USING(id) WHERE run = ? ORDER BY "
                     "id DESC LIMIT 1");
    select.with(run_of(job));
    if (select.next()) found.push_back({job, text_of(select.row(), 0)});
  }
  return found;
}

}  // namespace swell::controller
