// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

namespace swell::launcher {

/// swellrun's exit code if the workers left before the job's time limit: EX_TEMPFAIL.
inline constexpr int kRequeueCode = 75;

/// How a program ended.
struct Exit {
  int code = 0;
  int signal = 0;  ///< the signal that killed it; 0: none
  int status() const { return signal != 0 ? 128 + signal : code; }
};

}  // namespace swell::launcher
