// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/history_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include "controller/sqlite_statement.h"

namespace swell::controller {

using namespace sqlite;

namespace {

/// PRAGMA user_version of the file.
constexpr int kVersion = 2;
/// Somebody reads the file: the writer waits so long.
constexpr int kBusy_ms = 5000;
// What users' programs cause is bounded: the oldest of a run make room.
constexpr int kMaxEventsOfJob = 20'000;
constexpr int kMaxProfilesOfJob = 200;
constexpr const char* kEnded = "job-ended";

/// Rows of `events` are the timeline; what has more to say has a row of the same id in another
/// table.
constexpr const char* kSchema = R"(
CREATE TABLE jobs(
  run INTEGER PRIMARY KEY, job INTEGER NOT NULL, started INTEGER NOT NULL, uid INTEGER NOT NULL,
  spec TEXT, basic_gpus INTEGER NOT NULL, ended REAL, UNIQUE(job, started));
CREATE TABLE events(
  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  time REAL NOT NULL, kind TEXT NOT NULL, companion INTEGER, node TEXT, gpus INTEGER, reason TEXT,
  details TEXT, once TEXT, UNIQUE(run, once));
CREATE INDEX events_of_run ON events(run, id);
CREATE TABLE profiles(
  id INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE, epoch INTEGER NOT NULL,
  gpus INTEGER NOT NULL, samples_per_s REAL NOT NULL, predicted_speedup REAL, measured_speedup REAL,
  profile TEXT, coefficients TEXT);
CREATE TABLE pauses(
  id INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE, mode TEXT NOT NULL,
  epoch INTEGER NOT NULL, workers INTEGER NOT NULL, stopped_s REAL NOT NULL, prepare_s REAL,
  quiesce_s REAL, move_s REAL, commit_s REAL, bytes_moved INTEGER, bytes_by_path TEXT,
  wait_s REAL);
CREATE TABLE scales(
  id INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE, scale_table TEXT NOT NULL);
)";
/// From version 1, in which the wait was part of `stopped_s` and `quiesce_s`.
constexpr const char* kFromFirst = "ALTER TABLE pauses ADD COLUMN wait_s REAL;";

}  // namespace

bool history_is_built_in() noexcept { return true; }

void HistoryStore::Close::operator()(sqlite3* database) const noexcept { sqlite3_close(database); }

Error HistoryStore::failure(const char* doing) const {
  return Error(fmt::format("{}: {}: {}", path_, doing, sqlite3_errmsg(database_.get())));
}

Result<void> HistoryStore::run(const char* sql) const {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("it cannot be used");
  return {};
}

Result<HistoryStore> HistoryStore::open(const std::string& path, Access access) {
  const bool writes = access == Access::write;
  // SQLite itself would make it readable by all.
  if (writes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
    ::close(fd);
  }
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &database,
      (writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX, nullptr);
  HistoryStore store(database, path);
  if (code != SQLITE_OK) return store.failure("it cannot be opened");
  sqlite3_busy_timeout(database, kBusy_ms);
  if (writes)
    if (Result<void> good = store.prepare_file(); !good) return good.error();
  return store;
}

Result<void> HistoryStore::prepare_file() {
  int version = 0;
  {
    Statement read(database_.get(), "PRAGMA user_version");
    if (!read.next()) return failure("it cannot be read");
    version = sqlite3_column_int(read.row(), 0);
  }
  if (version > kVersion)
    return Error(
        fmt::format("{}: it has version {}; this Swell knows {}", path_, version, kVersion));
  {
    Statement check(database_.get(), "PRAGMA quick_check(1)");
    if (!check.next() || text_of(check.row(), 0) != "ok")
      return Error(fmt::format("{}: it is damaged", path_));
  }
  if (Result<void> good = run("PRAGMA foreign_keys=ON"); !good || version == kVersion) return good;
  return run(fmt::format("BEGIN IMMEDIATE;{}PRAGMA user_version={};COMMIT",
                         version == 1 ? kFromFirst : kSchema, kVersion)
                 .c_str());
}

