// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/event_log.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using swell::controller::EventLog;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    char text[] = "/tmp/swell-event-log-test-XXXXXX";
    path = mkdtemp(text);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

int lines_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  return lines;
}

}  // namespace

Test(event_log, the_file_and_its_predecessor_are_bounded) {
  Folder folder;
  const auto path = folder.path / "events";
  EventLog log(
      path, [](const std::string&) {}, 1000);
  for (int i = 0; i < 500; ++i) log.event("status", {{"job", i}});
  cr_assert_leq(std::filesystem::file_size(path), 1000u);
  cr_assert_leq(std::filesystem::file_size(folder.path / "events.1"), 1000u);
  cr_assert_gt(lines_of(path) + lines_of(folder.path / "events.1"), 10);
  cr_assert_eq(std::distance(std::filesystem::directory_iterator(folder.path), {}), 2);
}

Test(event_log, a_flood_is_cut_and_what_comes_slowly_is_not) {
  EventLog log("", [](const std::string&) {});
  int said = 0;
  for (int i = 0; i < 10000; ++i) said += log.may_say(7, 50 + i * 0.001);
  cr_assert_leq(said, 111);
  cr_assert(log.may_say(8, 60), "another job's lines are its own");
  for (int i = 0; i < 1000; ++i) cr_assert(log.may_say(7, 1000 + i), "one a second");
}

Test(event_log, a_jobs_flood_is_cut_everywhere_and_told_of_once) {
  Folder folder;
  const auto path = folder.path / "events";
  int said = 0, heard = 0, told = 0;
  EventLog log(path, [&](const std::string& line) {
    ++said;
    told += line.find("left out 9900 events of job 12") != std::string::npos;
  });
  log.set_listener([&](const std::string&, const swell::Json&) { ++heard; });
  log.begin_round(50);
  for (int i = 0; i < 10000; ++i) log.event("no-growth", {{"job", 12}}, "a line");
  log.event("no-growth", {{"job", 13}}, "another job's lines are its own");
  cr_assert_eq(lines_of(path), 101);
  cr_assert_eq(said, 101);
  cr_assert_eq(heard, 101);
  for (int i = 0; i < 100; ++i) log.begin_round(55 + i);
  cr_assert_eq(told, 1);
  cr_assert_eq(said, 102);
}

Test(event_log, a_user_with_many_jobs_has_a_limit_of_all_of_them) {
  int said = 0;
  EventLog log("", [&](const std::string&) { ++said; });
  log.set_owners([](std::uint64_t job) { return std::optional<uid_t>(job < 1000 ? 1000 : 1001); });
  log.begin_round(50);
  for (int job = 1; job < 100; ++job)
    for (int i = 0; i < 50; ++i) log.event("asked", {{"job", job}}, "a line");
  cr_assert_eq(said, 1000);
  log.event("asked", {{"job", 1000}}, "another user's");
  cr_assert_eq(said, 1001);
}

Test(event_log, lent_gpus_and_jobs_are_never_left_out) {
  int said = 0;
  EventLog log("", [&](const std::string&) { ++said; });
  log.begin_round(50);
  for (int i = 0; i < 1000; ++i) log.event("companion-started", {{"job", 12}}, "a line");
  for (int i = 0; i < 200; ++i) log.event("status", {{"job", 12}}, "a line");
  log.event("job-ended", {{"job", 12}}, "a line");
  cr_assert_eq(said, 1101);
}

Test(event_log, long_texts_are_cut_at_a_whole_character) {
  cr_assert_eq(swell::controller::shortened("abc", 3), "abc");
  cr_assert_eq(swell::controller::shortened("ab\xc3\xa4", 3), "ab...");
  std::string heard;
  EventLog log("", [](const std::string&) {});
  log.set_listener(
      [&](const std::string&, const swell::Json& line) { heard = *line.string_at("reason"); });
  log.event("no-growth", {{"job", 12}, {"reason", std::string(4000, 'y')}});
  cr_assert_leq(heard.size(), 510u);
}
