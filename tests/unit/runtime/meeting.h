// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <criterion/criterion.h>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/live_steps.h"

// Shared by tests of stops at one step: real processes that wait for each other in each step.
namespace live_steps {

using Clock = std::chrono::steady_clock;

/// Ranks of meeting_program, one shim each, that train.
struct Meeting {
  explicit Meeting(std::vector<int> paces_us, bool meets = true, std::uint64_t last_deaf_from = 0)
      : plan{1, static_cast<int>(paces_us.size()), 1, 0},
        job(SWELL_MEETING_PROGRAM, plan.ranks(), {}),
        coordinator(LiveJob::cluster(), options()) {
    start(paces_us, meets, last_deaf_from);
    cr_assert(coordinator.begin(ranks(), 1).ok());
    for (int rank = 0; rank < plan.ranks(); ++rank) wait_for_steps(job, rank, 3);
  }
  void start(const std::vector<int>& paces_us, bool meets = true,
             std::uint64_t last_deaf_from = 0) {
    programs.clear();
    for (std::size_t rank = 0; rank < paces_us.size(); ++rank) {
      job.variables = {"PACE_US=" + std::to_string(paces_us[rank]), "NOTES=" + job.folder(),
                       "SWELL_SNAPSHOT_EVERY=1000000000"};
      if (meets) job.variables.push_back("MEET=" + job.folder() + "/meeting");
      if (last_deaf_from > 0 && rank + 1 == paces_us.size())
        job.variables.push_back("DEAF_FROM=" + std::to_string(last_deaf_from));
      programs.push_back(job.start_rank(plan, rank, rank));
    }
  }
  std::vector<Shim> ranks() const { return job.shims(plan); }
  /// The step at which a rank was told so; 0: it was not.
  std::uint64_t told(const std::string& action, int rank) const {
    std::uint64_t step = 0;
    std::ifstream(job.folder() + "/" + action + "." + std::to_string(rank)) >> step;
    return step;
  }

  PlanShape plan;
  LiveJob job;
  Coordinator coordinator;
  std::vector<pid_t> programs;
};

inline std::string step_and_request(std::uint64_t step, std::uint64_t request) {
  return swell::ByteWriter().put(step).put(request).take();
}

inline Result<Message> ask_agree(Channel& channel, std::uint64_t step) {
  return ask(channel, Op::agree, swell::ByteWriter().put(step).take());
}

inline AgreeAnswer agree(Channel& channel, std::uint64_t step) {
  return swell::ByteReader(ask_agree(channel, step).value().body).get<AgreeAnswer>();
}

inline void wait_until_it_stands(const LiveJob& job, int shim) {
  const auto end = Clock::now() + 60s;
  while (!job.status(shim).is_quiesced) cr_assert(Clock::now() < end, "it does not stand");
}

}  // namespace live_steps