Result<HistoryStore> HistoryStore::open_or_rebuild(const std::string& path, std::string& said) {
  Result<HistoryStore> store = open(path);
  if (store || ::access(path.c_str(), F_OK) != 0) return store;
  const std::string aside = fmt::format("{}.damaged-{}", path, std::time(nullptr));
  if (std::rename(path.c_str(), aside.c_str()) != 0) return store;
  // What belongs to the damaged file must not be rolled into the new one.
  static_cast<void>(std::rename((path + "-journal").c_str(), (aside + "-journal").c_str()));
  said = fmt::format("the history cannot be used ({}): it is kept as {}, and a new one is begun",
                     store.error().message(), aside);
  return open(path);
}

Result<void> HistoryStore::write(double time, const std::vector<history::Record>& records) {
  if (Result<void> begun = run("BEGIN IMMEDIATE"); !begun) return begun;
  for (const history::Record& record : records)
    if (Result<void> kept = std::visit([&](const auto& one) { return keep(time, one); }, record);
        !kept) {
      static_cast<void>(run("ROLLBACK"));
      return kept;
    }
  Result<void> done = run("COMMIT");
  if (!done) static_cast<void>(run("ROLLBACK"));
  return done;
}

std::int64_t HistoryStore::run_of(control::JobId job) const {
  Statement select(database_.get(),
                   "SELECT run FROM jobs WHERE job = ? ORDER BY started DESC, run DESC LIMIT 1");
  return select.with(std::int64_t{job}).next() ? sqlite3_column_int64(select.row(), 0) : 0;
}

Result<std::int64_t> HistoryStore::add(double time, std::int64_t run, const history::Event& event) {
  Statement insert(
      database_.get(),
      "INSERT OR IGNORE INTO events(run, time, kind, companion, node, gpus, reason, details, once) "
      "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)");
  insert.with(run)
      .with(time)
      .with(event.kind)
      .unless_0(std::int64_t{event.companion})
      .with(event.node)
      .unless_0(std::int64_t{event.gpus})
      .with(event.reason)
      .with(event.details)
      .with(event.once);
  if (!insert.done()) return failure("an event cannot be kept");
  if (sqlite3_changes(database_.get()) == 0) return std::int64_t{0};
  const std::int64_t id = sqlite3_last_insert_rowid(database_.get());
  Statement trim(
      database_.get(),
      "DELETE FROM events WHERE run = ?1 AND id <= (SELECT id FROM events WHERE run = ?1 "
      "ORDER BY id DESC LIMIT 1 OFFSET ?2)");
  if (!trim.with(run).with(std::int64_t{kMaxEventsOfJob}).done())
    return failure("old events cannot be left out");
  return id;
}

Result<void> HistoryStore::keep(double, const history::Job& job) {
  Statement insert(database_.get(),
                   "INSERT INTO jobs(job, started, uid, spec, basic_gpus) VALUES(?, ?, ?, ?, ?) "
                   "ON CONFLICT(job, started) DO UPDATE SET ended = NULL");
  insert.with(std::int64_t{job.job})
      .with(job.started)
      .with(std::int64_t{job.uid})
      .with(job.spec)
      .with(std::int64_t{job.basic_gpus});
  if (!insert.done()) return failure("a job cannot be kept");
  return {};
}

Result<void> HistoryStore::keep(double time, const history::Event& event) {
  const std::int64_t run = run_of(event.job);
  if (run == 0) return {};
  if (const auto added = add(time, run, event); !added) return added.error();
  if (event.kind != kEnded) return {};
  Statement end(database_.get(), "UPDATE jobs SET ended = ? WHERE run = ?");
  if (!end.with(time).with(run).done()) return failure("the end of a job cannot be kept");
  return {};
}

