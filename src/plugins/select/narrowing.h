// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/select/bitmaps.h"
#include "plugins/select/blocks.h"

namespace swell::select {

/// The arguments of select_p_job_test(), as Slurm passes them. What is a pointer to void is none of
/// Swell's business.
struct JobTest {
  void* job = nullptr;
  Bitmap* nodes = nullptr;  ///< in: candidates; out, on success: the nodes to use
  std::uint32_t min_nodes = 0, max_nodes = 0, wanted_nodes = 0;
  std::uint16_t mode = 0;
  void* preemption_candidates = nullptr;
  void** to_preempt = nullptr;  ///< out: the jobs that must go for this one to start
  void* exclusions = nullptr;
  void* will_run = nullptr;
};

/// Chooses which nodes cons_tres may choose from. Only where a job starts now: every other
/// question, and every job that cons_tres does not start, costs nothing more than without Swell.
///
/// cons_tres chooses from all candidates first. Where its nodes are under more leaf switches than
/// need be, it is asked again with those under fewer alone: at once the right ones where the nodes
/// are idle, a few tries where some are in partial use. A job for which cons_tres found nothing
/// nearer, and be it of one node, goes where it breaks into the leaves with the fewest idle nodes,
/// so that whole ones stay for jobs to come. What is taken then has as many nodes, and breaks into
/// no more idle ones. If nothing better is found, the job gets what cons_tres chose. So a job
/// starts whenever cons_tres would start it, and nothing is preempted for the sake of nearness.
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
  int test(const JobTest& call, const std::shared_ptr<const Blocks>& blocks,
           std::uint32_t node_table);

 private:
  struct Choice;  ///< what cons_tres took, and what it may take instead
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
