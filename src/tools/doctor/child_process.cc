// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/socket.h"

extern char** environ;

namespace swell::tools::doctor {

namespace {

/// One of the child's output streams, and the text read from it.
struct Stream {
  Descriptor read_end, write_end;
  std::string text;

  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = Descriptor(ends[0]);
    write_end = Descriptor(ends[1]);
    return true;
  }
  /// Reads once. Returns false at the end of the stream.
  bool read_some() {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(read_end.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) return true;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
  }
};

/// Reads both streams to their ends. Returns false if that takes longer than `patience`.
bool read_all(Stream& out, Stream& err, std::chrono::seconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  std::array<Stream*, 2> streams{&out, &err};
  std::array<pollfd, 2> polled{pollfd{out.read_end.get(), POLLIN, 0},
                               pollfd{err.read_end.get(), POLLIN, 0}};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(polled.data(), polled.size(), static_cast<int>(left)) < 0 && errno != EINTR)
      return false;
    for (std::size_t i = 0; i < polled.size(); ++i)
      if (polled[i].revents != 0 && !streams[i]->read_some()) polled[i].fd = -1;
  }
  return true;
}

}  // namespace

Result<std::string> output_of(const std::vector<std::string>& command,
                              std::chrono::seconds patience) {
  Stream out, err;
  if (!out.open() || !err.open()) return Error(fmt::format("pipe: {}", std::strerror(errno)));
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end.get(), STDERR_FILENO);
  pid_t child = 0;
  const int problem =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) return Error(fmt::format("{}: {}", command[0], std::strerror(problem)));
  out.write_end = {};
  err.write_end = {};

  const bool ended = read_all(out, err, patience);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (!ended) return Error(fmt::format("{} did not end within {} s", command[0], patience.count()));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::move(out.text);
  const std::string said = err.text.substr(0, err.text.find('\n'));
  return Error(said.empty() ? fmt::format("{} failed", command[0]) : said);
}

}  // namespace swell::tools::doctor
