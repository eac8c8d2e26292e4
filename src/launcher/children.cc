// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/children.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/file_limit.h"

namespace swell::launcher {

namespace {

constexpr std::size_t kMaxShown = 300;

/// Returns the last part of what a command wrote, which says why it ended.
std::string the_end_of(std::string output) {
  if (output.size() > kMaxShown) output.replace(0, output.size() - kMaxShown, "...");
  return output;
}

/// Runs in the child. Threads of the parent may have held any lock during fork(), so nothing is
/// called that could wait for one.
[[noreturn]] void become(const std::vector<char*>& argv, const std::vector<char*>& envp,
                         Children::How how, int input, int output, int telling) {
  if (!how.foreground) setpgid(0, 0);
  if (input >= 0) {
    dup2(input, 0);
  } else if (!how.foreground) {
    const int null = open("/dev/null", O_RDONLY);
    if (null > 0) dup2(null, 0);
    if (null > 2) close(null);
  }
  if (how.capture) {
    dup2(output, 1);
    dup2(output, 2);
  }
  restore_file_limit();
  for (int each = 1; each < NSIG; ++each) std::signal(each, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(argv.front(), argv.data(), envp.data());
  const int problem = errno;
  [[maybe_unused]] const auto written = ::write(telling, &problem, sizeof problem);
  _exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<pid_t> Children::start(const std::vector<std::string>& command,
                              const std::vector<std::string>& environment, How how) {
  int ends[2] = {-1, -1};
  if (how.capture && pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return Error(fmt::format("starting {}: {}", command.front(), std::strerror(errno)));
  Descriptor reading(ends[0]), writing(ends[1]);

  int status[2];
  if (pipe2(status, O_CLOEXEC) != 0)
    return Error(fmt::format("starting {}: {}", command.front(), std::strerror(errno)));
  const Descriptor failure(status[0]);
  Descriptor telling(status[1]);
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  const Descriptor input = how.input != nullptr ? how.input->open() : Descriptor();
  const pid_t pid = fork();
  if (pid < 0) return Error(fmt::format("starting {}: {}", command.front(), std::strerror(errno)));
  if (pid == 0) become(argv, envp, how, input.get(), writing.get(), telling.get());
  telling = Descriptor();
  int problem = 0;
  while (::read(failure.get(), &problem, sizeof problem) < 0 && errno == EINTR) continue;
  if (problem != 0) {
    waitpid(pid, nullptr, 0);
    return Error(fmt::format("starting {}: {}", command.front(), std::strerror(problem)));
  }
  children_[pid].pipe = std::move(reading);
  return pid;
}

std::string Children::output_so_far(pid_t pid) const {
  const auto found = children_.find(pid);
  return found != children_.end() ? found->second.output : std::string();
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
      if (child.output.size() < (std::size_t{1} << 24))
        child.output.append(bytes, static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      if (count == 0) child.pipe = Descriptor();
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

Result<std::string> Children::output_of(const std::vector<std::string>& command,
                                        const std::vector<std::string>& environment,
                                        double timeout_s) {
  using Clock = std::chrono::steady_clock;
  Children children;
  const Result<pid_t> pid = children.start(command, environment, {.capture = true});
  if (!pid) return pid.error();
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  bool late = false;
  for (;;) {
    std::vector<pollfd> polled;
    children.add_to(polled);
    // Usually the pipe's end shows that the child ends; the timeout is for one that closed it.
    poll(polled.data(), polled.size(), polled.empty() ? 5 : 50);
    children.read();
    for (Ended& ended : children.reap()) {
      if (late)
        return Error(fmt::format("{} did not end within {:g} s", command.front(), timeout_s));
      if (ended.exit.status() != 0)
        return Error(fmt::format("{} ended with {}: {}", command.front(), ended.exit.status(),
                                 the_end_of(std::move(ended.output))));
      return std::move(ended.output);
    }
    if (!late && Clock::now() > deadline) {
      late = true;
      children.signal(*pid, SIGKILL);
    }
  }
}

}  // namespace swell::launcher
