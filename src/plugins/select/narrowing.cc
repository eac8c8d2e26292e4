// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/narrowing.h"

#include <algorithm>
#include <cstddef>

namespace swell::select {

namespace {

/// SELECT_MODE_RUN_NOW in the lower byte; the upper one has flags of what else is being tried.
constexpr std::uint16_t run_now = 0;
/// Smaller sets that are tried for one job, beyond the first.
constexpr int most_tries = 6;

}  // namespace

Narrowing::~Narrowing() { forget(); }

void Narrowing::forget() {
  for (Bitmap*& leaf : leaves_) api_.free(&leaf);
  leaves_.clear();
  blocks_.reset();
}

/// The leaves as bitmaps of the node table as it is now.
bool Narrowing::prepare(const std::shared_ptr<const Blocks>& blocks, std::uint32_t node_table, const Bitmap* nodes) {
  if (blocks != blocks_ || node_table != node_table_) {
    forget();
    if (!blocks) return false;
    counts_.resize(blocks->leaves.size());
    leaves_.reserve(blocks->leaves.size());
    for (const std::string& names : blocks->leaves) {
      Bitmap* leaf = nullptr;
      api_.from_names(names.c_str(), true, &leaf, nullptr);
      if (leaf == nullptr) {
        forget();
        return false;
      }
      leaves_.push_back(leaf);
    }
    blocks_ = blocks;
    node_table_ = node_table;
  }
  // Bitmaps are compared bit by bit up to the length of one: they must be of one length.
  return !leaves_.empty() && api_.size(leaves_.front()) == api_.size(nodes) && *api_.idle != nullptr &&
         api_.size(*api_.idle) == api_.size(nodes);
}

int Narrowing::test(const JobTest& call, const std::shared_ptr<const Blocks>& blocks, std::uint32_t node_table) {
  if (call.mode != run_now || call.nodes == nullptr || !prepare(blocks, node_table, call.nodes)) return base_(call);
  const ScopedBitmap candidates(api_, api_.copy(call.nodes));
  if (candidates.get() == nullptr || !counts_for(candidates.get())) return base_(call);

  // A range (-N 2-8) gets as many nodes as it would get without Swell: `wanted_nodes` is its upper end.
  const int wanted = static_cast<int>(std::min<std::uint32_t>(std::max(call.least_nodes, call.wanted_nodes), 1u << 30));
  bool idle_tried = false;
  if (wanted > 1) {
    const std::vector<int> cover = idle_cover(counts_, blocks_->groups, wanted);
    idle_tried = !cover.empty();
    if (idle_tried && static_cast<int>(cover.size()) < leaves_with_candidates_) {
      if (try_leaves(call, candidates.get(), cover, wanted)) return 0;
      api_.assign(call.nodes, candidates.get());
    }
  }

  void* const preempted_before = call.to_preempt != nullptr ? *call.to_preempt : nullptr;
  const int result = base_(call);
  const bool preempts = call.to_preempt != nullptr && *call.to_preempt != preempted_before;
  if (result != 0 || preempts || !may_stand_closer(call, idle_tried)) return result;

  const int taken = api_.count(call.nodes);
  for (const std::vector<int>& leaves : fewer_leaves(counts_, taken, most_tries))
    if (try_leaves(call, candidates.get(), leaves, taken)) return 0;
  api_.assign(call.nodes, candidates.get());
  return base_(call);
}

/// @return whether there is a choice: candidates in more than one leaf.
bool Narrowing::counts_for(const Bitmap* candidates) {
  const ScopedBitmap idle(api_, api_.copy(candidates));
  if (idle.get() == nullptr) return false;
  api_.keep_common(idle.get(), *api_.idle);
  leaves_with_candidates_ = 0;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    counts_[leaf] = {api_.count_common(leaves_[leaf], idle.get()), api_.count_common(leaves_[leaf], candidates), 0};
    if (counts_[leaf].usable > 0) ++leaves_with_candidates_;
  }
  return leaves_with_candidates_ > 1;
}

/// Lets cons_tres choose from the candidates in some leaves; on success the job has just `nodes` nodes. Without
/// candidates for preemption: where those are needed, all nodes shall be looked at.
bool Narrowing::try_leaves(const JobTest& call, const Bitmap* candidates, const std::vector<int>& leaves, int nodes) {
  api_.assign(call.nodes, leaves_[static_cast<std::size_t>(leaves.front())]);
  for (std::size_t i = 1; i < leaves.size(); ++i) api_.add(call.nodes, leaves_[static_cast<std::size_t>(leaves[i])]);
  api_.keep_common(call.nodes, candidates);
  JobTest narrowed = call;
  narrowed.preemption_candidates = nullptr;
  return base_(narrowed) == 0 && api_.count(call.nodes) == nodes;
}

/// After cons_tres took `call.nodes` from all candidates: is it worth asking again for some of fewer leaves?
bool Narrowing::may_stand_closer(const JobTest& call, bool idle_tried) {
  const int taken = api_.count(call.nodes);
  if (taken < 2) return false;
  int leaves = 0, placed = 0;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    counts_[leaf].chosen = api_.count_common(leaves_[leaf], call.nodes);
    placed += counts_[leaf].chosen;
    if (counts_[leaf].chosen > 0) ++leaves;
  }
  if (leaves < 2 || placed < taken) return false;
  if (api_.count_common(call.nodes, *api_.idle) < taken) return true;
  // Nodes that nobody uses were the first choice above, so cons_tres has its reasons; and a job that takes all
  // of a node's memory is remembered by the smallest node of the first success, so asking again would
  // ask for something else where nodes differ.
  return !idle_tried && blocks_->same_memory;
}

}  // namespace swell::select
