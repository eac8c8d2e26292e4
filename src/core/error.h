// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace swell {

/// Memory that was needed on a GPU, and that was free there.
struct Shortage {
  std::uint64_t needed_bytes = 0, free_bytes = 0;
};

/// Kind of a failure, for callers that act on it. The numbers go over the wire: append new ones.
enum class ErrorCode : std::uint8_t {
  failed = 0,     ///< any other failure
  no_memory = 1,  ///< a GPU lacks memory: shortage() says how much
  cancelled = 2,  ///< another party called the operation off
  not_found = 3,  ///< what was asked for does not exist
  not_asked = 4,  ///< the question was never asked, so there is no answer
};

/// Reason of an expected failure: one sentence that names what failed, which value it had, and what
/// to do. The same sentence reaches the log, the command line and the tests; callers that act
/// differently for some failures look at code(), never at the sentence.
class Error {
 public:
  explicit Error(std::string message, std::optional<Shortage> shortage = {})
      : message_(std::move(message)),
        code_(shortage ? ErrorCode::no_memory : ErrorCode::failed),
        shortage_(shortage) {}
  Error(ErrorCode code, std::string message) : message_(std::move(message)), code_(code) {}

  /// The sentence, without a prefix or a final newline.
  const std::string& message() const noexcept { return message_; }

  ErrorCode code() const noexcept { return code_; }

  /// Returns how much memory a GPU lacks, for no_memory: the caller may find another way.
  const std::optional<Shortage>& shortage() const noexcept { return shortage_; }

  /// Returns the same error seen from one level up: "reading x: ...".
  Error while_doing(const std::string& what) const {
    Error outer = *this;
    outer.message_ = what + ": " + message_;
    return outer;
  }

 private:
  std::string message_;
  ErrorCode code_;
  std::optional<Shortage> shortage_;
};

}  // namespace swell
