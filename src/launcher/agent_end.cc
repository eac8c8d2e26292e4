// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the agent: the end of the job itself, and its requeue.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <unistd.h>

#include "core/number.h"
#include "launcher/agent.h"
#include "launcher/slurm_env.h"
#include "launcher/time_left.h"

namespace swell::launcher {

namespace {

constexpr double kLimitEvery_s = 60;  // between two looks at the job's time limit
constexpr double kLimitSoon_s = 5;    // the same, as it comes near
constexpr double kRequeue_s = 20;     // time limit of scontrol

}  // namespace

/// The limit may be changed at any time: Slurm is asked again and again.
void Agent::look_at_limit(double now) {
  if (setup_.options.before_end_s.value_or(0) <= 0 || code_ || limit_look_.pid != 0 ||
      now < limit_look_.next)
    return;
  if (limit_look_.next == 0)
    if (const char* end = std::getenv("SLURM_JOB_END_TIME"); end != nullptr)
      if (const auto at = read_number<std::int64_t>(end))
        machine_.job_ends(now, now + static_cast<double>(*at - std::time(nullptr)));
  limit_look_.next = now + kLimitEvery_s;
  if (const auto pid = children_.start(time_left_command(setup_.hello.job),
                                       outside_environment(environ), {.capture = true}))
    limit_look_.pid = *pid;
}

bool Agent::ended_limit_look(const Children::Ended& ended, double now) {
  if (limit_look_.pid == 0 || ended.pid != limit_look_.pid) return false;
  limit_look_.pid = 0;
  const auto left = read_time_left(ended.output, setup_.hello.job);
  if (!left) return true;  // slurmctld may be away: what it said before stands
  if (!left->seconds) {
    machine_.job_ends(now, std::nullopt);
    return true;
  }
  machine_.job_ends(now, now + *left->seconds);
  limit_look_.next = now + std::clamp((*left->seconds - *setup_.options.before_end_s) / 2,
                                      kLimitSoon_s, kLimitEvery_s);
  return true;
}

/// Slurm may end this process before it returns.
void Agent::requeue() const {
  const auto done = Children::output_of({"scontrol", "requeue", std::to_string(setup_.hello.job)},
                                        outside_environment(environ), kRequeue_s);
  if (!done) say("the job is not requeued: " + done.error().message());
}

}  // namespace swell::launcher
