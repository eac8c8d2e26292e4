// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/history_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <sqlite3.h>
#include <unistd.h>
#include <utility>

#include "controller/sqlite_statement.h"

namespace swell::controller {

using namespace sqlite;

namespace {

/// PRAGMA user_version of the file.
constexpr int kVersion = 3;
// Records caused by users' programs are bounded: the oldest of a run make room.
constexpr int kMaxEventsOfJob = 20'000;
constexpr int kMaxProfilesOfJob = 200;
constexpr const char* kEnded = "job-ended";

/// Rows of `events` are the timeline; further values of an event have a row of the same id in
/// another table.
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
  id INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE, generation INTEGER NOT NULL,
  gpus INTEGER NOT NULL, samples_per_s REAL NOT NULL, predicted_speedup REAL, measured_speedup REAL,
  profile TEXT, coefficients TEXT);
CREATE TABLE pauses(
  id INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE, mode TEXT NOT NULL,
  generation INTEGER NOT NULL, workers INTEGER NOT NULL, stopped_s REAL NOT NULL, prepare_s REAL,
  quiesce_s REAL, move_s REAL, commit_s REAL, bytes_moved INTEGER, bytes_by_path TEXT,
  wait_s REAL);
CREATE TABLE scales(
  id INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE, scale_table TEXT NOT NULL);
)";
/// From version 1, in which the wait was part of `stopped_s` and `quiesce_s`.
constexpr const char* kFromFirst = "ALTER TABLE pauses ADD COLUMN wait_s REAL;";
/// From version 2, in which a generation of a job was called epoch.
constexpr const char* kFromSecond =
    "ALTER TABLE profiles RENAME COLUMN epoch TO generation;"
    "ALTER TABLE pauses RENAME COLUMN epoch TO generation;";

/// Returns what makes a file of `version` one of kVersion; 0: it is new.
std::string to_newest(int version) {
  if (version == 0) return kSchema;
  return std::string(version == 1 ? kFromFirst : "") + kFromSecond;
}
/// Index of companions: a query for any job id that is not in `jobs` looks there.
constexpr const char* kIndex =
    "CREATE INDEX IF NOT EXISTS events_of_companion ON events(companion) WHERE companion NOTNULL";

}  // namespace

bool history_is_built_in() noexcept { return true; }

void HistoryStore::Close::operator()(sqlite3* database) const noexcept { sqlite3_close(database); }

Error HistoryStore::failure(const char* doing) const {
  const int code = sqlite3_errcode(database_.get());
  trouble_ = code == SQLITE_BUSY                               ? Trouble::busy
             : code == SQLITE_FULL                             ? Trouble::full
             : code == SQLITE_IOERR                            ? Trouble::disk
             : code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? Trouble::damaged
                                                               : Trouble::other;
  return Error(fmt::format("{}: {}: {}", path_, doing, sqlite3_errmsg(database_.get())));
}

Result<void> HistoryStore::run(const char* sql) const {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("it cannot be used");
  return {};
}

Result<HistoryStore> HistoryStore::open(const std::string& path, Access access, int busy_ms) {
  Trouble trouble = Trouble::none;
  return open(path, access, busy_ms, trouble);
}

Result<HistoryStore> HistoryStore::open(const std::string& path, Access access, int busy_ms,
                                        Trouble& trouble) {
  const bool writes = access == Access::write;
  trouble = Trouble::other;
  // SQLite itself would make it readable by all.
  if (writes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      if (errno == ENOSPC || errno == EDQUOT) trouble = Trouble::full;
      return Error(fmt::format("{}: {}", path, std::strerror(errno)));
    }
    ::close(fd);
  }
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &database,
      (writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX, nullptr);
  HistoryStore store(database, path);
  if (code != SQLITE_OK) return store.failure("it cannot be opened");
  sqlite3_busy_timeout(database, busy_ms);
  if (writes)
    if (Result<void> good = store.prepare_file(); !good) {
      trouble = store.trouble_;
      return good.error();
    }
  return store;
}

Result<void> HistoryStore::prepare_file() {
  {
    Statement read(database_.get(), "PRAGMA user_version");
    if (!read.next()) return failure("it cannot be read");
    version_ = sqlite3_column_int(read.row(), 0);
  }
  if (version_ > kVersion) {
    trouble_ = Trouble::newer;
    return Error(
        fmt::format("{}: it has version {}; this Swell knows {}", path_, version_, kVersion));
  }
  {
    Statement check(database_.get(), "PRAGMA quick_check(1)");
    if (!check.next()) return failure("it cannot be read");
    if (text_of(check.row(), 0) != "ok") {
      trouble_ = Trouble::damaged;
      return Error(fmt::format("{}: it is damaged", path_));
    }
  }
  if (Result<void> good = run("PRAGMA foreign_keys=ON"); !good) return good;
  if (version_ != kVersion)
    if (Result<void> good = run(fmt::format("BEGIN IMMEDIATE;{}PRAGMA user_version={};COMMIT",
                                            to_newest(version_), kVersion)
                                    .c_str());
        !good)
      return good;
  return run(kIndex);
}

