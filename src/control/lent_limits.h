// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace swell::control {

/// Largest number of GPUs that may be lent to all jobs of an account, or of a QOS, together.
class LentLimits {
 public:
  /// Reads "physics:64,chemistry:0,*:16": Slurm's names, in any case; `*` stands for each one that
  /// is not named. The error says what is allowed.
  static Result<LentLimits> parse(std::string_view text);

  bool empty() const noexcept { return by_name_.empty(); }
  /// Returns the limit of `name`; nothing: no limit.
  std::optional<int> of(std::string_view name) const;

  friend bool operator==(const LentLimits&, const LentLimits&) = default;

 private:
  std::map<std::string, int, std::less<>> by_name_;  ///< names in lower case
};

}  // namespace swell::control
