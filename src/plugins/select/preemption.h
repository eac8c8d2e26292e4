// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swell::select {

/// Slurm's list of jobs that may be preempted for another, opaque like the jobs in it.
struct Candidates;

/// Slurm's own functions for it, looked up by name at start; in tests they stand for a list of the
/// test's own.
struct CandidateLists {
  int (*count)(Candidates*) = nullptr;
  void* (*pop)(Candidates*) = nullptr;  ///< the first; null where it is empty
  void* (*append)(Candidates*, void* job) = nullptr;
  void* (*find_job)(std::uint32_t id) = nullptr;  ///< null: there is no such job

  /// From the program that this runs in. @return whether it has all of them.
  bool look_up() noexcept;
};

/// Puts the companions among the candidates into the order in which Swell would take them back,
/// least marginal benefit first; cons_tres considers candidates in the list's order. Companions
/// trade places with companions alone: any other job stays where the site's priorities put it. Used
/// under slurmctld's write lock on jobs.
class Preemption {
 public:
  /// The controller's order; same as swell_reclaim_order() (controller/host.h).
  using Order = std::size_t (*)(std::uint32_t* companions, std::size_t room);
  Preemption(const CandidateLists& api, Order (*order)()) : api_(api), order_(order) {}

  void sort(Candidates* candidates);

 private:
  const CandidateLists& api_;
  Order (*const order_)();  ///< null as long as no controller is loaded
  std::vector<std::uint32_t> ids_;
};

/// From the controller's library, where sched/swell has loaded it into this program; else null.
Preemption::Order controllers_order() noexcept;

}  // namespace swell::select
