// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/event_log.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace swell::controller {

namespace {

/// Of lines that one source causes.
constexpr double kBurst = 100;
constexpr double kLinesPerSecond = 1;
constexpr std::size_t kMaxSources = 100'000;
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

void EventLog::event(const char* name, std::initializer_list<std::pair<const char*, Json>> members,
                     const std::string& sentence) {
  if (!sentence.empty()) log_(sentence);
  if (path_.empty() && !listener_) return;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json line = Json::object({{"time", std::round(now * 1000) / 1000}, {"event", name}});
  for (const auto& [key, value] : members) line.set(key, value);
  if (listener_) listener_(name, line);
  if (path_.empty()) return;
  const std::string text = line.dump() + "\n";
  // Opened for each line, so that logrotate needs no signal; one write() keeps lines whole.
  struct stat file {};
  if (::lstat(path_.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
      file.st_size + static_cast<off_t>(text.size()) > max_bytes_ &&
      std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) {
    if (!complained_)
      log_(
          fmt::format("EventLog={}: it has {} bytes and cannot be renamed: {}; events are not kept",
                      path_, file.st_size, std::strerror(errno)));
    complained_ = true;
    return;
  }
  const int fd = open_for_lines(path_);
  const bool good =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!good && !complained_)
    log_(fmt::format("EventLog={}: {}; events are not kept", path_, std::strerror(errno)));
  complained_ = !good;
  if (fd >= 0) ::close(fd);
}

bool EventLog::may_say(std::uint64_t source, double now) {
  if (allowances_.size() >= kMaxSources)
    std::erase_if(allowances_, [&](const auto& each) {
      return now - each.second.at >= kBurst / kLinesPerSecond;
    });
  if (allowances_.size() >= kMaxSources && !allowances_.contains(source)) return false;
  Allowance& allowance = allowances_.try_emplace(source, Allowance{kBurst, now}).first->second;
  allowance.lines = std::min(kBurst, allowance.lines + (now - allowance.at) * kLinesPerSecond);
  allowance.at = now;
  if (allowance.lines < 1) return false;
  allowance.lines -= 1;
  return true;
}

}  // namespace swell::controller
