// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/launch_again.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace swell::launcher {

namespace {

constexpr double kFirstPause_s = 2;  // doubles: a slurmd that is started anew is back by then
constexpr int kLaunches = 4;

/// Errors of a launch message: those of the system, and Slurm's "connection failure" up to
/// "shutdown of the connection", no answer in time, and an answer without a byte (slurm_errno.h).
constexpr int kLost[] = {ECONNRESET, ECONNREFUSED, ETIMEDOUT, 1000, 1001, 1002,
                         1003,       1004,         1005,      5004, 5005};

/// srun ends with the error's lower 8 bits, or with 128 and the lower 7, as if it were the status
/// of a process.
bool is_code_of(int code, int error) {
  return code == (error & 0xff) || code == 128 + (error & 0x7f);
}

}  // namespace

std::optional<double> launch_again_in(const Exit& exit, int launches) {
  const bool lost =
      exit.signal == 0 && std::any_of(std::begin(kLost), std::end(kLost),
                                      [&](int one) { return is_code_of(exit.code, one); });
  if (!lost || launches >= kLaunches) return std::nullopt;
  return kFirstPause_s * (1 << (launches - 1));
}

}  // namespace swell::launcher
