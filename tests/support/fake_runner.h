// SPDX-License-Identifier: GPL-2.0-or-later
// A ProcessRunner that starts nothing and keeps what it was asked for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process_runner.h"

namespace support {

class FakeRunner final : public swell::launcher::ProcessRunner {
 public:
  struct Started {
    pid_t pid = 0;
    std::vector<std::string> command, environment;
    How how;
  };
  swell::Result<pid_t> start(const std::vector<std::string>& command,
                             const std::vector<std::string>& environment, How how) override {
    if (fails) return swell::Error("starting " + command.front() + ": no more processes");
    const pid_t pid = next_pid++;
    started.push_back({pid, command, environment, how});
    if (on_start) on_start(started.back());
    return pid;
  }
  void signal(pid_t pid, int number) const override { signals.emplace_back(pid, number); }
  std::string output_so_far(pid_t pid) const override {
    const auto found = outputs.find(pid);
    return found != outputs.end() ? found->second : "";
  }
  bool none() const override { return reaped == started.size(); }
  void add_to(std::vector<pollfd>&) const override {}
  void read() override {}
  std::vector<Ended> reap() override {
    reaped += ending.size();
    return std::exchange(ending, {});
  }

  /// The last process that was started.
  const Started& last() const { return started.back(); }
  static Ended ended(pid_t pid, int code = 0, std::string output = "") {
    return {pid, {code, 0}, std::move(output)};
  }

  bool fails = false;
  pid_t next_pid = 100;
  std::vector<Started> started;
  std::function<void(Started)> on_start;
  std::vector<Ended> ending;  ///< is returned by the next reap()
  std::size_t reaped = 0;
  std::map<pid_t, std::string> outputs;
  mutable std::vector<std::pair<pid_t, int>> signals;
};

}  // namespace support
