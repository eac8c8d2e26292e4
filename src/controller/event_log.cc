// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/event_log.h"

#include "control/write_all.h"
#include "core/count_of.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace swell::controller {

namespace {

/// Limits of the lines that one source causes.
constexpr double kBurst = 100;
constexpr double kLinesPerSecond = 1;
constexpr std::size_t kMaxSources = 100'000;
/// A source from kUsers on is a user (kUsers plus the uid), for all of its jobs together: it may
/// cause kJobsOfUser times as many lines.
constexpr std::uint64_t kUsers = std::uint64_t{2} << 32;
constexpr double kJobsOfUser = 10;
/// A flood is over, and is told of, once nothing was left out for so long.
constexpr double kFloodOver_s = 10;
/// Lines that wait for room on the disk, in all.
constexpr std::size_t kMaxWaiting = std::size_t{1} << 20;
/// The part of these that is tried at once. As long as the disk is full, each event costs one such
/// piece.
constexpr std::size_t kPiece = 4096;
/// Longest text of an event: agents send up to 4096 bytes.
constexpr std::size_t kMaxText = 500;

/// Events that come at the pace at which GPUs are lent, or once a job.
bool is_paced(std::string_view name) {
  static constexpr std::string_view kPaced[] = {"cancel",
                                                "companion-ended",
                                                "companion-excessive",
                                                "companion-lost",
                                                "companion-preempted",
                                                "companion-started",
                                                "grant",
                                                "grant-expired",
                                                "job-ended",
                                                "job-started",
                                                "reclaim"};
  return std::find(std::begin(kPaced), std::end(kPaced), name) != std::end(kPaced);
}

Json shortened_json(const Json& value) {
  const char* text = json_string_value(value.get());
  return text != nullptr && json_string_length(value.get()) > kMaxText
             ? Json(shortened(text, kMaxText))
             : value;
}
/// As Slurm's own logs: it names jobs, nodes and users.
constexpr mode_t kMode = 0640;

/// Opens the file to write at its end: no link, and nothing but a file, wherever users may write
/// beside it. -1 with errno where it is something else.
int open_for_lines(const std::string& path) {
  // O_NONBLOCK: a FIFO without a reader is refused, not waited for.
  const int fd =
      ::open(path.c_str(),
             O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, kMode);
  if (fd < 0) return fd;
  struct stat file {};
  if (::fstat(fd, &file) == 0 && S_ISREG(file.st_mode)) return fd;
  ::close(fd);
  errno = EINVAL;
  return -1;
}

}  // namespace

/// Adds all of the lines or, as where the disk is full, none of it: the next would stand behind its
/// first part. False: errno says why.
bool EventLog::add_piece(int fd, std::string_view lines) {
  struct stat before {};
  const bool is_known = ::fstat(fd, &before) == 0;
  tried_bytes_ += lines.size();
  if (control::write_all(fd, lines)) return true;
  const int problem = errno;
  [[maybe_unused]] const bool is_cut = is_known && ::ftruncate(fd, before.st_size) == 0;
  errno = problem;
  return false;
}

/// Adds the lines that wait, piece by piece, until the disk takes no more. False: errno says why.
bool EventLog::add_waiting(int fd) {
  while (written_ < waiting_.size()) {
    const std::string_view left = std::string_view(waiting_).substr(written_);
    std::size_t end = left.rfind('\n', kPiece);
    if (end == left.npos) end = left.find('\n');
    if (!add_piece(fd, left.substr(0, end + 1))) return false;
    written_ += end + 1;
  }
  waiting_ = {};
  written_ = 0;
  return true;
}

