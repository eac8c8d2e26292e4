// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/socket.h"
#include "core/result.h"

namespace swell::launcher {

/// How far a training is, as its program reports.
struct MadeSteps {
  std::uint64_t made = 0;
  std::uint64_t total = 0;  ///< at the training's end; 0: not known
  friend bool operator==(const MadeSteps&, const MadeSteps&) = default;
};

/// Socket on which the programs of a shim report what they can do, in both modes: an abstract UNIX
/// socket for datagrams, whose name they find in SWELL_SHIM. Without a file there is nothing to
/// clean up, and containers reach it as long as they share the node's network. Every user of the
/// node may send to it, so the kernel drops each datagram that does not begin with SWELL_SHIM_KEY
/// while it is sent, so that it neither wakes the shim nor takes the place of another one.
class ProgramSocket {
 public:
  static Result<ProgramSocket> open();

  int fd() const noexcept { return fd_.get(); }
  /// "@NAME", for SWELL_SHIM.
  const std::string& name() const noexcept { return name_; }
  /// For SWELL_SHIM_KEY.
  const std::string& key() const noexcept { return key_; }
  struct Said {
    std::vector<int> sizes;  ///< as of sizes_from()
    std::string why;         ///< why the program takes no other sizes, for people; empty: not said
  };
  /// Returns the last numbers of workers that were received since the last call, if any. Drops
  /// datagrams that lack the key, are not this user's, or cannot be read. Does not wait.
  std::optional<Said> take_sizes();
  /// Returns the last number of steps that take_sizes() received since the last call of this
  /// function; nullopt: none.
  std::optional<MadeSteps> take_steps() { return std::exchange(steps_, std::nullopt); }

 private:
  ProgramSocket(Descriptor fd, std::string name, std::string key)
      : fd_(std::move(fd)), name_(std::move(name)), key_(std::move(key)) {}
  Descriptor fd_;
  std::string name_, key_;
  std::string why_;  ///< the reason that belongs to the next sizes
  std::optional<MadeSteps> steps_;
};

/// Reads "sizes 1 2 4": rising numbers of workers; "sizes" alone: any number. The error names what
/// is wrong.
Result<std::vector<int>> sizes_from(std::string_view text);
/// Reads "step 1200" or "step 1200 of 5000": steps that are made, 1 or more, and those that the
/// training has in all. nullopt if the text is neither.
std::optional<MadeSteps> steps_from(std::string_view text);

}  // namespace swell::launcher
