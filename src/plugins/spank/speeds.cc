// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/spank/speeds.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace swell::spank {

namespace {

/// Maximum size of the output, more than any table of speeds or error needs.
constexpr std::size_t kMaxOutput = 16384;

}  // namespace

Result<std::string> read_speeds(const std::string& program, const std::string& file) {
  const auto failed = [&](const std::string& why) {
    return Error(fmt::format("--elastic: table={} is not read: {}", file, why));
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execl(program.c_str(), "swell", "speeds", "--", file.c_str(), nullptr);
    _exit(127);
  }
  const int problem = errno;
  close(ends[1]);
  std::string output;
  char part[4096];
  while (child > 0 && output.size() < kMaxOutput) {
    const ssize_t got = read(ends[0], part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(part, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  if (child < 0) return failed(std::strerror(problem));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  while (!output.empty() && output.back() == '\n') output.pop_back();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && output.empty())
    return failed(fmt::format("{} cannot be run; install it on this host", program));
  const std::string prefix = "swell: ";
  if (output.rfind(prefix, 0) == 0) output.erase(0, prefix.size());
  return output.empty() ? failed(program + " failed") : Error(output);
}

}  // namespace swell::spank
