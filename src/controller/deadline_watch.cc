// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/deadline_watch.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/count_of.h"

namespace swell::controller {

namespace {

/// Seconds to which a slack is rounded.
double step_of(double slack_s) { return std::abs(slack_s) >= 3600 ? 900 : 300; }

/// "1.25 h" or "35 min", rounded down.
std::string rounded(double seconds) {
  const double steps = std::floor(seconds / step_of(seconds));
  return seconds >= 3600 ? fmt::format("{:g} h", steps / 4) : fmt::format("{:g} min", steps * 5);
}

}  // namespace

void DeadlineWatch::decided(const std::optional<policy::DeadlineState>& state, int gpus,
                            const StepsLeft& steps) {
  if (is_missed_) return;
  is_decided_ = true;
  drains_ = false;
  is_seen_ = state.has_value();
  says_steps_ = steps.total() > 0;
  slack_s_ = state ? state->slack_s : std::nullopt;
  if (!slack_s_) shown_s_.reset();
  else if (!shown_s_ || std::abs(*slack_s_ - *shown_s_) > step_of(*shown_s_)) shown_s_ = slack_s_;
  needed_gpus_ = state ? state->needed_gpus : 0;
  gpus_ = gpus;
}

void DeadlineWatch::drains() noexcept {
  drains_ = true;
  slack_s_.reset();
  shown_s_.reset();
  needed_gpus_ = 0;
}

std::optional<std::string> DeadlineWatch::passes(std::time_t now, std::time_t at,
                                                 std::time_t started) {
  if (is_missed_ || (!is_decided_ && !drains_) || at == 0 || now < at) return std::nullopt;
  is_missed_ = true;
  if (started >= at) return "it waited in the queue until then";
  if (drains_) return "nothing is lent to it: the administrator drains Swell";
  if (!is_seen_) return "the policy of this site looks at no deadlines";
  if (!says_steps_)
    return "its program does not say how many steps it has in all (swellrun --steps)";
  if (!slack_s_) return "its program has reported no profile, or no pace of its steps";
  if (needed_gpus_ == 0) return "no number of GPUs that it could have had would have kept it";
  if (gpus_ < needed_gpus_)
    return fmt::format("it needed {} and had {}", count_of(needed_gpus_, "GPU"), gpus_);
  return "it was slower than predicted";
}

std::string DeadlineWatch::words() const {
  if (is_missed_) return "missed";
  if (drains_) return "nothing is lent: the administrator drains Swell";
  if (!is_decided_) return {};
  if (!is_seen_) return "not looked at by this policy";
  if (!says_steps_) return "nothing can be promised: its program does not say its steps";
  if (!slack_s_) return "nothing can be promised: its speed is not known yet";
  if (*shown_s_ >= 0) return fmt::format("kept, with {} to spare", rounded(*shown_s_));
  if (needed_gpus_ == 0)
    return fmt::format("not kept, by {}: no number of GPUs that it may have now does",
                       rounded(-*shown_s_));
  return fmt::format("kept with {}, and it has {}", count_of(needed_gpus_, "GPU"), gpus_);
}

std::time_t deadline_of(const std::optional<control::Deadline>& deadline,
                        const slurm::JobRecord& record) noexcept {
  if (!deadline) return 0;
  std::time_t at = deadline->from(record.submit_time).at;
  if (record.deadline != 0) at = std::min(at, record.deadline);
  return at;
}

}  // namespace swell::controller
