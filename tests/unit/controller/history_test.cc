// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/history.h"

#include <chrono>
#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sqlite3.h>
#include <sys/stat.h>
#include <thread>

using namespace swell;
using namespace swell::controller;
using swell::control::JobId;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    char name[] = "/tmp/swell-history-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return path / "history.sqlite"; }
};

constexpr JobId kJob = 10;
constexpr std::size_t kFirst = 0;
constexpr uid_t kOwner = 1000;

history::Job job(std::int64_t started = 100) { return {kJob, started, kOwner, "max=4x", 4}; }

history::Event event(const std::string& kind, const std::string& once = {}) {
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

HistoryStore opened(const std::string& path) {
  auto store = HistoryStore::open(path);
  cr_assert(store.ok(), "%s", store.error().message().c_str());
  return std::move(*store);
}

void write(HistoryStore& store, const std::vector<history::Record>& records, double time = 5) {
  const auto kept = store.write(time, records);
  cr_assert(kept.ok(), "%s", kept.error().message().c_str());
}

Json all_of(const HistoryStore& store, std::int64_t after = 0, std::size_t max_bytes = 1 << 20) {
  const auto found = store.of_job(kJob, std::nullopt, after, max_bytes);
  cr_assert(found.ok(), "%s", found.error().message().c_str());
  return *found;
}

void execute(const std::string& path, const char* sql) {
  sqlite3* database = nullptr;
  cr_assert_eq(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  cr_assert_eq(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
}

constexpr int kPatience_ms = 10'000;

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

int count_beside(const Folder& folder, const std::string& name) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.path))
    count += file.path().filename().string().starts_with(name);
  return count;
}

/// What a History says, from its thread or the test's.
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

constexpr int kShort_ms = 20;

std::string text(const Json& json, const char* key) { return json.string_at(key).value(); }

/// What a History answers a question, waited for.
History::Reply answered(History& history, std::optional<uid_t> uid = std::nullopt) {
  cr_assert(history.ask({1, kJob, uid, 0}));
  for (;;) {
    std::vector<History::Reply> replies = history.take();
    if (!replies.empty()) return std::move(replies.front());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The answer in which the job has so many events, or the last one that came in time.
History::Reply once_it_has(History& history, std::size_t events) {
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

}  // namespace

Test(history, keeps_what_happened_to_a_job_in_order) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  history::Pause pause{kJob, true, 2, 8, 0.25, 0.5, 1.5, 0.01, 0.2, 0.04, 4096, R"({"shm":4096})"};
  history::Profile profile{kJob, 2, 8, 120.5, 1.9, 1.8, R"({"plan":{}})", R"({"types":{}})"};
  write(store, {job(), event("grant"), pause, profile, history::Scale{kJob, R"([{"gpus":8}])"}});
  const Json events = all_of(store).at("events");
  cr_assert_eq(events.size(), 4u);
  cr_assert_eq(text(events.at(kFirst), "event"), "grant");
  cr_assert_eq(text(events.at(kFirst), "reason"), "needed by job 17");
  cr_assert_eq(text(events.at(kFirst).at("details"), "cause"), "basic-demand");
  cr_assert_eq(text(events.at(1), "mode"), "live");
  cr_assert_float_eq(events.at(1).number_at("move_s", 0, 1).value(), 0.2, 1e-9);
  cr_assert_float_eq(events.at(1).number_at("wait_s", 0, 2).value(), 1.5, 1e-9);
  cr_assert_eq(events.at(1).integer_at("bytes_moved", 0, 1 << 20).value(), 4096);
  cr_assert_float_eq(events.at(2).number_at("predicted_speedup", 0, 9).value(), 1.9, 1e-9);
  cr_assert_float_eq(events.at(2).number_at("measured_speedup", 0, 9).value(), 1.8, 1e-9);
  cr_assert_eq(events.at(3).at("table").size(), 1u);
}

Test(history, is_there_after_a_restart_and_takes_nothing_twice) {
  Folder folder;
  {
    HistoryStore store = opened(folder.file());
    write(store, {job(), event("job-started", "job-started"), event("companion-started", "nonce")});
  }
  HistoryStore store = opened(folder.file());
  write(store, {job(), event("job-started", "job-started"), event("companion-started", "nonce"),
                event("reclaim")});
  cr_assert_eq(all_of(store).at("events").size(), 3u);
}

Test(history, of_the_version_before_is_kept_and_goes_on) {
  Folder folder;
  {
    HistoryStore store = opened(folder.file());
    write(store, {job(), history::Pause{kJob, true, 2, 8, 0.25}});
  }
  execute(folder.file(), "ALTER TABLE pauses DROP COLUMN wait_s; PRAGMA user_version=1");
  HistoryStore store = opened(folder.file());
  history::Pause pause{kJob, true, 3, 8, 0.5};
  pause.wait_s = 2;
  write(store, {pause});
  const Json events = all_of(store).at("events");
  cr_assert_eq(events.size(), 2u);
  cr_assert_not(events.at(kFirst).has("wait_s"), "it was not told apart then");
  cr_assert_float_eq(events.at(1).number_at("wait_s", 0, 9).value(), 2, 1e-9);
}

Test(history, a_requeued_job_has_a_run_of_its_own) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store, {job(100), event("grant"), event("job-ended"), job(200), event("grant")});
  const Json found = all_of(store);
  cr_assert_eq(found.at("jobs").size(), 2u);
  cr_assert(found.at("jobs").at(kFirst).has("ended"));
  cr_assert_not(found.at("jobs").at(1).has("ended"));
  cr_assert_neq(found.at("events").at(kFirst).integer_at("run", 0, 9).value(),
                found.at("events").at(2).integer_at("run", 0, 9).value());
}

