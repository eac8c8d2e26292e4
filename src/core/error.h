// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace swell {

/// Memory that a GPU does not have.
struct Shortage {
  std::uint64_t needed_bytes = 0, free_bytes = 0;
};

/// Reason of an expected failure: one sentence that names what failed, which value it had, and what
/// would be right. The same sentence reaches the log, the command line and the tests.
class Error {
 public:
  explicit Error(std::string message, std::optional<Shortage> shortage = {})
      : message_(std::move(message)), shortage_(shortage) {}

  /// The sentence, without a prefix or a final newline.
  const std::string& message() const noexcept { return message_; }

  /// Where a GPU's lack of memory is the reason: the caller may find another way.
  const std::optional<Shortage>& shortage() const noexcept { return shortage_; }

  /// The same error seen from one level up: "reading x: ...".
  Error while_doing(const std::string& what) const {
    return Error(what + ": " + message_, shortage_);
  }

 private:
  std::string message_;
  std::optional<Shortage> shortage_;
};

}  // namespace swell
