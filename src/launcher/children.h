// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <poll.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "control/socket.h"
#include "core/result.h"
#include "launcher/process_runner.h"

namespace swell::launcher {

/// Child processes, started without a shell and identified by pid. For one thread only.
class Children final : public ProcessRunner {
 public:
  Result<pid_t> start(const std::vector<std::string>& command,
                      const std::vector<std::string>& environment, How how) override;
  void signal(pid_t pid, int number) const override;
  std::string output_so_far(pid_t pid) const override;
  bool none() const override { return children_.empty(); }
  void add_to(std::vector<pollfd>& polled) const override;
  void read() override;
  std::vector<Ended> reap() override;

  /// Runs one child and returns its output; an error if it fails or takes longer than `timeout_s`.
  static Result<std::string> output_of(const std::vector<std::string>& command,
                                       const std::vector<std::string>& environment,
                                       double timeout_s);

 private:
  bool runs(pid_t pid) const { return children_.contains(pid); }
  struct Child {
    Descriptor pipe;
    std::string output;
  };
  static void drain(Child& child);
  std::map<pid_t, Child> children_;
};

}  // namespace swell::launcher