HistoryStore::Opening HistoryStore::open_or_rebuild(const std::string& path, int busy_ms) {
  Opening opening;
  Trouble trouble = Trouble::none;
  const auto try_it = [&] {
    Result<HistoryStore> store = open(path, Access::write, busy_ms, trouble);
    if (store) opening.store = std::move(*store);
    else opening.problem = store.error().message();
    opening.is_busy = !store && trouble == Trouble::busy;
    opening.is_full = !store && (trouble == Trouble::full || trouble == Trouble::disk);
  };
  try_it();
  if (opening.store || (trouble != Trouble::damaged && trouble != Trouble::newer)) return opening;
  const std::string aside = fmt::format(
      "{}.{}-{}", path, trouble == Trouble::damaged ? "damaged" : "newer", std::time(nullptr));
  if (std::rename(path.c_str(), aside.c_str()) != 0) return opening;
  // Move the journal too: it must not be rolled into the new file.
  static_cast<void>(std::rename((path + "-journal").c_str(), (aside + "-journal").c_str()));
  opening.said =
      fmt::format("the history cannot be used ({}): it is kept as {}, and a new one is begun",
                  std::exchange(opening.problem, {}), aside);
  try_it();
  return opening;
}

template <typename Work>
Result<void> HistoryStore::at_once(Work work) {
  if (Result<void> begun = run("BEGIN IMMEDIATE"); !begun) return begun;
  Result<void> done = work();
  if (done) done = run("COMMIT");
  // Not by run(): the first failure is the one that counts.
  if (!done) sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<void> HistoryStore::write(const std::vector<history::Stamped>& records) {
  return at_once([&]() -> Result<void> {
    for (const auto& [time, record] : records)
      if (Result<void> kept =
              std::visit([&, at = time](const auto& one) { return keep(at, one); }, record);
          !kept)
        return kept;
    return {};
  });
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
      .with(std::int64_t{profile.generation})
      .with(std::int64_t{profile.gpus})
      .with(profile.samples_per_s)
      .unless_0(profile.predicted)
      .unless_0(profile.measured)
      .with(profile.profile)
      .with(profile.coefficients);
  if (!insert.done()) return failure("a profile cannot be kept");
  // Keeps all speeds, and of the documents, which are large, only the newest.
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
      .with(std::int64_t{pause.generation})
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
  return at_once([&] { return end_others(time, jobs); });
}

Result<void> HistoryStore::end_others(double time, const std::vector<control::JobId>& jobs) {
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

Result<void> HistoryStore::keep_within(std::int64_t of_user, std::int64_t in_all) {
  struct Run {
    std::int64_t id, uid, bytes;
    bool has_ended;
  };
  std::vector<Run> runs;
  {
    Statement select(
        database_.get(),
        "SELECT jobs.run, jobs.uid, jobs.ended NOTNULL, SUM(128 + IFNULL(LENGTH(reason), 0) + "
        "IFNULL(LENGTH(details), 0) + IFNULL(LENGTH(profile), 0) + "
        "IFNULL(LENGTH(coefficients), 0) + IFNULL(LENGTH(bytes_by_path), 0) + "
        "IFNULL(LENGTH(scale_table), 0)) FROM jobs JOIN events ON events.run = jobs.run "
        "LEFT JOIN profiles ON profiles.id = events.id LEFT JOIN pauses ON pauses.id = events.id "
        "LEFT JOIN scales ON scales.id = events.id GROUP BY jobs.run ORDER BY jobs.run");
    while (select.next())
      runs.push_back({sqlite3_column_int64(select.row(), 0), sqlite3_column_int64(select.row(), 1),
                      sqlite3_column_int64(select.row(), 3),
                      sqlite3_column_int(select.row(), 2) != 0});
  }
  std::map<std::int64_t, std::int64_t> bytes_of;
  std::int64_t bytes = 0;
  for (const Run& each : runs) {
    bytes_of[each.uid] += each.bytes;
    bytes += each.bytes;
  }
  const auto leave_some_out = [&](std::int64_t uid) -> Result<void> {
    Run* oldest = nullptr;
    for (Run& each : runs)
      if (each.uid == uid && each.bytes > 0 &&
          (oldest == nullptr || (each.has_ended && !oldest->has_ended) ||
           (!each.has_ended && !oldest->has_ended && each.bytes > oldest->bytes)))
        oldest = &each;
    if (oldest == nullptr) return Error("the history's sizes do not add up");
    Statement remove(database_.get(),
                     oldest->has_ended
                         ? "DELETE FROM jobs WHERE run = ?1"
                         : "DELETE FROM events WHERE run = ?1 AND id <= (SELECT id FROM events "
                           "WHERE run = ?1 ORDER BY id LIMIT 1 OFFSET (SELECT COUNT(*) / 2 FROM "
                           "events WHERE run = ?1))");
    if (!remove.with(oldest->id).done()) return failure("old events cannot be left out");
    const std::int64_t left = oldest->has_ended ? 0 : oldest->bytes / 2;
    bytes_of[uid] -= oldest->bytes - left;
    bytes -= oldest->bytes - left;
    oldest->bytes = left;
    return {};
  };
  return at_once([&]() -> Result<void> {
    for (const auto& [uid, its_bytes] : bytes_of)
      while (its_bytes > of_user)
        if (Result<void> done = leave_some_out(uid); !done) return done;
    while (bytes > in_all) {
      const auto most =
          std::max_element(bytes_of.begin(), bytes_of.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (Result<void> done = leave_some_out(most->first); !done) return done;
    }
    return {};
  });
}

}  // namespace swell::controller
