// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/program.h"

#include <cerrno>
#include <chrono>
#include <criterion/criterion.h>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

using namespace swell::launcher;

namespace {

/// A shell script as the program; it is read line by line what it says.
class Script {
 public:
  explicit Script(std::string text) : text_(std::move(text)) {
    cr_assert(pipe2(ends_, O_CLOEXEC) == 0 && pipe2(input_, O_CLOEXEC) == 0);
    const int saved = dup(STDOUT_FILENO);
    dup2(ends_[1], STDOUT_FILENO);
    dup2(input_[0], STDIN_FILENO);
    char shell[] = "bash", option[] = "-c";
    char* command[] = {shell, option, text_.data(), nullptr};
    cr_assert(program.start(command, {{"SLURM_JOB_ID", "5"}}));
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(ends_[1]);
  }
  ~Script() {
    program.signal(SIGKILL);
    while (program.runs() && !program.reap()) poll(nullptr, 0, 5);
  }
  /// Lets a `read` of the script return.
  void go_on() { cr_assert_eq(write(input_[1], "\n", 1), 1); }
  std::string line() {
    std::string line;
    char byte = 0;
    while (read(ends_[0], &byte, 1) == 1 && byte != '\n') line += byte;
    return line;
  }
  Program program;

 private:
  std::string text_;
  int ends_[2], input_[2];
};

}  // namespace

Test(program, it_listens_once_it_has_a_handler, .timeout = 60) {
  Script script("echo up; read -r; trap : USR1; echo handles; while :; do sleep 0.1; done");
  cr_assert_eq(script.line(), std::string("up"));
  cr_assert_not(script.program.listens_to(SIGUSR1));
  script.go_on();
  cr_assert_eq(script.line(), std::string("handles"));
  cr_assert(script.program.listens_to(SIGUSR1));
  cr_assert_not(script.program.listens_to(SIGUSR2));
}

Test(program, a_handler_of_what_it_started_counts, .timeout = 60) {
  Script script("bash -c 'trap : USR1; echo handles; while :; do sleep 0.1; done'; :");
  cr_assert_eq(script.line(), std::string("handles"));
  cr_assert(script.program.listens_to(SIGUSR1));
}

Test(program, a_handler_that_hands_signals_on_is_not_the_program_s, .timeout = 60) {
  Script script(
      "cd \"$(mktemp -d)\" && printf '%s\\n' 'trap : USR1' 'bash -c \"echo up; read -r; trap : USR1; "
      "echo handles; while :; do sleep 0.1; done\"' : > run && exec -a uv bash run");
  cr_assert_eq(script.line(), std::string("up"));
  cr_assert_not(script.program.listens_to(SIGUSR1), "that of `uv run` alone");
  script.go_on();
  cr_assert_eq(script.line(), std::string("handles"));
  cr_assert(script.program.listens_to(SIGUSR1));
}

Test(program, ignoring_the_signal_is_not_listening, .timeout = 60) {
  Script script("trap '' USR1; echo up; exec sleep 60");
  cr_assert_eq(script.line(), std::string("up"));
  cr_assert_not(script.program.listens_to(SIGUSR1));
  cr_assert_not(script.program.listens_to(SIGUSR1));
}

// As a process that waits for a device, or one of root's that `sudo` began: Slurm ends the step.
Test(program, remaining_processes_that_cannot_be_killed_do_not_delay_its_end, .timeout = 60) {
  if (geteuid() != 0) cr_skip("only root can leave what its parent may not signal");
  int lives[2];  // as long as one of the others
  cr_assert_eq(pipe2(lives, O_CLOEXEC), 0);
  const pid_t shim = fork();
  if (shim == 0) {
    const pid_t left = fork();
    if (left == 0) {
      char nothing = 0;
      close(lives[1]);
      _exit(read(lives[0], &nothing, 1) == 0 ? 0 : 1);
    }
    Program program;
    char name[] = "true";
    char* command[] = {name, nullptr};
    if (setresuid(65534, 65534, 65534) != 0 || !program.start(command, {})) _exit(2);
    std::optional<int> status;
    while (!(status = program.reap())) poll(nullptr, 0, 5);
    _exit(*status == 0 && kill(left, 0) != 0 && errno == EPERM ? 0 : 3);
  }
  close(lives[1]);
  int status = -1;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (waitpid(shim, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline)
    poll(nullptr, 0, 20);
  if (status == -1) kill(shim, SIGKILL);
  cr_assert_eq(status, 0, "%d", status);
}

Test(program, variables_of_one_workers_allocation_do_not_reach_it, .timeout = 60) {
  setenv("SLURM_JOB_ID", "9", 1);
  setenv("SLURM_JOB_NAME", "swell-5", 1);
  setenv("SLURM_LOCALID", "1", 1);
  Script script("echo $SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_LOCALID");
  cr_assert_eq(script.line(), std::string("5 1"));
}