Test(history, is_given_in_pages_that_fit_a_message) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  std::vector<history::Record> records = {job()};
  for (int i = 0; i < 100; ++i) records.push_back(event("grant"));
  write(store, records);
  std::size_t seen = 0, pages = 0;
  std::int64_t after = 0;
  for (bool more = true; more; ++pages) {
    const Json page = all_of(store, after, 2000);
    cr_assert_lt(page.dump().size(), 2500u);
    seen += page.at("events").size();
    after = page.at("events").at(page.at("events").size() - 1).integer_at("id", 1, 999).value();
    more = page.bool_at("more").value();
  }
  cr_assert_eq(seen, 100u);
  cr_assert_gt(pages, 5u);
}

Test(history, is_shown_to_the_owner_of_the_job_alone) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store, {job(), event("grant")});
  cr_assert(store.of_job(kJob, kOwner, 0, 1000).ok());
  cr_assert_eq(store.of_job(kJob, kOwner + 1, 0, 1000).error().message(),
               "job 10 belongs to another user");
  cr_assert_eq(store.of_job(11, kOwner, 0, 1000).error().message(),
               "the history has no elastic job 11");
  struct stat file {};
  cr_assert_eq(stat(folder.file().c_str(), &file), 0);
  cr_assert_eq(file.st_mode & 0777, 0600u);
}

Test(history, the_last_changes_are_found_among_all_else) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  std::vector<history::Record> records = {job(100), event("reclaim"), job(200)};
  for (const char* kind : {"companion-started", "companion-ended", "companion-lost"}) {
    records.push_back(event(kind));
    records.insert(records.end(), 300, history::Pause{kJob, true, 2, 8, 0.25});
  }
  write(store, records);
  const Json found = store.last_changes(kJob, kOwner, 2, 20'000).value();
  cr_assert_eq(found.at("events").size(), 2u);
  cr_assert_eq(text(found.at("events").at(kFirst), "event"), "companion-ended");
  cr_assert_eq(text(found.at("events").at(1), "event"), "companion-lost");
  cr_assert_not(found.bool_at("more").value());
  cr_assert_eq(store.last_changes(kJob, kOwner, 9, 20'000)->at("events").size(), 4u);
  const Json newest = store.last_changes(kJob, kOwner, 9, 700)->at("events");
  cr_assert(newest.size() > 0 && newest.size() < 4, "as many as fit");
  cr_assert_eq(text(newest.at(newest.size() - 1), "event"), "companion-lost");
  cr_assert_not(store.last_changes(kJob, kOwner + 1, 2, 20'000).ok());
}

Test(history, has_a_profile_for_who_asks_for_it_where_it_fits) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store,
        {job(), history::Profile{kJob, 2, 8, 120.5, 1.9, 1.8, R"({"plan":"p"})", R"({"types":{}})"},
         history::Profile{kJob, 3, 8, 120.5, 1.9, 1.8,
                          R"({"plan":")" + std::string(3000, 'x') + R"("})", "{}"}});
  cr_assert_not(all_of(store).at("events").at(kFirst).has("profile"));
  const Json events = store.of_job(kJob, kOwner, 0, 2000, true)->at("events");
  cr_assert_eq(events.size(), 2u);
  cr_assert_eq(text(events.at(kFirst).at("profile"), "plan"), "p");
  cr_assert_not(events.at(1).has("profile"));
  cr_assert_eq(events.at(1).integer_at("profile_bytes", 0, 9999).value(), 3011);
}

Test(history, a_link_in_its_place_is_not_followed) {
  Folder folder;
  const std::filesystem::path others = folder.path / "others";
  std::ofstream(others) << "";
  std::filesystem::create_symlink(others, folder.file());
  cr_assert_not(HistoryStore::open(folder.file()).ok());
  cr_assert_eq(std::filesystem::file_size(others), 0u);
}

Test(history, who_ended_while_nobody_looked_has_ended) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store, {job()});
  cr_assert(store.only_these_run(9, {11}).ok());
  const Json found = all_of(store);
  cr_assert_float_eq(found.at("jobs").at(kFirst).number_at("ended", 0, 99).value(), 9, 1e-9);
  cr_assert_eq(text(found.at("events").at(kFirst), "reason"), "it ended while nobody looked");
}

