// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/select/bitmaps.h"
#include "plugins/select/blocks.h"

namespace swell::select {

/// Arguments of select_p_job_test(), as Slurm passes them. Swell does not use those that are
/// pointers to void.
struct JobTest {
  void* job = nullptr;
  Bitmap* nodes = nullptr;  ///< in: candidates; out, on success: the nodes to use
  std::uint32_t min_nodes = 0, max_nodes = 0, wanted_nodes = 0;
  std::uint16_t mode = 0;
  void* preemption_candidates = nullptr;
  void** to_preempt = nullptr;  ///< out: the jobs that must go for this one to start
  void* exclusions = nullptr;
  void* will_run = nullptr;

  /// Whether the job starts at once where there is room: SELECT_MODE_RUN_NOW in the lower byte of
  /// `mode`; the upper byte has flags.
  bool starts_now() const noexcept { return (mode & 0xff) == 0; }
};

/// Chooses the nodes that cons_tres may choose from, only for a job that starts now: other calls,
/// and jobs that cons_tres does not start, cost no more than without Swell.
///
/// cons_tres first chooses from all candidates. If its nodes are under more leaf switches than
/// needed, it is asked again with nodes of fewer leaves: once where these nodes are idle, a few
/// times where some are in partial use. If no nearer nodes are found, even for a job of one node,
/// the job goes to the leaves with the fewest idle nodes, so that whole leaves stay for later jobs.
/// The second choice has as many nodes as the first and uses no more idle ones. If none is found,
/// the job gets the first. So a job starts whenever cons_tres would start it, and nothing is
/// preempted for the sake of nearness.
///
/// Used under slurmctld's write lock on nodes, hence by one thread at a time.
class Narrowing {
 public:
  using Base = int (*)(const JobTest&);  ///< select_p_job_test() of cons_tres
  Narrowing(const Bitmaps& api, Base base) : api_(api), base_(base) {}
  ~Narrowing();
  Narrowing(const Narrowing&) = delete;
  Narrowing& operator=(const Narrowing&) = delete;

  /// @param blocks  null: nothing is known, and cons_tres decides alone.
  /// @param node_table  another value whenever a bit may mean another node than before.
  /// @return what cons_tres returned.
  int test(const JobTest& call, const std::shared_ptr<const Blocks>& blocks,
           std::uint32_t node_table);

 private:
  struct Choice;  ///< the nodes that cons_tres took, and those that it may take instead
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
