// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swell::select {

/// A list of Slurm's of jobs that may be preempted for another, opaque like the jobs in it.
struct Candidates;

/// Slurm's own functions for Candidates, looked up by name at start; tests set their own.
struct CandidateLists {
  int (*count)(Candidates*) = nullptr;
  /// Removes and returns the first; null where the list is empty.
  void* (*pop)(Candidates*) = nullptr;
  void* (*append)(Candidates*, void* job) = nullptr;
  void* (*find_job)(std::uint32_t id) = nullptr;  ///< null where there is no such job

  /// Sets all members to the symbols of the running program. @return whether it has all of them.
  bool look_up() noexcept;
};

/// Sorts the companions among the candidates into Swell's order of reclaims, least marginal benefit
/// first; cons_tres considers candidates in the list's order. Companions change places only with
/// each other: any other job stays where the site's priorities put it. Used under slurmctld's write
/// lock on jobs.
class Preemption {
 public:
  /// Function that gives the controller's order, as swell_reclaim_order() does (controller/host.h).
  using Order = std::size_t (*)(std::uint32_t* companions, std::size_t room);
  Preemption(const CandidateLists& api, Order (*order)()) : api_(api), order_(order) {}

  void sort(Candidates* candidates);

 private:
  const CandidateLists& api_;
  Order (*const order_)();  ///< null as long as no controller is loaded
  std::vector<std::uint32_t> ids_;
};

/// The function of the controller's library, if sched/swell has loaded that into this program;
/// otherwise null.
Preemption::Order controllers_order() noexcept;

}  // namespace swell::select
