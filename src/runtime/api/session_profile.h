// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "core/result.h"
#include "profiler/profiler.h"
#include "profiler/rank_profile.h"

namespace swell::runtime {

class Session;

/// The times of a session's program, and the reports of them to its shim.
class SessionProfile {
 public:
  explicit SessionProfile(Session& session) noexcept : session_(session) {}

  /// Sets the role; from now on profiles are reported.
  void set_role(const profiler::Role& role) { role_ = role; }
  /// Returns the recorder. Any thread may call it, once Session::adopt() has succeeded.
  profiler::Recorder& recorder() noexcept { return profiler_.recorder(); }
  /// Returns the profile of the last full window; nothing before the first window or without a
  /// role.
  std::optional<profiler::RankProfile> latest() const;
  /// Returns whether the profile was stable, and has been reported.
  bool is_stable() const noexcept { return profiler_.is_stable(); }
  /// Marks a step boundary. Reports a new stable profile to the shim: a few times in a generation.
  Result<void> observe(std::uint64_t step);
  /// Reports this rank's profile to the shim, as observe() does once the times are stable; for
  /// programs that know their times by other means than their clock. REQUIRES: Session::adopt()
  /// has succeeded. Returns an error if the shim has left. A shim of an earlier version does not
  /// know the message; then training goes on without the report.
  Result<void> report(const profiler::RankProfile& profile);

 private:
  Session& session_;
  profiler::Profiler profiler_;
  std::optional<profiler::Role> role_;
};

}  // namespace swell::runtime
