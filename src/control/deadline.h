// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "core/result.h"

namespace swell::control {

/// The time by which a training should be done: `deadline=` of --elastic.
struct Deadline {
  std::int64_t after_s = 0;  ///< seconds after the submission; 0: `at` is set
  std::time_t at = 0;        ///< Unix time

  static constexpr std::int64_t kMin_s = 60, kMax_s = std::int64_t{366} * 24 * 3600;

  /// Reads "6h", "1d12h" (of d, h, m and s; from kMin_s to kMax_s), or a time such as
  /// "2026-12-01T08:00": local time of this host, or UTC with a Z at its end. Returns an error for
  /// any other text, and for a local time that daylight saving skips or repeats.
  static Result<Deadline> parse(std::string_view text);
  /// Returns a text that parse() reads back to the same deadline on every host.
  std::string text() const;
  /// Returns this deadline as a Unix time, for a job that is submitted at `submitted`.
  Deadline from(std::time_t submitted) const noexcept {
    return at != 0 ? *this : Deadline{0, submitted + static_cast<std::time_t>(after_s)};
  }
  friend bool operator==(const Deadline&, const Deadline&) = default;
};

}  // namespace swell::control
