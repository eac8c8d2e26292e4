// SPDX-License-Identifier: GPL-2.0-or-later
// What the history keeps, and shows to whom.
#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "unit/controller/history_file.h"

using namespace swell;
using namespace swell::controller;
using namespace swell::test;

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

Test(history, has_the_newest_scale_table_of_the_jobs_that_run) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  write(store, {job(), history::Scale{kJob, "[1]"}, history::Scale{kJob, "[2]"}});
  const auto tables = store.scales_of({kJob, kJob + 1});
  cr_assert_eq(tables.size(), 1u);
  cr_assert_eq(tables[0].job, kJob);
  cr_assert_eq(tables[0].table, "[2]");
  write(store, {job(200)});
  cr_assert(store.scales_of({kJob}).empty(), "that was of its run before");
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

Test(history, a_file_of_the_version_before_is_kept_and_continued) {
  Folder folder;
  {
    HistoryStore store = opened(folder.file());
    write(store, {job(), history::Pause{kJob, true, 2, 8, 0.25}});
  }
  execute(folder.file(),
          "ALTER TABLE pauses DROP COLUMN wait_s;"
          "ALTER TABLE pauses RENAME COLUMN generation TO epoch;"
          "ALTER TABLE profiles RENAME COLUMN generation TO epoch; PRAGMA user_version=1");
  HistoryStore store = opened(folder.file());
  history::Pause pause{kJob, true, 3, 8, 0.5};
  pause.wait_s = 2;
  write(store, {pause});
  const Json events = all_of(store).at("events");
  cr_assert_eq(events.size(), 2u);
  cr_assert_not(events.at(kFirst).has("wait_s"), "it was not told apart then");
  cr_assert_float_eq(events.at(1).number_at("wait_s", 0, 9).value(), 2, 1e-9);
}

Test(history, a_file_in_which_a_generation_was_called_epoch_is_continued) {
  Folder folder;
  {
    HistoryStore store = opened(folder.file());
    write(store, {job(), history::Pause{kJob, true, 2, 8, 0.25}});
    write(store, {history::Profile{kJob, 2, 8, 120.5, 1.9, 1.8, "{}", "{}"}});
  }
  execute(folder.file(),
          "ALTER TABLE pauses RENAME COLUMN generation TO epoch;"
          "ALTER TABLE profiles RENAME COLUMN generation TO epoch; PRAGMA user_version=2");
  HistoryStore store = opened(folder.file());
  write(store, {history::Pause{kJob, true, 3, 8, 0.5}});
  const Json events = all_of(store).at("events");
  cr_assert_eq(events.size(), 3u);
  for (std::size_t i = 0; i < events.size(); ++i)
    cr_assert_eq(events.at(i).integer_at("generation", 0, 9).value(), i == 2 ? 3 : 2);
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

Test(history, a_job_that_ended_unseen_has_ended) {
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

Test(history, events_caused_by_a_program_are_bounded) {
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

Test(history, a_user_who_fills_it_loses_his_own_oldest_jobs_and_nobody_elses) {
  Folder folder;
  HistoryStore store = opened(folder.file());
  const auto fill = [&](control::JobId id, uid_t uid, int events, bool ends) {
    history::Job made{id, 1, uid, "max=4x", 4};
    std::vector<history::Record> records{made};
    history::Event one;
    one.job = id;
    one.kind = "no-growth";
    one.reason = std::string(400, 'y');
    for (int i = 0; i < events; ++i) records.emplace_back(one);
    one.kind = "job-ended";
    if (ends) records.emplace_back(one);
    write(store, records);
  };
  const auto events_of = [&](control::JobId id) {
    const auto found = store.of_job(id, std::nullopt, 0, 1 << 24);
    return found.ok() ? found->at("events").size() : 0;
  };
  fill(30, 1001, 50, true);
  for (control::JobId id = 31; id < 35; ++id) fill(id, 1000, 200, true);
  fill(40, 1000, 400, false);
  cr_assert(store.keep_within(1 << 20, 1 << 30).ok());
  cr_assert_eq(events_of(31), 201u, "within the limit nothing is left out");
  cr_assert(store.keep_within(250'000, 1 << 30).ok());
  cr_assert_eq(events_of(31), 0u);
  cr_assert_gt(events_of(40), 300u);
  cr_assert_eq(events_of(30), 51u);
  cr_assert(store.keep_within(100'000, 1 << 30).ok());
  cr_assert_eq(events_of(34), 0u);
  cr_assert_lt(events_of(40), 201u);
  cr_assert_gt(events_of(40), 50u, "the newest stay");
  cr_assert(store.keep_within(1 << 20, 60'000).ok());
  cr_assert_eq(events_of(30), 51u, "who has most makes room");
}
