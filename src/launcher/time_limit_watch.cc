// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/time_limit_watch.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

#include "core/number.h"
#include "launcher/slurm_env.h"
#include "launcher/time_left.h"

namespace swell::launcher {

namespace {

constexpr double kLimitEvery_s = 60;  // between two looks at the job's time limit
constexpr double kLimitSoon_s = 5;    // the same, as it comes near

}  // namespace

std::optional<double> TimeLimitWatch::deadline() const {
  if (before_end_s_ <= 0 || pid_ != 0) return std::nullopt;
  return next_;
}

void TimeLimitWatch::look(double now) {
  if (before_end_s_ <= 0 || pid_ != 0 || now < next_) return;
  if (next_ == 0)
    if (const char* end = std::getenv("SLURM_JOB_END_TIME"); end != nullptr)
      if (const auto at = read_number<std::int64_t>(end))
        ends_(now + static_cast<double>(*at - std::time(nullptr)));
  next_ = now + kLimitEvery_s;
  if (const auto pid =
          runner_.start(time_left_command(job_), outside_environment(environ), {.capture = true}))
    pid_ = *pid;
}

bool TimeLimitWatch::take(const ProcessRunner::Ended& ended, double now) {
  if (pid_ == 0 || ended.pid != pid_) return false;
  pid_ = 0;
  const auto left = read_time_left(ended.output, job_);
  if (!left) return true;  // slurmctld may be away: what it said before stands
  if (!left->seconds) {
    ends_(std::nullopt);
    return true;
  }
  ends_(now + *left->seconds);
  next_ = now + std::clamp((*left->seconds - before_end_s_) / 2, kLimitSoon_s, kLimitEvery_s);
  return true;
}

void TimeLimitWatch::kill() const {
  if (pid_ != 0) runner_.signal(pid_, SIGKILL);
}

}  // namespace swell::launcher
