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

  /// Reads to the end, which must come within the time. The error says why not: more than
  /// kMaxBytes, or no end.
  static Result<SpooledInput> read_from(int fd, double timeout_s);

  /// A new descriptor at the beginning, closed by exec.
  Descriptor open() const;
  /// In the child that is to be the program. Safe after fork().
  void become_standard_input() const;

 private:
  explicit SpooledInput(Descriptor memory) : memory_(std::move(memory)) {}
  Descriptor memory_;
};

/// How swellrun treats its own standard input.
struct InputPlan {
  std::optional<SpooledInput> spooled;  ///< given to every step; none: srun's own way
  std::string no_growth;                ///< not empty: why the program cannot be started again
};

/// `option`: the value of srun's --input, where it is given. A file, and a pipe whose writers have
/// ended, are read; what a terminal or another pipe says goes to the first program alone, through
/// srun. Nothing is read from those.
InputPlan plan_input(const std::optional<std::string>& option, int standard_input);

}  // namespace swell::launcher
