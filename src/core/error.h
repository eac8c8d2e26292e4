// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>

namespace swell {

/// Reason of an expected failure: one sentence that names what failed, which value it had, and what
/// would be right. The same sentence reaches the log, the command line and the tests.
class Error {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}

  /// The sentence, without a prefix or a final newline.
  const std::string& message() const noexcept { return message_; }

  /// The same error seen from one level up: "reading x: ...".
  Error while_doing(const std::string& what) const { return Error(what + ": " + message_); }

 private:
  std::string message_;
};

}  // namespace swell
