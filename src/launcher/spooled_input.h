// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "control/socket.h"
#include "core/result.h"

namespace swell::launcher {

/// Standard input, kept in memory: the program of each generation, on each worker, reads all of it.
class SpooledInput {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

  /// Reads `fd` to its end, which must come within `timeout_s`. The error says why it cannot: more
  /// than kMaxBytes, or no end.
  static Result<SpooledInput> read_from(int fd, double timeout_s);

  /// Returns a new descriptor, at the beginning of the input and closed by exec.
  Descriptor open() const;
  /// Replaces standard input, in the child that becomes the program. Safe after fork().
  void become_standard_input() const;

 private:
  explicit SpooledInput(Descriptor memory) : memory_(std::move(memory)) {}
  Descriptor memory_;
};

/// How swellrun treats its own standard input.
struct InputPlan {
  std::optional<SpooledInput> spooled;  ///< given to every step; none: srun handles the input
  std::string no_growth;                ///< not empty: why the program cannot be started again
};

/// `option`: the value of srun's --input, if given. Reads a file, or a pipe whose writers have
/// ended. Does not read a terminal or another pipe: srun passes what they say to the first program
/// alone.
InputPlan plan_input(const std::optional<std::string>& option, int standard_input);

}  // namespace swell::launcher
