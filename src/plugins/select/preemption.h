// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swell::select {

/// Slurm's list of jobs that may be preempted for another job. The list and its jobs are opaque
/// here.
struct Candidates;

/// Slurm's own functions for Candidates, looked up by name at start; tests set their own.
struct CandidateLists {
  int (*count)(Candidates*) = nullptr;
  /// Removes and returns the first job; null if the list is empty.
  void* (*pop)(Candidates*) = nullptr;
  void* (*append)(Candidates*, void* job) = nullptr;
  void* (*find_job)(std::uint32_t id) = nullptr;  ///< null if there is no such job

  /// Sets all members to the symbols of the running program. Returns whether it has all of them.
  bool look_up() noexcept;
};

/// Sorts the companions among the candidates into Swell's order of reclaims, least marginal benefit
/// first; cons_tres considers candidates in the order of the list. Companions only change places
/// with each other: all other jobs keep the places that the site's priorities gave them. Used under
/// slurmctld's write lock on jobs.
class Preemption {
 public:
  /// Function that returns the controller's order, like swell_reclaim_order() (controller/host.h).
  using Order = std::size_t (*)(std::uint32_t* companions, std::size_t room);
  Preemption(const CandidateLists& api, Order (*order)()) : api_(api), order_(order) {}

  void sort(Candidates* candidates);

 private:
  const CandidateLists& api_;
  Order (*const order_)();  ///< returns null while no controller is loaded
  std::vector<std::uint32_t> ids_;
};

/// Returns the function of the controller's library if sched/swell has loaded it into this program;
/// otherwise null.
Preemption::Order controllers_order() noexcept;

}  // namespace swell::select
