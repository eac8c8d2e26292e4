// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <vector>

namespace swell::policy {

/// One submission of a job that asks for GPUs. A requeued job counts once in all, companions not at
/// all.
struct Submission {
  double submitted_s = 0;  ///< on the clock of ClusterView::now_s
  int gpus = 0;            ///< GPUs of each task
  int tasks = 1;           ///< number of tasks of an array
  friend bool operator==(const Submission&, const Submission&) = default;
};

/// Maximum number of submissions that are kept and that a view holds, in slurmctld and in the
/// simulator; older ones are dropped first.
inline constexpr std::size_t kMaxSubmissions = 1000;

/// Selects the submissions that tell whether idle GPUs will stay idle (FlexTrain, section 5.1).
/// Defaults are those of its evaluation.
struct ArrivalFilter {
  double window_s = 8 * 3600;  ///< ArrivalWindow: submissions of the last `window_s` seconds count
  int gpus = 32;        ///< minimum GPUs of a submission that counts: these reclaim what is lent
  double chance = 0.6;  ///< P_th: minimum probability that a change of plan pays; 0: any
  friend bool operator==(const ArrivalFilter&, const ArrivalFilter&) = default;
};

/// Returns how many of `submissions`, in order of time, the filter counts at `now_s`.
int counted(const std::vector<Submission>& submissions, const ArrivalFilter& filter, double now_s);

/// Returns the probability that idle GPUs stay idle until a change of plan has paid, FlexTrain's
/// eq. 15: exp(-lambda * speedup / (speedup - 1) * overhead), where lambda is `counted` over the
/// window. Returns 0 if `speedup` is not above 1. `overhead_s`: the pause of the training.
double chance_to_pay(int counted, const ArrivalFilter& filter, double speedup, double overhead_s);

}  // namespace swell::policy
