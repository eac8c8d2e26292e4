// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/select/bitmaps.h"
#include "plugins/select/blocks.h"

namespace swell::select {

/// The arguments of select_p_job_test(), as Slurm passes them. What is a pointer to void is none of Swell's
/// business.
struct JobTest {
  void* job = nullptr;
  Bitmap* nodes = nullptr;           ///< in: candidates; out, on success: the nodes to use
  std::uint32_t least_nodes = 0, most_nodes = 0, wanted_nodes = 0;
  std::uint16_t mode = 0;
  void* preemption_candidates = nullptr;
  void** to_preempt = nullptr;       ///< out: the jobs that must go for this one to start
  void* exclusions = nullptr;
  void* will_run = nullptr;
};

/// Chooses which nodes cons_tres may choose from. Only where a job of several nodes is to start now: every
/// other question goes to cons_tres as it came.
///
/// Nodes that nobody uses decide first: where fewest leaf switches have enough of them, cons_tres chooses from
/// those alone. If it refuses, or there are not enough, it chooses from all, and where what it took may stand
/// closer together, a few smaller sets are tried. A job starts whenever cons_tres would start it, and
/// nothing is preempted for the sake of nearness.
///
/// Used under slurmctld's write lock on nodes, hence by one thread at a time.
class Narrowing {
 public:
  using Base = int (*)(const JobTest&);  ///< cons_tres
  Narrowing(const Bitmaps& api, Base base) : api_(api), base_(base) {}
  ~Narrowing();
  Narrowing(const Narrowing&) = delete;
  Narrowing& operator=(const Narrowing&) = delete;

  /// @param blocks  null: nothing is known, and cons_tres decides alone.
  /// @param node_table  changes whenever bits may mean other nodes than before.
  /// @return what cons_tres returned.
  int test(const JobTest& call, const std::shared_ptr<const Blocks>& blocks, std::uint32_t node_table);

 private:
  bool prepare(const std::shared_ptr<const Blocks>& blocks, std::uint32_t node_table, const Bitmap* nodes);
  void forget();
  bool counts_for(const Bitmap* candidates);
  bool try_leaves(const JobTest& call, const Bitmap* candidates, const std::vector<int>& leaves, int nodes);
  bool may_stand_closer(const JobTest& call, bool idle_tried);

  const Bitmaps& api_;
  const Base base_;
  std::shared_ptr<const Blocks> blocks_;
  std::uint32_t node_table_ = 0;
  std::vector<Bitmap*> leaves_;
  std::vector<LeafCount> counts_;     ///< for the call being answered
  int leaves_with_candidates_ = 0;
};

}  // namespace swell::select
