// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/launch_again.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>

namespace swell::launcher {

namespace {

constexpr double kFirstPause_s = 2;  // doubles; a restarted slurmd is back by then
constexpr int kLaunches = 4;
constexpr double kRegister_s = 7;  // nodes register 5 s after a start, known in whole seconds
constexpr double kSettles_s = 15;  // slurmd may refuse so long after its start, with clocks apart

/// Errors of a launch message: those of the system, and Slurm's "connection failure" up to
/// "shutdown of the connection", no answer in time, and an answer without a byte (slurm_errno.h).
constexpr int kLost[] = {ECONNRESET, ECONNREFUSED, ETIMEDOUT, 1000, 1001, 1002,
                         1003,       1004,         1005,      5004, 5005};

/// Returns whether srun ends with `code` for the error: its lower 8 bits, or 128 and its lower 7,
/// as if it were the status of a process.
bool is_code_of(int code, int error) {
  return code == (error & 0xff) || code == 128 + (error & 0x7f);
}

}  // namespace

bool slurmd_was_lost(const Exit& exit) {
  return exit.signal == 0 && std::any_of(std::begin(kLost), std::end(kLost),
                                         [&](int one) { return is_code_of(exit.code, one); });
}

bool srun_failed(const Exit& exit, const char* slurm_exit_error) {
  // As srun reads the variable: text that is not a number counts as not set.
  const int own = slurm_exit_error != nullptr ? std::atoi(slurm_exit_error) : 0;
  return exit.signal == 0 && exit.code == ((own != 0 ? own : 1) & 0xff);
}

bool slurmctld_was_away(std::optional<std::time_t> since, std::time_t began) {
  return since && std::difftime(began, *since) <= kSettles_s;
}

double knows_nodes_in(std::optional<std::time_t> since, std::time_t now) {
  return since ? std::clamp(kRegister_s - std::difftime(now, *since), 0.0, kRegister_s) : 0;
}

std::optional<double> launch_again_in(int launches) {
  if (launches >= kLaunches) return std::nullopt;
  return kFirstPause_s * (1 << (launches - 1));
}

}  // namespace swell::launcher
