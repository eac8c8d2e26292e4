// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/narrowing.h"

#include <algorithm>
#include <cstddef>

namespace swell::select {

namespace {

/// SELECT_MODE_RUN_NOW without any of the flags that the upper byte of a mode may have.
constexpr std::uint16_t kRunNow = 0;
/// Maximum number of sets of leaves tried for one job whose nodes are in partial use.
constexpr int kMaxTries = 5;

std::size_t at(int leaf) { return static_cast<std::size_t>(leaf); }

}  // namespace

struct Narrowing::Choice {
  const Bitmap* candidates;   ///< candidates of the same kind as the chosen nodes
  const Bitmap *idle, *used;  ///< candidates without jobs, and the others
  int nodes, idle_nodes;      ///< number of chosen nodes, and of idle ones among them
  int leaves;                 ///< number of leaves that have them
};

Narrowing::~Narrowing() { forget(); }

void Narrowing::forget() {
  for (std::vector<Bitmap*>* maps : {&leaves_, &alike_}) {
    for (Bitmap*& map : *maps) api_.free(&map);
    maps->clear();
  }
  blocks_.reset();
}

bool Narrowing::add_maps(const std::vector<std::string>& lists, std::vector<Bitmap*>& maps) {
  maps.reserve(lists.size());
  for (const std::string& names : lists) {
    Bitmap* map = nullptr;
    api_.from_names(names.c_str(), true, &map, nullptr);
    if (map == nullptr) return false;
    maps.push_back(map);
  }
  return true;
}

/// Makes bitmaps of the blocks for the present node table. Returns false if that is not possible.
bool Narrowing::prepare(const std::shared_ptr<const Blocks>& blocks, std::uint32_t node_table,
                        const Bitmap* nodes) {
  if (blocks != blocks_ || node_table != node_table_) {
    forget();
    if (!blocks) return false;
    counts_.resize(blocks->leaves.size());
    if (!add_maps(blocks->leaves, leaves_) || !add_maps(blocks->alike, alike_)) {
      forget();
      return false;
    }
    blocks_ = blocks;
    node_table_ = node_table;
  }
  // Bitmap functions compare only up to the length of one operand, so both must have the same
  // length.
  return !leaves_.empty() && api_.size(leaves_.front()) == api_.size(nodes) &&
         *api_.idle != nullptr && api_.size(*api_.idle) == api_.size(nodes);
}

int Narrowing::test(const JobTest& call, const std::shared_ptr<const Blocks>& blocks,
                    std::uint32_t node_table) {
  if (call.mode != kRunNow || call.nodes == nullptr || !prepare(blocks, node_table, call.nodes))
    return base_(call);
  const ScopedBitmap candidates(api_, api_.copy(call.nodes));
  if (candidates.get() == nullptr) return base_(call);

  void* const preempted_before = call.to_preempt != nullptr ? *call.to_preempt : nullptr;
  const int result = base_(call);
  if (result != 0 || (call.to_preempt != nullptr && *call.to_preempt != preempted_before))
    return result;

  const int leaves = leaves_of(call.nodes);
  if (leaves == 0) return result;
  // A job that takes all memory of its nodes is recorded with the minimum memory of the first
  // answer's nodes; a second call with nodes of another amount would request something else.
  const int taken = api_.count(call.nodes);
  const auto alike = std::find_if(alike_.begin(), alike_.end(), [&](const Bitmap* nodes) {
    return api_.count_common(nodes, call.nodes) == taken;
  });
  const ScopedBitmap chosen(api_, api_.copy(call.nodes)), idle(api_, api_.copy(*api_.idle)),
      used(api_, api_.copy(*api_.idle));
  if (alike == alike_.end() || chosen.get() == nullptr || idle.get() == nullptr ||
      used.get() == nullptr)
    return result;
  api_.keep_common(candidates.get(), *alike);
  api_.keep_common(idle.get(), candidates.get());
  api_.invert(used.get());
  api_.keep_common(used.get(), candidates.get());

  const Choice choice{candidates.get(),
                      idle.get(),
                      used.get(),
                      taken,
                      api_.count_common(call.nodes, *api_.idle),
                      leaves};
  count_candidates(choice, chosen.get());
  const std::vector<std::vector<int>> sets = sets_to_try(choice);
  if (sets.empty()) return result;
  for (const std::vector<int>& set : sets)
    if (try_leaves(call, choice, set)) return 0;

  JobTest again = call;
  again.preemption_candidates = nullptr;
  api_.assign(call.nodes, chosen.get());
  return base_(again);
}

/// Counts the leaves of the chosen nodes; returns 0 if the leaf of some node is not known. Sets
/// LeafCount::chosen.
int Narrowing::leaves_of(const Bitmap* taken) {
  int leaves = 0, known = 0;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    counts_[leaf] = {0, 0, api_.count_common(leaves_[leaf], taken), 0};
    known += counts_[leaf].chosen;
    if (counts_[leaf].chosen > 0) ++leaves;
  }
  return known == api_.count(taken) ? leaves : 0;
}

