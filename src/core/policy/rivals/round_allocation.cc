// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <numeric>
#include <utility>

#include "core/policy/rivals/allocation_program.h"

namespace swell::policy {

namespace {

class Rounding {
 public:
  explicit Rounding(const AllocationProgram& program)
      : program_(program), left_(program.capacity), chosen_(program.jobs.size(), -1) {}

  const Choice* now(std::size_t job) const {
    return chosen_[job] < 0 ? nullptr : &program_.jobs[job][static_cast<std::size_t>(chosen_[job])];
  }

  bool fits(std::size_t job, const Choice& choice) const {
    const Choice* held = now(job);
    const int freed = held && held->type == choice.type ? held->gpus : 0;
    return left_[static_cast<std::size_t>(choice.type)] + freed >= choice.gpus;
  }

  void choose(std::size_t job, int index) {
    if (const Choice* held = now(job)) left_[static_cast<std::size_t>(held->type)] += held->gpus;
    chosen_[job] = index;
    if (const Choice* taken = now(job)) left_[static_cast<std::size_t>(taken->type)] -= taken->gpus;
  }

  /// Makes the change that lowers the cost most for each further GPU; returns false if none does.
  bool improve() {
    double best = 0;
    std::size_t who = 0;
    int what = -1;
    for (std::size_t job = 0; job < program_.jobs.size(); ++job)
      for (std::size_t k = 0; k < program_.jobs[job].size(); ++k) {
        const Choice& choice = program_.jobs[job][k];
        const Choice* held = now(job);
        const double gain = (held ? held->cost : 0) - choice.cost;
        if (gain <= 1e-12 || !fits(job, choice)) continue;
        const int more = choice.gpus - (held && held->type == choice.type ? held->gpus : 0);
        const double rate = gain / std::max(1, more);
        if (rate > best) best = rate, who = job, what = static_cast<int>(k);
      }
    if (what >= 0) choose(who, what);
    return what >= 0;
  }

  Allocation finish() const {
    Allocation done{chosen_, 0, false};
    for (std::size_t job = 0; job < chosen_.size(); ++job)
      if (const Choice* held = now(job)) done.cost += held->cost;
    return done;
  }

 private:
  const AllocationProgram& program_;
  std::vector<int> left_, chosen_;
};

}  // namespace

Allocation round_down(const AllocationProgram& program,
                      const std::vector<std::vector<double>>& share) {
  Rounding rounding(program);
  std::vector<std::pair<std::size_t, int>> largest;
  for (std::size_t job = 0; job < program.jobs.size(); ++job) {
    const auto& shares = share[job];
    const auto max = std::max_element(shares.begin(), shares.end());
    if (max != shares.end() && *max > 1e-6)
      largest.emplace_back(job, static_cast<int>(max - shares.begin()));
  }
  std::stable_sort(largest.begin(), largest.end(), [&](const auto& a, const auto& b) {
    return share[a.first][static_cast<std::size_t>(a.second)] >
           share[b.first][static_cast<std::size_t>(b.second)];
  });
  for (const auto& [job, index] : largest)
    if (rounding.fits(job, program.jobs[job][static_cast<std::size_t>(index)]))
      rounding.choose(job, index);
  while (rounding.improve()) {}
  return rounding.finish();
}

}  // namespace swell::policy
