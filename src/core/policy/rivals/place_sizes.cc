// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/place_sizes.h"

#include <algorithm>
#include <optional>

namespace swell::policy {

namespace {

class Placing {
 public:
  Placing(const std::vector<Sized>& jobs, GpuPool pool)
      : jobs_(jobs), pool_(std::move(pool)), placed_(jobs.size()) {
    for (Placed& one : placed_) one.size = 0;
  }

  std::vector<Placed> run() {
    // Puts all GPUs into the pool, then takes back those of jobs that keep their size.
    for (const Sized& job : jobs_) pool_.give(job.held);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].keeps && pool_.has(jobs_[i].held)) {
        pool_.take(jobs_[i].held);
        placed_[i].gpus = jobs_[i].held;
        kept_.push_back(i);
      } else if (!jobs_[i].sizes.empty()) {
        open_.push_back(i);
      }
    }
    sort_open();
    while (!open_.empty()) {
      const std::size_t job = open_.front();
      open_.erase(open_.begin());
      auto found = take(job);
      while (!found && make_room(job)) found = take(job);
      if (found) {
        placed_[job].gpus = std::move(*found);
      } else if (++placed_[job].size < static_cast<int>(jobs_[job].sizes.size())) {
        open_.push_back(job);
        sort_open();
      }
    }
    return std::move(placed_);
  }

 private:
  const Size& size(std::size_t job) const {
    return jobs_[job].sizes[static_cast<std::size_t>(placed_[job].size)];
  }

  void sort_open() {
    std::stable_sort(open_.begin(), open_.end(),
                     [&](std::size_t a, std::size_t b) { return size(a).gpus > size(b).gpus; });
  }

  std::optional<planner::Islands> take(std::size_t i) {
    const Size& job = size(i);
    if (job.nodes == 1) return near_itself(job, jobs_[i].held);
    if (job.gpus == job.nodes * pool_.per_node(job.type))
      return pool_.take_whole(job.type, job.nodes, jobs_[i].held);
    // A size that the user asked for has the same number of GPUs on each of several nodes.
    planner::Islands taken;
    GpuPool tried = pool_;
    for (int n = 0; n < job.nodes; ++n) {
      auto one = best_other_node(tried, job, taken);
      if (!one) return std::nullopt;
      tried.take({*one});
      taken.push_back(*one);
    }
    pool_ = std::move(tried);
    return taken;
  }

  /// Takes GPUs on a node that the job is on, if they fit, so that state stays near; otherwise on
  /// any node.
  std::optional<planner::Islands> near_itself(const Size& job, const planner::Islands& held) {
    for (const planner::Island& own : held) {
      GpuPool tried = pool_;
      const auto there = tried.take_packed(job.type, job.gpus, {own});
      if (!there || there->size() != 1 || there->front().node != own.node) continue;
      pool_ = std::move(tried);
      return there;
    }
    return pool_.take_on_one(job.type, job.gpus);
  }

  static std::optional<planner::Island> best_other_node(const GpuPool& pool, const Size& job,
                                                        const planner::Islands& taken) {
    const int share = job.gpus / job.nodes;
    const GpuPool::Slot* best = nullptr;
    for (const GpuPool::Slot& slot : pool.slots()) {
      const int free = std::popcount(slot.free);
      const bool used = std::any_of(taken.begin(), taken.end(), [&](const planner::Island& island) {
        return island.node == slot.node;
      });
      if (slot.type == job.type && !used && free >= share &&
          (!best || free < std::popcount(best->free)))
        best = &slot;
    }
    if (!best) return std::nullopt;
    plan::GpuMask rest = best->free;
    for (int i = 0; i < share; ++i) rest &= rest - 1;
    return planner::Island{best->node, best->type, best->free ^ rest};
  }

  /// Moves the smallest kept job off the node that lacks the fewest GPUs. Returns false if none can
  /// be moved.
  bool make_room(std::size_t i) {
    const Size& job = size(i);
    const int share = job.gpus / job.nodes;
    const GpuPool::Slot* best = nullptr;
    std::size_t leaves = 0;
    for (const GpuPool::Slot& slot : pool_.slots()) {
      const int free = std::popcount(slot.free);
      if (slot.type != job.type || free >= share || std::popcount(slot.all) < share) continue;
      int movable = 0;
      std::optional<std::size_t> smallest;
      for (std::size_t k : kept_) {
        // Move only smaller jobs: they may find a place where this one does not.
        if (size(k).gpus >= job.gpus) continue;
        for (const planner::Island& island : placed_[k].gpus) {
          if (island.node != slot.node || island.type != slot.type) continue;
          movable += island.count();
          if (!smallest || size(k).gpus < size(*smallest).gpus) smallest = k;
        }
      }
      if (!smallest || free + movable < share) continue;
      if (best && free <= std::popcount(best->free)) continue;
      best = &slot;
      leaves = *smallest;
    }
    if (!best) return false;
    pool_.give(placed_[leaves].gpus);
    placed_[leaves].gpus.clear();
    std::erase(kept_, leaves);
    open_.push_back(leaves);
    sort_open();
    return true;
  }

  const std::vector<Sized>& jobs_;
  GpuPool pool_;
  std::vector<Placed> placed_;
  std::vector<std::size_t> kept_, open_;
};

}  // namespace

std::vector<Placed> place_sizes(const std::vector<Sized>& jobs, GpuPool pool) {
  return Placing(jobs, std::move(pool)).run();
}

}  // namespace swell::policy