Result<void> HistoryStore::keep(double time, const history::Profile& profile) {
  const std::int64_t run = run_of(profile.job);
  if (run == 0) return {};
  history::Event event;
  event.kind = "profile";
  const auto id = add(time, run, event);
  if (!id) return id.error();
  Statement insert(database_.get(), "INSERT INTO profiles VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
  insert.with(*id)
      .with(std::int64_t{profile.epoch})
      .with(std::int64_t{profile.gpus})
      .with(profile.samples_per_s)
      .unless_0(profile.predicted)
      .unless_0(profile.measured)
      .with(profile.profile)
      .with(profile.coefficients);
  if (!insert.done()) return failure("a profile cannot be kept");
  // The speeds stay; the documents, which are large, only of the newest.
  Statement trim(
      database_.get(),
      "UPDATE profiles SET profile = NULL, coefficients = NULL WHERE id = (SELECT id FROM "
      "events WHERE run = ? AND kind = 'profile' ORDER BY id DESC LIMIT 1 OFFSET ?)");
  if (!trim.with(run).with(std::int64_t{kMaxProfilesOfJob}).done())
    return failure("old profiles cannot be left out");
  return {};
}

Result<void> HistoryStore::keep(double time, const history::Pause& pause) {
  const std::int64_t run = run_of(pause.job);
  if (run == 0) return {};
  history::Event event;
  event.kind = "pause";
  const auto id = add(time, run, event);
  if (!id) return id.error();
  Statement insert(database_.get(),
                   "INSERT INTO pauses VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  insert.with(*id)
      .with(std::string(pause.is_live ? "live" : "restart"))
      .with(std::int64_t{pause.epoch})
      .with(std::int64_t{pause.workers})
      .with(pause.stopped_s);
  for (const double part : {pause.prepare_s, pause.quiesce_s, pause.move_s, pause.commit_s})
    pause.is_live ? insert.with(part) : insert.nothing();
  pause.is_live ? insert.with(pause.bytes_moved) : insert.nothing();
  insert.with(pause.bytes_by_path);
  pause.is_live ? insert.with(pause.wait_s) : insert.nothing();
  if (!insert.done()) return failure("a pause cannot be kept");
  return {};
}

Result<void> HistoryStore::keep(double time, const history::Scale& scale) {
  const std::int64_t run = run_of(scale.job);
  if (run == 0) return {};
  history::Event event;
  event.kind = "scale";
  const auto id = add(time, run, event);
  if (!id) return id.error();
  // One a run: the newest.
  Statement old(database_.get(), "DELETE FROM events WHERE run = ? AND kind = 'scale' AND id < ?");
  if (!old.with(run).with(*id).done()) return failure("an old scale table cannot be left out");
  Statement insert(database_.get(), "INSERT INTO scales VALUES(?, ?)");
  if (!insert.with(*id).with(scale.table).done()) return failure("a scale table cannot be kept");
  return {};
}

Result<void> HistoryStore::only_these_run(double time, const std::vector<control::JobId>& jobs) {
  std::vector<std::pair<std::int64_t, control::JobId>> open;
  {
    Statement select(database_.get(), "SELECT run, job FROM jobs WHERE ended IS NULL");
    while (select.next())
      open.emplace_back(sqlite3_column_int64(select.row(), 0),
                        static_cast<control::JobId>(sqlite3_column_int64(select.row(), 1)));
  }
  for (const auto& [run, job] : open) {
    if (std::find(jobs.begin(), jobs.end(), job) != jobs.end() && run_of(job) == run) continue;
    history::Event event;
    event.kind = kEnded;
    event.reason = "it ended while nobody looked";
    if (const auto added = add(time, run, event); !added) return added.error();
    Statement end(database_.get(), "UPDATE jobs SET ended = ? WHERE run = ?");
    if (!end.with(time).with(run).done()) return failure("the end of a job cannot be kept");
  }
  return {};
}

Result<void> HistoryStore::forget_before(double time) {
  Statement old(database_.get(), "DELETE FROM jobs WHERE ended < ?");
  if (!old.with(time).done()) return failure("old jobs cannot be left out");
  return {};
}

Result<Json> HistoryStore::of_job(control::JobId job, std::optional<uid_t> uid, std::int64_t after,
                                  std::size_t max_bytes) const {
  Json jobs = Json::array(), events = Json::array();
  bool is_anybodys = false;
  Statement runs(
      database_.get(),
      "SELECT run, started, uid, spec, basic_gpus, ended FROM jobs WHERE job = ? ORDER BY "
      "started");
  runs.with(std::int64_t{job});
  std::string list;
  while (runs.next()) {
    sqlite3_stmt* row = runs.row();
    is_anybodys = true;
    if (uid && sqlite3_column_int64(row, 2) != static_cast<std::int64_t>(*uid)) continue;
    list += fmt::format("{}{}", list.empty() ? "" : ",", sqlite3_column_int64(row, 0));
    Json one = Json::object({{"run", static_cast<std::int64_t>(sqlite3_column_int64(row, 0))}});
    set_number(one, "started", row, 1);
    set_number(one, "uid", row, 2);
    set_text(one, "elastic", row, 3);
    set_number(one, "basic_gpus", row, 4);
    set_number(one, "ended", row, 5);
    jobs.append(std::move(one));
  }
  if (list.empty())
    return Error(is_anybodys ? fmt::format("job {} belongs to another user", job)
                             : fmt::format("the history has no elastic job {}", job));
  Statement select(
      database_.get(),
      fmt::format(
          "SELECT e.id, e.run, e.time, e.kind, e.companion, e.node, e.gpus, e.reason, "
          "e.details, p.epoch, p.gpus, p.samples_per_s, p.predicted_speedup, "
          "p.measured_speedup, p.coefficients, w.mode, w.epoch, w.workers, w.stopped_s, "
          "w.prepare_s, w.quiesce_s, w.move_s, w.commit_s, w.bytes_moved, w.bytes_by_path, "
          "s.scale_table, w.wait_s FROM events e LEFT JOIN profiles p USING(id) LEFT JOIN pauses w "
          "USING(id) LEFT JOIN scales s USING(id) WHERE e.run IN ({}) AND e.id > ? ORDER BY "
          "e.id",
          list)
          .c_str());
  select.with(after);
  std::size_t bytes = jobs.dump().size();
  bool more = false;
  while (!more && select.next()) {
    sqlite3_stmt* row = select.row();
    Json one = Json::object({{"id", static_cast<std::int64_t>(sqlite3_column_int64(row, 0))}});
    set_number(one, "run", row, 1);
    set_number(one, "time", row, 2);
    set_text(one, "event", row, 3);
    set_number(one, "companion", row, 4);
    set_text(one, "node", row, 5);
    set_number(one, "gpus", row, 6);
    set_text(one, "reason", row, 7);
    set_document(one, "details", row, 8);
    const char* const kNumbers[] = {"epoch", "gpus", "samples_per_s", "predicted_speedup",
                                    "measured_speedup"};
    for (int i = 0; i < 5; ++i) set_number(one, kNumbers[i], row, 9 + i);
    set_document(one, "coefficients", row, 14);
    set_text(one, "mode", row, 15);
    const char* const kParts[] = {"epoch",     "workers", "stopped_s", "prepare_s",
                                  "quiesce_s", "move_s",  "commit_s",  "bytes_moved"};
    for (int i = 0; i < 8; ++i) set_number(one, kParts[i], row, 16 + i);
    set_document(one, "bytes_by_path", row, 24);
    set_document(one, "table", row, 25);
    set_number(one, "wait_s", row, 26);
    const std::size_t size = one.dump().size();
    more = bytes + size > max_bytes && events.size() > 0;
    bytes += size;
    if (!more) events.append(std::move(one));
  }
  return Json::object({{"job", job}, {"jobs", jobs}, {"events", events}, {"more", more}});
}

}  // namespace swell::controller
