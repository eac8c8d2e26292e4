// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <exception>
#include <string>

extern "C" {
#include <slurm/spank.h>
}

namespace swell::plugins {

/// Runs one call of Slurm, so that no exception passes into Slurm. An error is logged once, with
/// `doing` ("job_submit"), and `otherwise` is returned.
template <typename Call>
int guarded(const char* doing, int otherwise, Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& problem) {
    slurm_error("swell: %s: %s", doing, problem.what());
  } catch (...) { slurm_error("swell: %s: unknown exception", doing); }
  return otherwise;
}

}  // namespace swell::plugins
