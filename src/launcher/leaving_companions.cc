// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leaving_companions.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>
#include <utility>
#include <vector>

#include "launcher/command.h"
#include "launcher/slurm_env.h"

namespace swell::launcher {

void LeavingCompanions::release(JobId companion, bool step_runs, double now) {
  leaving_[companion].cancel_by = now + kStepEnd_s;
  if (!step_runs) cancel(companion);
}

void LeavingCompanions::step_ended(JobId job) {
  if (leaving_.contains(job)) cancel(job);
}

void LeavingCompanions::cancel(JobId companion) {
  Leaving& leaving = leaving_[companion];
  if (leaving.cancelling) return;
  leaving.cancelling = true;
  const auto pid = runner_.start(cancel_command(name_of_(companion), companion),
                                 outside_environment(environ), {.capture = true});
  if (pid) {
    cancels_[*pid] = companion;
  } else {
    leaving_.erase(companion);
    released_(companion);
  }
}

bool LeavingCompanions::take(const ProcessRunner::Ended& ended) {
  const auto cancelled = cancels_.find(ended.pid);
  if (cancelled == cancels_.end()) return false;
  const JobId companion = cancelled->second;
  cancels_.erase(cancelled);
  leaving_.erase(companion);
  released_(companion);
  return true;
}

std::optional<double> LeavingCompanions::deadline() const {
  std::optional<double> first;
  for (const auto& [job, leaving] : leaving_)
    if (!leaving.cancelling) first = std::min(first.value_or(leaving.cancel_by), leaving.cancel_by);
  return first;
}

void LeavingCompanions::cancel_late(double now) {
  std::vector<JobId> late;
  for (const auto& [job, leaving] : leaving_)
    if (!leaving.cancelling && now >= leaving.cancel_by) late.push_back(job);
  for (const JobId job : late) cancel(job);
}

void LeavingCompanions::kill() const {
  for (const auto& [pid, job] : cancels_) runner_.signal(pid, SIGKILL);
}

}  // namespace swell::launcher
