// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <criterion/criterion.h>
#include <map>
#include <string>
#include <vector>

#include "support/live_job.h"

// Shared by tests of switches among real processes: examples/regression under shims of this
// process.
namespace live_steps {

using namespace swell;
using namespace swell::runtime;
using support::LiveJob;
using support::PlanShape;
using Phase = SwitchMachine::Phase;
using namespace std::chrono_literals;

inline Coordinator::Options options() {
  Coordinator::Options made;
  made.key = LiveJob::kKey;
  made.quiesce_limit = 60s;
  return made;
}

inline const std::vector<std::string> kForEver{"1000000000", "4", "12", "10", "1000"};

/// Waits until a rank has passed a boundary beyond `step`; fails after two minutes.
inline void wait_for_steps(const LiveJob& job, int shim, std::uint64_t step) {
  for (const auto end = std::chrono::steady_clock::now() + 120s;
       std::chrono::steady_clock::now() < end;) {
    if (job.status(shim).step > step) return;
    std::this_thread::yield();
  }
  cr_assert(false, "shim %d stands at step %lu", shim,
            static_cast<unsigned long>(job.status(shim).step));
}

/// Waits until a new program waits in adopt.
inline void wait_for_waiting(const LiveJob& job, int shim) {
  for (const auto end = std::chrono::steady_clock::now() + 120s;
       std::chrono::steady_clock::now() < end;) {
    if (job.status(shim).has_waiting) return;
    std::this_thread::yield();
  }
  cr_assert(false, "no program waits at shim %d", shim);
}

/// Returns the result of a run of so many steps without any switch.
inline std::map<std::string, std::vector<double>> unresized(const std::string& steps) {
  LiveJob job(SWELL_EXAMPLE, 1, {steps});
  const auto programs = job.start({});
  Coordinator coordinator(LiveJob::cluster(), options());
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  return job.state(job.shims({}));
}

}  // namespace live_steps
