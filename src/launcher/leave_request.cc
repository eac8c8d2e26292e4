// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leave_request.h"

#include <algorithm>
#include <utility>

namespace swell::launcher {

/// Live programs need a step only if there is another program that could wait for a leaving one.
void LeaveRequest::ask(double now, double within_s, bool live) {
  if (pending_) return;
  std::vector<WorkerId> workers = run_.workers.running();
  const double limit = std::min(settings_.agree_s, within_s / 4);
  if (!live || limit <= 0 || workers.size() < 2 ||
      run_.workers.deaf(run_.generation) < workers.size())
    return out_.add(action::SignalWorkers{std::move(workers), settings_.restart_signal});
  // An answer comes that late only if the coordinator hangs.
  pending_ = Pending{run_.generation, workers, now + 2 * limit};
  out_.add(action::StopLive{run_.generation, std::move(workers), limit});
}

std::optional<double> LeaveRequest::deadline() const {
  return pending_ ? std::optional(pending_->by) : std::nullopt;
}

void LeaveRequest::give_up() {
  out_.add(action::CallOffLive{});
  const Pending unanswered = *pending_;
  answered(unanswered.generation, 0, unanswered.workers);
}

bool LeaveRequest::answered(int generation, std::uint64_t step,
                            const std::vector<WorkerId>& untold) {
  if (!pending_ || pending_->generation != generation) return false;
  pending_.reset();
  out_.note("stop-told",
            Json::object({{"step", static_cast<std::int64_t>(step)}, {"untold", untold.size()}}));
  std::vector<WorkerId> left;
  for (const WorkerId id : untold)
    if (const WorkerState* worker = run_.workers.find(id); worker != nullptr && worker->running)
      left.push_back(id);
  if (!left.empty()) out_.add(action::SignalWorkers{std::move(left), settings_.restart_signal});
  return true;
}

}  // namespace swell::launcher
