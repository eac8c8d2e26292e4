// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/socket.h"
#include "core/result.h"

namespace swell::launcher {

/// Where the programs of a shim say what they can do, in either mode: an abstract UNIX socket for
/// datagrams, which SWELL_SHIM names to them. Without a file there is nothing to clean up, and
/// containers reach it as long as they share the node's network.
class ProgramSocket {
 public:
  static Result<ProgramSocket> open();

  int fd() const noexcept { return fd_.get(); }
  /// "@NAME", for SWELL_SHIM.
  const std::string& name() const noexcept { return name_; }
  /// The numbers of workers that were said last since the last call; nothing: none were. What is
  /// not this user's, or cannot be read, is dropped. Does not wait.
  std::optional<std::vector<int>> take_sizes() const;

 private:
  ProgramSocket(control::Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  control::Fd fd_;
  std::string name_;
};

/// Reads "sizes 1 2 4": rising numbers of workers; "sizes" alone: any number. The error names what
/// is wrong.
Result<std::vector<int>> sizes_from(std::string_view text);

}  // namespace swell::launcher
