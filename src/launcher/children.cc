// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/children.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace swell::launcher {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<pid_t> Children::start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                              How how) {
  int ends[2] = {-1, -1};
  if (how.capture && pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return Error(fmt::format("starting {}: {}", command.front(), std::strerror(errno)));
  control::Fd reading(ends[0]), writing(ends[1]);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (!how.foreground) posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (how.capture) {
    posix_spawn_file_actions_adddup2(&files, writing.get(), 1);
    posix_spawn_file_actions_adddup2(&files, writing.get(), 2);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                           (how.foreground ? 0 : POSIX_SPAWN_SETPGROUP)));
  pid_t pid = -1;
  const int problem = posix_spawnp(&pid, command.front().c_str(), &files, &attributes, pointers(command).data(),
                                   pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (problem != 0) return Error(fmt::format("starting {}: {}", command.front(), std::strerror(problem)));
  children_[pid].pipe = std::move(reading);
  return pid;
}

void Children::signal(pid_t pid, int number) const {
  if (runs(pid)) kill(pid, number);
}

void Children::add_to(std::vector<pollfd>& polled) const {
  for (const auto& [pid, child] : children_)
    if (child.pipe) polled.push_back({child.pipe.get(), POLLIN, 0});
}

void Children::drain(Child& child) {
  char bytes[4096];
  while (child.pipe) {
    const ssize_t count = ::read(child.pipe.get(), bytes, sizeof bytes);
    if (count > 0) {
      if (child.output.size() < (std::size_t{1} << 24)) child.output.append(bytes, static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      if (count == 0) child.pipe = control::Fd();
      return;
    }
  }
}

void Children::read() {
  for (auto& [pid, child] : children_) drain(child);
}

std::vector<Children::Ended> Children::reap() {
  std::vector<Ended> ended;
  for (auto each = children_.begin(); each != children_.end();) {
    int status = 0;
    const pid_t pid = waitpid(each->first, &status, WNOHANG);
    if (pid == 0) {
      ++each;
      continue;
    }
    drain(each->second);
    Exit exit;
    if (pid < 0) exit.code = 1;
    else if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
    else exit.code = WEXITSTATUS(status);
    ended.push_back({each->first, exit, std::move(each->second.output)});
    each = children_.erase(each);
  }
  return ended;
}

Result<std::string> Children::output_of(const std::vector<std::string>& command, double timeout_s) {
  using Clock = std::chrono::steady_clock;
  Children children;
  std::vector<std::string> environment;
  for (char** each = environ; *each != nullptr; ++each) environment.emplace_back(*each);
  const Result<pid_t> pid = children.start(command, environment, {.capture = true});
  if (!pid) return pid.error();
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  bool late = false;
  for (;;) {
    std::vector<pollfd> polled;
    children.add_to(polled);
    // The pipe's end is the usual sign; the short time is for a child that closed it and lives on.
    poll(polled.data(), polled.size(), polled.empty() ? 5 : 50);
    children.read();
    for (Ended& ended : children.reap()) {
      if (late) return Error(fmt::format("{} did not end within {:g} s", command.front(), timeout_s));
      if (ended.exit.status() != 0)
        return Error(fmt::format("{} ended with {}: {}", command.front(), ended.exit.status(), ended.output));
      return std::move(ended.output);
    }
    if (!late && Clock::now() > deadline) {
      late = true;
      children.signal(*pid, SIGKILL);
    }
  }
}

}  // namespace swell::launcher