Test(history, old_jobs_are_forgotten_with_all_that_happened) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store, {job(), event("grant"), event("job-ended")}, 5);
  cr_assert(store.forget_before(6).ok());
  cr_assert_not(store.of_job(kJob, std::nullopt, 0, 1000).ok());
}

Test(history, what_a_jobs_program_causes_is_bounded) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store, {job()});
  const std::vector<history::Record> profiles(
      210, history::Profile{kJob, 2, 8, 120.5, 1.9, 1.8, R"({"plan":{}})", R"({"types":{}})"});
  write(store, profiles);
  const Json events = all_of(store).at("events");
  int with_documents = 0;
  for (const Json& one : events.items()) with_documents += one.has("coefficients");
  cr_assert_eq(events.size(), 210u);
  cr_assert_eq(with_documents, 200, "speeds stay, documents do not");

  execute(folder.file(),
          "INSERT INTO events(run, time, kind) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT "
          "i + 1 FROM n WHERE i < 20000) SELECT 1, 0, 'grant' FROM n");
  write(store, std::vector<history::Record>(300, event("grant")));
  cr_assert_eq(all_of(store, 0, 1 << 24).at("events").size(), 20'000u);
}

Test(history, a_damaged_file_is_set_aside_and_the_running_jobs_are_known_again) {
  Folder folder;
  std::ofstream(folder.file()) << "this is no database, and long enough to be looked at as one";
  std::vector<std::string> said;
  History history({folder.file(), 90, [&](const std::string& line) { said.push_back(line); }, {}});
  history.add(job());
  history.add(event("grant"));
  const History::Reply reply = answered(history);
  cr_assert(reply.found.ok(), "%s", reply.found.error().message().c_str());
  cr_assert_eq(reply.found->at("events").size(), 1u);
  cr_assert_eq(said.size(), 1u);
  cr_assert(said[0].find("a new one is begun") != std::string::npos, "%s", said[0].c_str());
  cr_assert_eq(count_beside(folder, "history.sqlite.damaged-"), 1);
}

Test(history, of_a_newer_swell_is_set_aside_under_another_name) {
  Folder folder;
  write(*std::make_unique<HistoryStore>(opened(folder.file())), {job(), event("grant")});
  execute(folder.file(), "PRAGMA user_version=99");
  Said said;
  History history({folder.file(), 90, said.log(), {}});
  history.add(job());
  cr_assert_eq(answered(history).found->at("events").size(), 0u);
  cr_assert_eq(count_beside(folder, "history.sqlite.newer-"), 1);
  cr_assert_eq(count_beside(folder, "history.sqlite.damaged-"), 0);
  cr_assert_eq(said.lines().size(), 1u);
  cr_assert(said.lines()[0].find("it has version 99; this Swell knows") != std::string::npos);
}

Test(history, a_long_reader_makes_it_lose_nothing) {
  Folder folder;
  Said said;
  History history({folder.file(), 90, said.log(), {}, kShort_ms});
  history.add(job());
  history.add(event("grant"));
  cr_assert_eq(answered(history).found->at("events").size(), 1u);
  {
    Other other(folder.file());
    other.begin_to_read();
    history.add(event("reclaim"));
    history.add(history::Pause{kJob, true, 2, 8, 0.25});
    history.running({});
    said.wait_for_line();
    for (int i = 0; i < 5; ++i) {  // more tries than one
      history.add(event("grant"));
      std::this_thread::sleep_for(std::chrono::milliseconds(2 * kShort_ms));
    }
    cr_assert_eq(answered(history).found->at("events").size(), 1u, "who asks need not wait");
  }
  const Json events = once_it_has(history, 8).found->at("events");
  const char* const kInOrder[] = {"grant", "reclaim", "pause", "grant",
                                  "grant", "grant",   "grant", "grant"};
  for (std::size_t i = 0; i < 8; ++i) cr_assert_eq(text(events.at(i), "event"), kInOrder[i]);
  cr_assert_eq(events.size(), 8u, "its job has not ended");
  cr_assert_eq(said.lines().size(), 1u, "once");
}

