// SPDX-License-Identifier: GPL-2.0-or-later
// The history where its file is damaged, taken away, or in the hands of others.
#include <criterion/criterion.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

#include "unit/controller/history_file.h"

using namespace swell;
using namespace swell::controller;
using namespace swell::test;

Test(history, a_damaged_file_is_set_aside_and_the_running_jobs_are_known_again) {
  Folder folder;
  std::ofstream(folder.file()) << "this is not a database, and long enough to be looked at as one";
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

Test(history, a_file_of_a_newer_swell_is_set_aside_under_another_name) {
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

// A limit of the file's size does what a full disk does.
Test(history, a_full_disk_makes_it_lose_nothing_and_keeps_answers_coming) {
  Folder folder;
  Said said;
  History history({folder.file(), 90, said.log(), {}, kShort_ms});
  history.add(job());
  history.add(event("grant"));
  cr_assert_eq(answered(history).found->at("events").size(), 1u);
  signal(SIGXFSZ, SIG_IGN);
  rlimit all{};
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
  const rlimit full{100, all.rlim_max};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
  history.add(event("reclaim"));
  said.wait_for_line();
  for (int i = 0; i < 5; ++i) {  // more tries than one
    history.add(event("grant"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * kShort_ms));
  }
  const History::Reply meanwhile = answered(history);
  cr_assert(meanwhile.found.ok(), "%s", meanwhile.found.error().message().c_str());
  cr_assert_eq(meanwhile.found->at("events").size(), 1u);
  cr_assert_not(history.trouble().empty());
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
  once_it_has(history, 7);
  cr_assert(history.trouble().empty(), "%s", history.trouble().c_str());
  cr_assert_eq(said.lines().size(), 1u, "%zu lines", said.lines().size());
  cr_assert(said.lines()[0].find("waits until it can be written") != std::string::npos, "%s",
            said.lines()[0].c_str());
}

Test(history, events_that_wait_for_a_reader_are_written_at_the_end_or_said_to_be_lost) {
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
  cr_assert(said.lines()[1].starts_with("the history has lost 1 record"), "%s",
            said.lines()[1].c_str());
}

Test(history, waiting_events_are_bounded_by_size_too) {
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

Test(history, accepted_events_are_written_before_it_ends) {
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

Test(history, events_that_waited_for_a_reader_keep_their_time) {
  Folder folder;
  Said said;
  History history({folder.file(), 90, said.log(), {}, kShort_ms});
  history.add(job());
  history.add(event("grant"));
  cr_assert_eq(answered(history).found->at("events").size(), 1u);
  double handed_over = 0;
  {
    Other other(folder.file());
    other.begin_to_read();
    handed_over =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    history.add(event("reclaim"));
    said.wait_for_line();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  const Json events = once_it_has(history, 2).found->at("events");
  const auto time = events.at(1).number_at("time", 0, 1e12);
  cr_assert(time.ok());
  cr_assert_lt(std::abs(*time - handed_over), 1.0);
}
