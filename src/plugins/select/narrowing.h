// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/select/bitmaps.h"
#include "plugins/select/blocks.h"

namespace swell::select {

/// Arguments of select_p_job_test(), as Slurm passes them. Swell does not use those of type pointer
/// to void.
struct JobTest {
  void* job = nullptr;
  Bitmap* nodes = nullptr;  ///< in: candidates; out, on success: the chosen nodes
  std::uint32_t min_nodes = 0, max_nodes = 0, wanted_nodes = 0;
  std::uint16_t mode = 0;
  void* preemption_candidates = nullptr;
  void** to_preempt = nullptr;  ///< out: the jobs that must end before this one starts
  void* exclusions = nullptr;
  void* will_run = nullptr;

  /// Returns whether the job starts at once if there is room: SELECT_MODE_RUN_NOW in the lower byte
  /// of `mode`; the upper byte has flags.
  bool starts_now() const noexcept { return (mode & 0xff) == 0; }
};

/// Chooses the nodes from which cons_tres may choose, only for a job that starts now. Other calls,
/// and jobs that cons_tres does not start, cost no more than without Swell.
///
/// cons_tres first chooses from all candidates. If its nodes are under more leaf switches than
/// needed, it is asked again with nodes of fewer leaves: once if these nodes are idle, a few times
/// if some are in partial use. If no nearer nodes are found, even for a job of one node, the job
/// goes to the leaves with the fewest idle nodes, so that whole leaves stay free for later jobs.
/// The second choice has as many nodes as the first, and uses no more idle ones. If no second
/// choice is found, the job gets the first one. So a job starts whenever cons_tres would start it,
/// and no job is preempted for the sake of nearness.
///
/// Used under slurmctld's write lock on nodes, hence by one thread at a time.
class Narrowing {
 public:
  using Base = int (*)(const JobTest&);  ///< select_p_job_test() of cons_tres
  Narrowing(const Bitmaps& api, Base base) : api_(api), base_(base) {}
  ~Narrowing();
  Narrowing(const Narrowing&) = delete;
  Narrowing& operator=(const Narrowing&) = delete;

  /// Returns what cons_tres returned. `blocks` null: nothing is known, and cons_tres decides alone.
  /// `node_table`: changes whenever a bit may stand for another node than before.
  int test(const JobTest& call, const std::shared_ptr<const Blocks>& blocks,
           std::uint32_t node_table);

 private:
  struct Choice;  ///< the nodes that cons_tres chose, and those that it may choose instead
  bool prepare(const std::shared_ptr<const Blocks>& blocks, std::uint32_t node_table,
               const Bitmap* nodes);
  bool add_maps(const std::vector<std::string>& lists, std::vector<Bitmap*>& maps);
  void forget();
  int leaves_of(const Bitmap* taken);
  void count_candidates(const Choice& choice, const Bitmap* taken);
  std::vector<std::vector<int>> sets_to_try(const Choice& choice);
  void add_idle(Bitmap* to, const Choice& choice, const std::vector<int>& leaves);
  bool try_leaves(const JobTest& call, const Choice& choice, const std::vector<int>& leaves);

  const Bitmaps& api_;
  const Base base_;
  std::shared_ptr<const Blocks> blocks_;
  std::uint32_t node_table_ = 0;
  std::vector<Bitmap*> leaves_, alike_;
  std::vector<LeafCount> counts_;  ///< for the call being answered
};

}  // namespace swell::select