Test(history, what_waits_for_a_reader_is_written_at_the_end_or_said_to_be_lost) {
  Folder folder;
  write(*std::make_unique<HistoryStore>(opened(folder.file())), {job(), event("grant")});
  Said said;
  Other other(folder.file());
  other.begin_to_read();
  {
    History history({folder.file(), 90, said.log(), {}, kShort_ms});
    history.add(event("reclaim"));
    said.wait_for_line();
  }
  cr_assert_eq(said.lines().size(), 2u);
  cr_assert(said.lines()[1].starts_with("1 records of the history are lost"), "%s",
            said.lines()[1].c_str());
}

Test(history, what_waits_is_bounded_by_its_size_too) {
  Folder folder;
  write(*std::make_unique<HistoryStore>(opened(folder.file())), {job(), event("grant")});
  Other other(folder.file());
  other.begin_to_read();
  Said said;
  History history({folder.file(), 90, said.log(), {}, kShort_ms});
  history.add(event("reclaim"));
  said.wait_for_line();
  const history::Profile profile{kJob, 2, 8, 120.5, 0, 0, std::string(1 << 20, ' '), "{}"};
  for (int i = 0; i < 70; ++i) history.add(profile);
  cr_assert_eq(said.lines().size(), 2u);
  cr_assert(said.lines()[1].find("falls behind") != std::string::npos);
}

Test(history, a_file_that_others_have_when_it_is_opened_stays_where_it_is) {
  Folder folder;
  write(*std::make_unique<HistoryStore>(opened(folder.file())), {job(), event("grant")});
  Said said;
  Other other(folder.file());
  other.run("BEGIN EXCLUSIVE");
  History history({folder.file(), 90, said.log(), {}, kShort_ms});
  history.add(event("reclaim"));
  said.wait_for_line();
  cr_assert_not(answered(history).found.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(3 * kShort_ms));
  other.run("ROLLBACK");
  once_it_has(history, 2);
  cr_assert_eq(count_beside(folder, "history.sqlite."), 0);
  cr_assert_eq(said.lines().size(), 1u);
}

Test(history, a_file_that_cannot_be_read_just_now_is_not_said_to_be_empty) {
  Folder folder;
  HistoryStore store = *HistoryStore::open(folder.file(), HistoryStore::Access::write, kShort_ms);
  write(store, {job(), event("grant")});
  Other other(folder.file());
  other.run("BEGIN EXCLUSIVE");
  const auto found = store.of_job(kJob, std::nullopt, 0, 1000);
  cr_assert_not(found.ok());
  cr_assert(found.error().message().find("it cannot be read: database is locked") !=
            std::string::npos);
}

Test(history, a_file_that_is_taken_away_is_begun_anew) {
  Folder folder;
  History history({folder.file(), 90, {}, {}});
  history.add(job());
  cr_assert(answered(history).found.ok());
  std::filesystem::remove(folder.file());
  history.add(event("grant"));
  const History::Reply reply = answered(history);
  cr_assert(reply.found.ok(), "%s", reply.found.error().message().c_str());
  cr_assert_eq(reply.found->at("events").size(), 1u);
}

Test(history, what_was_handed_over_is_written_before_it_ends) {
  Folder folder;
  {
    History history({folder.file(), 90, {}, {}});
    history.add(job());
    for (int i = 0; i < 500; ++i) history.add(event("grant"));
  }
  cr_assert_eq(all_of(opened(folder.file())).at("events").size(), 500u);
}

Test(history, where_nothing_can_be_written_that_is_said_once) {
  std::vector<std::string> said;
  {
    History history(
        {"/proc/nowhere/history", 90, [&](const std::string& line) { said.push_back(line); }, {}});
    history.add(job());
    cr_assert_not(answered(history).found.ok());
    history.add(event("grant"));
    cr_assert_not(answered(history).found.ok());
  }
  cr_assert_eq(said.size(), 1u);
}
