// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sqlite3.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "controller/history.h"

/// A history's file of one job in a folder of its own, who else has it open, and what a History
/// says.
namespace swell::test {

using namespace swell::controller;
using swell::control::JobId;

struct Folder {
  std::filesystem::path path;
  Folder() {
    char name[] = "/tmp/swell-history-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return path / "history.sqlite"; }
};

inline constexpr JobId kJob = 10;
inline constexpr std::size_t kFirst = 0;
inline constexpr uid_t kOwner = 1000;

inline history::Job job(std::int64_t started = 100) { return {kJob, started, kOwner, "max=4x", 4}; }

inline history::Event event(const std::string& kind, const std::string& once = {}) {
  history::Event made;
  made.job = kJob;
  made.kind = kind;
  made.companion = 20;
  made.node = "node2";
  made.gpus = 8;
  made.reason = "needed by job 17";
  made.details = R"({"cause":"basic-demand"})";
  made.once = once;
  return made;
}

inline HistoryStore opened(const std::string& path) {
  auto store = HistoryStore::open(path);
  cr_assert(store.ok(), "%s", store.error().message().c_str());
  return std::move(*store);
}

inline void write(HistoryStore& store, const std::vector<history::Record>& records,
                  double time = 5) {
  std::vector<history::Stamped> stamped;
  for (const history::Record& each : records) stamped.push_back({time, each});
  const auto kept = store.write(stamped);
  cr_assert(kept.ok(), "%s", kept.error().message().c_str());
}

inline Json all_of(const HistoryStore& store, std::int64_t after = 0,
                   std::size_t max_bytes = 1 << 20) {
  const auto found = store.of_job(kJob, std::nullopt, after, max_bytes);
  cr_assert(found.ok(), "%s", found.error().message().c_str());
  return *found;
}

inline void execute(const std::string& path, const char* sql) {
  sqlite3* database = nullptr;
  cr_assert_eq(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  cr_assert_eq(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
}

inline constexpr int kPatience_ms = 10'000;

/// Somebody else who has the file open: as another process would.
class Other {
 public:
  explicit Other(const std::string& path) {
    cr_assert_eq(sqlite3_open(path.c_str(), &database_), SQLITE_OK);
  }
  ~Other() {
    sqlite3_finalize(reads_);
    sqlite3_close(database_);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  /// Reads the first of its events and then none for long.
  void begin_to_read() {
    cr_assert_eq(sqlite3_prepare_v2(database_, "SELECT * FROM events", -1, &reads_, nullptr),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_step(reads_), SQLITE_ROW);
  }
  void run(const char* sql) {
    cr_assert_eq(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  }

 private:
  sqlite3* database_ = nullptr;
  sqlite3_stmt* reads_ = nullptr;
};

inline int count_beside(const Folder& folder, const std::string& name) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.path))
    count += file.path().filename().string().starts_with(name);
  return count;
}

/// Records the words of a History, from its thread or the test's.
class Said {
 public:
  auto log() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void wait_for_line() {
    for (int i = 0; i < kPatience_ms && lines().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cr_assert_not(lines().empty(), "it should say something");
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline constexpr int kShort_ms = 20;

inline std::string text(const Json& json, const char* key) { return json.string_at(key).value(); }

/// Asks a History, and waits for its answer.
inline History::Reply answered(History& history, std::optional<uid_t> uid = std::nullopt) {
  cr_assert(history.ask({1, kJob, uid, 0}));
  for (;;) {
    std::vector<History::Reply> replies = history.take();
    if (!replies.empty()) return std::move(replies.front());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The answer in which the job has so many events, or the last one that came in time.
inline History::Reply once_it_has(History& history, std::size_t events) {
  History::Reply reply = answered(history);
  for (int i = 0; i < kPatience_ms; ++i) {
    if (reply.found.ok() && reply.found->at("events").size() >= events) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reply = answered(history);
  }
  cr_assert(reply.found.ok());
  cr_assert_geq(reply.found->at("events").size(), events);
  return reply;
}

}  // namespace swell::test
