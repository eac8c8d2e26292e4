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
