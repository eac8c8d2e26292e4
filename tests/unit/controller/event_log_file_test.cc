// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/event_log.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <vector>

using namespace swell;
using swell::controller::EventLog;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    char name[] = "/tmp/swell-event-log-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

Test(event_log_file, an_event_is_one_line_of_json_and_a_sentence_for_the_log) {
  const Folder folder;
  std::vector<std::string> said;
  EventLog events(folder.path / "events", [&](const std::string& line) { said.push_back(line); });
  events.event("released", {{"job", 17}, {"reason", "two\nlines"}}, "job 17 gave a GPU back");
  events.event("status", {{"job", 17}});
  const std::string text = text_of(folder.path / "events");
  cr_assert_eq(std::count(text.begin(), text.end(), '\n'), 2, "%s", text.c_str());
  const auto first = Json::parse(text.substr(0, text.find('\n')));
  cr_assert(first.ok());
  cr_assert_eq(first->string_at("event").value(), "released");
  cr_assert_eq(first->string_at("reason").value(), "two\nlines");
  cr_assert_eq(said.size(), 1u);
}

Test(event_log_file, a_line_of_it_commands_no_terminal) {
  const Folder folder;
  const std::string hostile = "\u009b2J\u202e\x7f\x1b[31m\xff";
  EventLog events(folder.path / "events", [](const std::string&) {});
  events.event("no-growth", {{"job", 17}, {"reason", hostile}});
  for (const char c : text_of(folder.path / "events"))
    cr_assert(c == '\n' || (c >= ' ' && c < 0x7f), "%02x", static_cast<unsigned char>(c));
}

Test(event_log_file, without_a_path_only_sentences_are_kept) {
  int said = 0;
  EventLog events("", [&](const std::string&) { ++said; });
  cr_assert_not(events.kept());
  events.event("status", {{"job", 17}}, "a sentence");
  cr_assert_eq(said, 1);
}

Test(event_log_file, a_link_in_its_place_is_not_followed) {
  const Folder folder;
  std::ofstream(folder.path / "other") << "of somebody else\n";
  std::filesystem::create_symlink(folder.path / "other", folder.path / "events");
  std::vector<std::string> said;
  EventLog events(folder.path / "events", [&](const std::string& line) { said.push_back(line); });
  events.event("status", {{"job", 17}});
  events.event("status", {{"job", 18}});
  cr_assert_eq(text_of(folder.path / "other"), "of somebody else\n");
  cr_assert_eq(said.size(), 1u, "said once");
}

Test(event_log_file, a_fifo_in_its_place_holds_nobody_up, .timeout = 20) {
  const Folder folder;
  cr_assert_eq(mkfifo((folder.path / "events").c_str(), 0666), 0);
  int said = 0;
  EventLog events(folder.path / "events", [&](const std::string&) { ++said; });
  events.event("status", {{"job", 17}});
  cr_assert_eq(said, 1);
}

Test(event_log_file, is_not_for_everybody) {
  const Folder folder;
  umask(0);
  EventLog events(folder.path / "events", [](const std::string&) {});
  events.event("status", {{"job", 17}});
  struct stat status {};
  cr_assert_eq(stat((folder.path / "events").c_str(), &status), 0);
  cr_assert_eq(status.st_mode & 0777, 0640u);
}
