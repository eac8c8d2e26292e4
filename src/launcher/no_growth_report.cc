// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/no_growth_report.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/socket.h"

namespace swell::launcher {

namespace {

constexpr int kHeartbeat_ms = 20'000;

/// Reports until the process behind `caller` has ended.
void report_until_ended(const NoGrowthReport& report, int caller) {
  ControllerLink link(report.controller, report.hello, [] {});
  control::Status status;
  status.state = control::JobState::active;
  status.workers = report.hello.workers;
  status.no_growth = report.hello.no_growth;
  pollfd ended{caller, POLLIN, 0};
  while (ended.revents == 0) {
    link.send(status);
    link.take();
    link.take_news();
    poll(&ended, 1, kHeartbeat_ms);
  }
  // Ends without a message: the exit code of srun is not known here.
  link.flush(std::chrono::milliseconds(0));
  _exit(0);
}

}  // namespace

void report_no_growth(const NoGrowthReport& report) {
  const Descriptor caller(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!caller) return;  // Linux before 5.3
  const pid_t child = fork();
  if (child < 0) return;
  if (child > 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    return;
  }
  // srun must have no child that it did not start, nor may its output stay open when it has ended.
  if (fork() != 0) _exit(0);
  setsid();
  std::signal(SIGPIPE, SIG_IGN);
  const int null = open("/dev/null", O_RDWR);
  for (int each = 0; each < 3; ++each) dup2(null, each);
  try {
    report_until_ended(report, caller.get());
  } catch (const std::exception&) {}
  _exit(0);
}

}  // namespace swell::launcher