void Narrowing::count_candidates(const Choice& choice, const Bitmap* taken) {
  const ScopedBitmap partly(api_, api_.copy(taken));
  if (partly.get() != nullptr) api_.keep_common(partly.get(), choice.used);
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    LeafCount& count = counts_[leaf];
    count.idle = api_.count_common(leaves_[leaf], choice.idle);
    count.usable = count.idle + api_.count_common(leaves_[leaf], choice.used);
    count.partly = partly.get() != nullptr ? api_.count_common(leaves_[leaf], partly.get()) : 0;
  }
}

std::vector<std::vector<int>> Narrowing::sets_to_try(const Choice& choice) {
  if (choice.idle_nodes < choice.nodes)
    return fewer_leaves(counts_, choice.nodes, choice.idle_nodes, kMaxTries);
  std::vector<int> cover = idle_cover(counts_, blocks_->groups, choice.nodes);
  if (cover.empty() || static_cast<int>(cover.size()) > choice.leaves) return {};
  if (static_cast<int>(cover.size()) == choice.leaves) {
    // The cover is not nearer than the chosen nodes; it is better only if it keeps more of the
    // emptier leaves whole for later jobs.
    int taken_from = 0, covered = 0;
    for (const LeafCount& leaf : counts_)
      if (leaf.chosen > 0) taken_from += leaf.idle;
    for (int leaf : cover) covered += counts_[at(leaf)].idle;
    if (covered >= taken_from) return {};
    return {std::move(cover)};
  }
  // The cover may be refused (for nodes that the job names, for example): then try sets near the
  // nodes taken.
  std::vector<std::vector<int>> sets = fewer_leaves(counts_, choice.nodes, choice.nodes, 2);
  sets.insert(sets.begin(), std::move(cover));
  return sets;
}

/// Adds idle candidates of the leaves, leaf after leaf, but only as many as the job may use: with
/// more, cons_tres might take more of them, and the attempt would be wasted.
void Narrowing::add_idle(Bitmap* to, const Choice& choice, const std::vector<int>& leaves) {
  int left = choice.idle_nodes;
  for (int leaf : leaves) {
    const int wanted = std::min(left, counts_[at(leaf)].idle);
    if (wanted == 0) continue;
    const ScopedBitmap idle(api_, api_.copy(leaves_[at(leaf)]));
    if (idle.get() == nullptr) return;
    api_.keep_common(idle.get(), choice.idle);
    const ScopedBitmap first(api_, api_.first_of(idle.get(), wanted));
    if (first.get() == nullptr) return;
    api_.add(to, first.get());
    left -= wanted;
  }
}

/// Lets cons_tres choose from the candidates in some leaves, without preemption. Returns true if
/// its choice is as good as the first one: as many nodes, and no more idle ones among them.
bool Narrowing::try_leaves(const JobTest& call, const Choice& choice,
                           const std::vector<int>& leaves) {
  const bool is_mixed = choice.idle_nodes < choice.nodes;
  api_.assign(call.nodes, leaves_[at(leaves.front())]);
  for (std::size_t i = 1; i < leaves.size(); ++i) api_.add(call.nodes, leaves_[at(leaves[i])]);
  api_.keep_common(call.nodes, is_mixed ? choice.used : choice.candidates);
  if (is_mixed) add_idle(call.nodes, choice, leaves);
  JobTest narrowed = call;
  narrowed.preemption_candidates = nullptr;
  return base_(narrowed) == 0 && api_.count(call.nodes) == choice.nodes &&
         api_.count_common(call.nodes, *api_.idle) <= choice.idle_nodes;
}

}  // namespace swell::select