void EventLog::event(const char* name, std::initializer_list<std::pair<const char*, Json>> members,
                     const std::string& sentence) {
  const auto job = std::find_if(members.begin(), members.end(), [](const auto& member) {
    return std::string_view(member.first) == "job";
  });
  if (job != members.end() && is_left_out(name, job->second)) return;
  if (!sentence.empty()) log_(shortened(sentence, 2 * kMaxText));
  if (path_.empty() && !listener_) return;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json line = Json::object({{"time", std::round(now * 1000) / 1000}, {"event", name}});
  for (const auto& [key, value] : members) line.set(key, shortened_json(value));
  if (listener_) listener_(name, line);
  if (path_.empty()) return;
  const std::string text = ascii_text(line) + "\n";
  // Opened for each line, so that logrotate needs no signal; one write() keeps lines whole.
  struct stat file {};
  if (::lstat(path_.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
      file.st_size + static_cast<off_t>(text.size()) > max_bytes_ &&
      std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) {
    return trouble(
        "EventLog",
        fmt::format("EventLog={}: it has {} bytes and cannot be renamed: {}; events are not kept",
                    path_, file.st_size, std::strerror(errno)));
  }
  const int fd = open_for_lines(path_);
  // A short line would fit before the longer ones that wait.
  if (fd >= 0 && add_waiting(fd) && add_piece(fd, text)) {
    fixed("EventLog");
  } else {
    const int problem = errno;
    // No more of the written part is kept than waits.
    if (written_ >= waiting_.size() / 2) {
      waiting_.erase(0, written_);
      written_ = 0;
    }
    // Keeps room for one more line: the next one is written together with these.
    const bool waits = (fd >= 0 || problem == ENOSPC || problem == EDQUOT) &&
                       waiting_.size() - written_ + 2 * text.size() <= kMaxWaiting;
    if (waits) waiting_ += text;
    trouble("EventLog", fmt::format("EventLog={}: {}; events {}", path_, std::strerror(problem),
                                    waits ? "wait" : "are not kept"));
  }
  if (fd >= 0) ::close(fd);
}

void EventLog::say_once(const std::string& of, const std::string& sentence) {
  if (std::string& said = said_[of]; said != sentence) log_(said = sentence);
}

void EventLog::trouble(const std::string& of, const std::string& sentence) {
  troubles_[of] = sentence;
  say_once(of, sentence);
}

void EventLog::fixed(const std::string& of) {
  said_.erase(of);
  troubles_.erase(of);
}

EventLog::Allowance* EventLog::allowance_of(std::uint64_t source, double now) {
  const double times = source >= kUsers ? kJobsOfUser : 1;
  if (allowances_.size() >= kMaxSources)
    std::erase_if(allowances_, [&](const auto& each) {
      return each.second.dropped == 0 && now - each.second.at >= kBurst / kLinesPerSecond;
    });
  if (allowances_.size() >= kMaxSources && !allowances_.contains(source)) return nullptr;
  Allowance& allowance =
      allowances_.try_emplace(source, Allowance{kBurst * times, now, 0, 0}).first->second;
  allowance.lines =
      std::min(kBurst * times, allowance.lines + (now - allowance.at) * kLinesPerSecond * times);
  allowance.at = now;
  return &allowance;
}

bool EventLog::may_say(std::uint64_t source, double now) {
  Allowance* allowance = allowance_of(source, now);
  if (allowance == nullptr || allowance->lines < 1) return false;
  allowance->lines -= 1;
  return true;
}

bool EventLog::is_left_out(std::string_view name, const Json& job) {
  const auto source = static_cast<std::uint64_t>(json_integer_value(job.get()));
  if (source == 0 || is_paced(name)) return false;
  const std::optional<uid_t> uid = owner_of_ ? owner_of_(source) : std::nullopt;
  Allowance* of_user = uid ? allowance_of(kUsers + *uid, now_) : nullptr;
  Allowance* of_job = allowance_of(source, now_);  // last: the map may have been thinned out
  if (of_job == nullptr) return true;
  const bool is_good = of_job->lines >= 1 && (of_user == nullptr || of_user->lines >= 1);
  if (is_good) {
    of_job->lines -= 1;
    if (of_user != nullptr) of_user->lines -= 1;
  } else {
    ++of_job->dropped;
    of_job->dropped_at = now_;
  }
  return !is_good;
}

void EventLog::begin_round(double now) {
  now_ = now;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> over;
  for (auto& [source, allowance] : allowances_)
    if (allowance.dropped > 0 && now - allowance.dropped_at >= kFloodOver_s)
      over.emplace_back(source, std::exchange(allowance.dropped, 0));
  for (const auto& [job, dropped] : over) {
    const std::string sentence =
        fmt::format("left out {} of job {}: it or its user's jobs caused more than are kept",
                    count_of(dropped, "event"), job);
    event("events-left-out", {{"job", job}, {"count", dropped}, {"reason", sentence}}, sentence);
  }
}

std::string shortened(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace swell::controller
