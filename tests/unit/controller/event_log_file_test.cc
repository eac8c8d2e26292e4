// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/event_log.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
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

// A limit of the file's size does what a full disk does: a part of the line is taken.
Test(event_log_file, events_wait_for_a_full_disk_and_the_reason_is_said_once) {
  const Folder folder;
  std::vector<std::string> said;
  EventLog events(folder.path / "events", [&](const std::string& line) { said.push_back(line); });
  events.event("status", {{"job", 17}});
  const std::string first = text_of(folder.path / "events");
  signal(SIGXFSZ, SIG_IGN);
  rlimit all{};
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
  const rlimit full{first.size() + 10, all.rlim_max};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
  events.event("status", {{"job", 18}});
  const rlimit nearly{first.size() + first.size() * 3 / 2, all.rlim_max};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &nearly), 0);
  events.event("status", {{"job", 19}});  // alone it would fit
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
  const std::string there = text_of(folder.path / "events");
  cr_assert_eq(there.size(), 2 * first.size(), "no half line: %s", there.c_str());
  cr_assert_neq(there.find("\"job\":18"), there.npos, "none before another: %s", there.c_str());
  cr_assert_eq(said, (std::vector<std::string>{"EventLog=" + (folder.path / "events").string() +
                                               ": File too large; events wait"}));
  cr_assert(events.troubles().contains("EventLog"));
  events.event("status", {{"job", 20}});
  cr_assert_not(events.troubles().contains("EventLog"));
  const std::string text = text_of(folder.path / "events");
  std::istringstream lines(text);
  std::string line;
  for (int job = 17; job <= 20; ++job) {
    cr_assert(std::getline(lines, line), "%s", text.c_str());
    cr_assert_eq(Json::parse(line)->number_at("job", 0, 100).value(), job, "%s", text.c_str());
  }
  cr_assert_not(std::getline(lines, line));
}

Test(event_log_file, waiting_events_are_bounded_and_dropped_ones_are_said_and_counted) {
  const Folder folder;
  std::vector<std::string> said;
  EventLog events(folder.path / "events", [&](const std::string& line) { said.push_back(line); });
  signal(SIGXFSZ, SIG_IGN);
  rlimit all{};
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
  const rlimit full{10, all.rlim_max};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int i = 0; i < 10000; ++i) events.event("rounds", {{"text", std::string(400, 'x')}});
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
  cr_assert_eq(said.size(), 2u, "%zu lines", said.size());
  cr_assert(said[1].ends_with(": File too large; events are not kept"), "%s", said[1].c_str());
  events.event("rounds", {{"text", "last"}});
  const std::string text = text_of(folder.path / "events");
  cr_assert_leq(text.size(), std::size_t{1} << 20);
  const auto kept = std::count(text.begin(), text.end(), '\n');
  cr_assert_geq(kept, 1000);
  cr_assert(text.ends_with("\"last\"}\n"), "%s", text.substr(text.size() - 100).c_str());
}

Test(event_log_file, an_event_costs_no_more_the_more_lines_wait_and_room_is_used_at_once) {
  const Folder folder;
  EventLog events(folder.path / "events", [](const std::string&) {});
  const auto lines = [&] {
    const std::string text = text_of(folder.path / "events");
    return std::count(text.begin(), text.end(), '\n');
  };
  signal(SIGXFSZ, SIG_IGN);
  rlimit all{};
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
  rlimit room{10, all.rlim_max};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &room), 0);
  const int waiting = 1500;
  for (int i = 0; i < waiting; ++i)
    events.event("rounds", {{"n", i}, {"text", std::string(400, 'x')}});
  cr_assert_leq(events.tried_bytes(), waiting * std::uint64_t{5000}, "%llu bytes",
                static_cast<unsigned long long>(events.tried_bytes()));
  // Room comes bit by bit: each time the oldest lines take it.
  for (int i = 1; i <= 3; ++i) {
    room.rlim_cur = static_cast<rlim_t>(i) * 200'000;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &room), 0);
    events.event("rounds", {{"n", waiting + i - 1}, {"text", std::string(400, 'x')}});
    if (i < 3) cr_assert_geq(lines(), i * 400, "%ld", static_cast<long>(lines()));
  }
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
  events.event("rounds", {{"n", waiting + 3}});
  cr_assert_leq(events.tried_bytes(), (waiting + 4) * std::uint64_t{6000});
  std::ifstream file(folder.path / "events");
  std::string line;
  for (int i = 0; i < waiting + 4; ++i) {
    cr_assert(std::getline(file, line), "line %d", i);
    cr_assert_eq(Json::parse(line)->number_at("n", 0, 10000).value(), i);
  }
  cr_assert_not(std::getline(file, line));
}
