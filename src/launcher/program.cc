// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/program.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "control/printable.h"
#include "launcher/file_limit.h"
#include "launcher/other_launcher.h"
#include "launcher/processes.h"
#include "launcher/worker_environment.h"

namespace swell::launcher {

namespace {

using namespace std::chrono_literals;

constexpr auto kLeftoversTime = 2s;  // between TERM and KILL for what a program left behind
constexpr auto kUnkillable = 5s;     // after KILL, for processes that do not end
constexpr const char* kGeneration = "SWELL_GENERATION";

/// Returns the names of this process's SLURM_* variables that the program shall not see.
std::vector<std::string> foreign_variables() {
  std::vector<std::string> names;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    if (variable.starts_with("SLURM_") && !is_of_the_task(variable))
      names.emplace_back(variable.substr(0, variable.find('=')));
  }
  return names;
}

/// Returns whether the process was started with `variable`, "NAME=VALUE".
bool has_variable(pid_t pid, const std::string& variable) {
  const std::vector<std::string> all = environment_of(pid);
  return std::find(all.begin(), all.end(), variable) != all.end();
}

/// Children of this process that did not end when they were killed: neither this program nor a
/// later one waits for them again.
std::set<pid_t>& undying() {
  static std::set<pid_t> pids;
  return pids;
}

/// Returns whether the process only runs the program that its command names. Its handlers may just
/// forward signals (`uv run`), so only that program's handlers count.
bool runs_another(pid_t pid) {
  const std::vector<std::string> command = command_of(pid);
  return !command.empty() && is_wrapper(command, 0);
}

/// Finds the topmost processes at or below `pid` that handle the signal.
void find_handlers(pid_t pid, int signal, std::vector<pid_t>& found) {
  if (handles(pid, signal) && !runs_another(pid)) {
    found.push_back(pid);
    return;
  }
  for (const pid_t child : children_of(pid)) find_handlers(child, signal, found);
}

}  // namespace

Program::Program() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool Program::start(char** command,
                    const std::vector<std::pair<std::string, std::string>>& environment,
                    const SpooledInput* input) {
  if (runs()) return false;
  blocked_before_ = false;
  generation_.clear();
  for (const auto& [name, value] : environment)
    if (name == kGeneration) generation_ = name + "=" + value;
  const pid_t own = getpid();
  pid_ = fork();
  if (pid_ < 0)
    std::fprintf(stderr, "swell-worker: cannot start a process: %s\n", std::strerror(errno));
  if (pid_ != 0) return pid_ > 0;
  // If the shim is killed, so is its program: nothing may keep the GPUs.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != own) _exit(1);
  restore_file_limit();
  if (input != nullptr) input->become_standard_input();
  for (const std::string& name : foreign_variables()) unsetenv(name.c_str());
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  sigset_t none;
  sigemptyset(&none);
  for (int each = 1; each < NSIG; ++each) std::signal(each, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(command[0], command);
  const int problem = errno;
  std::fprintf(stderr, "swell-worker: cannot run %s: %s\n", control::printable(command[0]).c_str(),
               std::strerror(problem));
  _exit(problem == ENOENT ? 127 : 126);
}

bool Program::listens_to(int number) {
  if (!runs()) return false;
  std::vector<pid_t> handlers;
  find_handlers(pid_, number, handlers);
  // Many programs block all signals for a moment, while they start another one; a program that
  // means to block the signal still does so at the next call.
  const bool blocked = has_signal_in(pid_, "SigBlk:", number);
  return !handlers.empty() || (std::exchange(blocked_before_, blocked) && blocked);
}

void Program::signal(int number) const {
  if (!runs()) return;
  std::vector<pid_t> handlers;
  if (number != SIGKILL && number != SIGSTOP) find_handlers(pid_, number, handlers);
  if (handlers.empty()) handlers = {pid_};
  for (const pid_t pid : handlers) kill(pid, number);
}

std::optional<int> Program::reap(pid_t beside) {
  // Reaps orphans that have ended; each program itself is reaped by its own Program.
  for (const pid_t child : children_of(getpid()))
    if (child != pid_ && child != beside) waitpid(child, nullptr, WNOHANG);
  int status = 0;
  if (!runs() || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  end_leftovers(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, beside);
  return status;
}

/// Returns the children of this process except `beside` and its orphans, which the generation in
/// their environment shows.
std::vector<pid_t> Program::leftovers(pid_t beside) const {
  std::vector<pid_t> left;
  for (const pid_t child : children_of(getpid())) {
    if (child == beside || undying().contains(child)) continue;
    if (beside > 0 && !generation_.empty() && !has_variable(child, generation_)) continue;
    left.push_back(child);
  }
  return left;
}

void Program::end_leftovers(bool at_once, pid_t beside) {
  const std::vector<pid_t> children = children_of(getpid());
  std::erase_if(undying(), [&](pid_t each) {
    return std::find(children.begin(), children.end(), each) == children.end();
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline = at_once ? begin : begin + kLeftoversTime;
  bool told = false;
  for (;;) {
    for (const pid_t child : children_of(getpid()))
      if (child != beside) waitpid(child, nullptr, WNOHANG);
    const std::vector<pid_t> left = leftovers(beside);
    if (left.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now > deadline + kUnkillable) {
      std::fprintf(
          stderr, "swell-worker: %s (process %d), which the program left behind, does not end\n",
          control::printable(name_of(left.front())).c_str(), static_cast<int>(left.front()));
      undying().insert(left.begin(), left.end());
      return;
    }
    const bool force = now >= deadline;
    if (force || !told)
      for (const pid_t pid : left) kill(pid, force ? SIGKILL : SIGTERM);
    told = true;
    std::this_thread::sleep_for(10ms);
  }
}

}  // namespace swell::launcher
