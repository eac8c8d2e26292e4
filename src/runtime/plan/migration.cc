// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/plan/migration.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>
#include <xxhash.h>

#include "core/count_of.h"
#include "runtime/plan/links.h"

namespace swell::runtime {

std::int64_t MigrationSummary::network_bytes() const noexcept {
  return bytes[static_cast<int>(Nearness::rail)] + bytes[static_cast<int>(Nearness::rack)] +
         bytes[static_cast<int>(Nearness::far)];
}
std::int64_t MigrationSummary::moved_bytes() const noexcept {
  return network_bytes() + bytes[static_cast<int>(Nearness::node)];
}
std::int64_t MigrationSummary::total_bytes() const noexcept {
  return moved_bytes() + bytes[static_cast<int>(Nearness::in_place)] +
         bytes[static_cast<int>(Nearness::device)];
}

namespace {

Result<void> check_gpus(const World& world, const cluster::Cluster& cluster, const char* which) {
  for (std::size_t rank = 0; rank < world.ranks().size(); ++rank) {
    const cluster::GpuRef gpu = world.ranks()[rank];
    if (gpu.node < 0 || gpu.node >= static_cast<int>(cluster.nodes().size()))
      return Error(fmt::format("rank {} of the {} plan is on node {}; the cluster has {}", rank,
                               which, gpu.node, cluster.nodes().size()));
    const std::size_t devices = cluster.node(gpu.node).gpus.size();
    if (gpu.index < 0 || static_cast<std::size_t>(gpu.index) >= devices)
      return Error(fmt::format("rank {} of the {} plan is on device {} of node {}, which has {}",
                               rank, which, gpu.index, cluster.node(gpu.node).name, devices));
  }
  return {};
}

std::vector<cluster::GpuRef> all_gpus(const World& a, const World& b) {
  std::vector<cluster::GpuRef> gpus = a.ranks();
  gpus.insert(gpus.end(), b.ranks().begin(), b.ranks().end());
  return gpus;
}

}  // namespace

/// State of one plan_migration(): finds what has to move, chooses sources, and balances the links'
/// loads.
class Migrator {
 public:
  Migrator(const World& from, const World& to, const cluster::Cluster& cluster,
           MigrationOptions options)
      : from_(from),
        to_(to),
        links_(cluster, all_gpus(from, to)),
        worlds_{from, to, cluster, numbers_of(from), numbers_of(to)},
        max_bytes_(std::clamp<std::int64_t>(options.max_move_bytes, 8, Links::kMaxBytes)) {
    made_.leaving_ = std::move(options.leaving);
  }

  Result<Migration> run() {
    made_.new_ranks_ = to_.ranks().size();
    for (std::uint32_t tensor = 0; tensor < to_.tensors().size(); ++tensor)
      if (auto good = take(tensor); !good) return good.error();
    choose_all();
    even_out();
    sum_up();
    return std::move(made_);
  }

 private:
  using Pair = Migration::Pair;

  std::vector<std::uint32_t> numbers_of(const World& world) const {
    std::vector<std::uint32_t> numbers;
    for (const cluster::GpuRef gpu : world.ranks()) numbers.push_back(links_.number_of(gpu));
    return numbers;
  }

  Result<void> take(std::uint32_t index) {
    const World::Tensor& tensor = to_.tensors()[index];
    const std::int64_t element = bytes_of(tensor.info.dtype);
    made_.element_bytes_.push_back(element);
    const World::Tensor* old = from_.find(tensor.info.name);
    if (old == nullptr)  // the old plan may use a name that is now an alias
      for (const auto& [alias, name] : to_.aliases())
        if (old == nullptr && name == tensor.info.name) old = from_.find(alias);
    if (old == nullptr && tensor.info.optional) return {};
    if (old == nullptr)
      return Error(
          fmt::format("tensor {} is in no rank of the old plan; only an optional tensor may be new",
                      tensor.info.name));
    if (old->info.shape != tensor.info.shape || old->info.dtype != tensor.info.dtype)
      return Error(fmt::format(
          "tensor {} has another shape or dtype in the old plan; both plans must train the same model",
          tensor.info.name));
    const auto key =
        std::make_tuple(old->distribution, tensor.distribution, element, tensor.info.shape);
    const auto [at, added] =
        reshard_numbers_.try_emplace(key, static_cast<std::uint32_t>(made_.reshards_.size()));
    if (added)
      made_.reshards_.push_back(plan_reshard(worlds_, from_.distribution_of(*old),
                                             to_.distribution_of(tensor), max_bytes_ / element));
    const ReshardPlan& its = made_.reshards_[at->second];
    made_.pairs_.push_back({index, static_cast<std::uint32_t>(old - from_.tensors().data()),
                            at->second, static_cast<std::uint32_t>(made_.choices_.size())});
    made_.choices_.resize(made_.choices_.size() + its.open.size());
    return {};
  }

  Links::Path path(const Pair& pair, const Need& need, const Candidate& from) const {
    return links_.path(worlds_.from_device[from.rank], worlds_.to_device[need.to_rank],
                       need.elements * made_.element_bytes_[pair.tensor]);
  }

  /// Returns the nearest holder that stays, otherwise the nearest one.
  std::uint16_t first_that_stays(const Need& need, const Candidate* candidates) const {
    for (std::uint16_t c = 0; c < need.count; ++c)
      if (!made_.leaves(candidates[c].rank)) return c;
    return 0;
  }

  /// Chooses the least busy of the nearest holders, for each block in turn.
  void choose_all() {
    by_sender_.resize(from_.ranks().size() + to_.ranks().size());
    by_receiver_.resize(by_sender_.size());
    for (std::uint32_t p = 0; p < made_.pairs_.size(); ++p) {
      const Pair& pair = made_.pairs_[p];
      const ReshardPlan& reshard = made_.reshards_[pair.reshard];
      for (std::size_t i = 0; i < reshard.open.size(); ++i) {
        const Need& need = reshard.needs[reshard.open[i]];
        const Candidate* candidates = &reshard.candidates[need.first];
        const std::uint16_t first = first_that_stays(need, candidates);
        std::uint16_t best = first;
        Links::Path best_path = path(pair, need, candidates[first]);
        std::uint64_t best_load = links_.after(best_path);
        for (auto c = static_cast<std::uint16_t>(first + 1);
             c < need.count && candidates[c].nearness == candidates[first].nearness; ++c) {
          if (made_.leaves(candidates[c].rank) != made_.leaves(candidates[first].rank)) continue;
          const Links::Path other = path(pair, need, candidates[c]);
          const std::uint64_t load = links_.after(other);
          if (load >= best_load) continue;
          best = c;
          best_path = other;
          best_load = load;
        }
        links_.add(best_path);
        const std::size_t choice = pair.first_choice + i;
        made_.choices_[choice] = best;
        if (need.count < 2) continue;
        by_sender_[worlds_.from_device[candidates[best].rank]].push_back(
            {p, static_cast<std::uint32_t>(i)});
        by_receiver_[worlds_.to_device[need.to_rank]].push_back({p, static_cast<std::uint32_t>(i)});
      }
    }
  }

  struct Choice {
    std::uint32_t pair, open;
  };

  /// Moves transfers of the busiest link to other holders while that makes it less busy. Bounded by
  /// a count, not by a clock, so that every rank stops at the same point.
  void even_out() {
    std::int64_t tries = 200'000;
    for (bool better = true; better && tries > 0;) {
      better = false;
      const std::uint32_t link = links_.busiest();
      for (std::uint32_t device : links_.devices_of(link)) {
        std::vector<Choice>& list =
            links_.is_outgoing(link) ? by_sender_[device] : by_receiver_[device];
        for (std::size_t i = 0; i < list.size() && tries > 0; ++i) {
          const Choice choice = list[i];
          const Pair& pair = made_.pairs_[choice.pair];
          const ReshardPlan& reshard = made_.reshards_[pair.reshard];
          const Need& need = reshard.needs[reshard.open[choice.open]];
          const Candidate* candidates = &reshard.candidates[need.first];
          std::uint16_t& chosen = made_.choices_[pair.first_choice + choice.open];
          // The list of senders may have a transfer that another holder has taken over since.
          if (links_.is_outgoing(link) && worlds_.from_device[candidates[chosen].rank] != device)
            continue;
          const Links::Path now = path(pair, need, candidates[chosen]);
          if (std::find(now.link.begin(), now.link.begin() + now.count, link) ==
              now.link.begin() + now.count)
            continue;
          const std::uint64_t limit = links_.load(link);
          links_.remove(now);
          std::uint16_t best = chosen;
          std::uint64_t best_load = limit;
          for (std::uint16_t c = 0; c < need.count; ++c, --tries) {
            if (c == chosen ||
                made_.leaves(candidates[c].rank) > made_.leaves(candidates[chosen].rank))
              continue;
            const std::uint64_t load = links_.after(path(pair, need, candidates[c]));
            if (load >= best_load) continue;
            best = c;
            best_load = load;
          }
          if (best == chosen) {
            links_.add(now);
            continue;
          }
          links_.add(path(pair, need, candidates[best]));
          chosen = best;
          by_sender_[worlds_.from_device[candidates[best].rank]].push_back(choice);
          better = true;
          if (links_.busiest() != link) break;
        }
        if (better) break;
      }
    }
  }

  void sum_up() {
    XXH3_state_t* state = XXH3_createState();
    XXH3_64bits_reset(state);
    const auto feed = [&](std::uint64_t value) { XXH3_64bits_update(state, &value, sizeof value); };
    for (const World* world : {&from_, &to_})
      for (const cluster::GpuRef gpu : world->ranks()) {
        feed(static_cast<std::uint64_t>(gpu.node));
        feed(static_cast<std::uint64_t>(gpu.index));
      }
    for (const ReshardPlan& reshard : made_.reshards_)
      for (const Need& need : reshard.needs) {
        for (std::size_t d = 0; d < static_cast<std::size_t>(need.box.dims); ++d) {
          feed(static_cast<std::uint64_t>(need.box.begin[d]));
          feed(static_cast<std::uint64_t>(need.box.end[d]));
        }
        feed(need.to_rank);
        for (std::uint32_t c = 0; c < need.count; ++c)
          feed(reshard.candidates[need.first + c].rank);
      }
    for (const Pair& pair : made_.pairs_) {
      const std::string& name = to_.tensors()[pair.tensor].info.name;
      XXH3_64bits_update(state, name.data(), name.size());
      feed(pair.reshard);
      const ReshardPlan& reshard = made_.reshards_[pair.reshard];
      for (const Need& need : reshard.needs) {
        const Candidate& from = reshard.candidates[made_.source_of(pair, need)];
        const std::int64_t bytes = need.elements * made_.element_bytes_[pair.tensor];
        made_.summary_.bytes[static_cast<int>(from.nearness)] += bytes;
      }
    }
    XXH3_64bits_update(state, made_.choices_.data(),
                       made_.choices_.size() * sizeof made_.choices_[0]);
    made_.digest_ = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    made_.summary_.busiest_link_s = static_cast<double>(links_.load(links_.busiest())) / 1e12;
  }

  const World &from_, &to_;
  Links links_;
  const Worlds worlds_;
  std::int64_t max_bytes_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::int64_t, Shape>, std::uint32_t>
      reshard_numbers_;
  /// Transfers that another holder could send, by device.
  std::vector<std::vector<Choice>> by_sender_, by_receiver_;
  Migration made_;
};

Move Migration::make_move(const Pair& pair, const Need& need, const Candidate& from) const {
  return {pair.tensor,   pair.from_tensor, from.rank, from.part,
          need.to_rank,  need.to_part,     need.box,  need.elements * element_bytes_[pair.tensor],
          from.nearness, leaves(from.rank)};
}

template <typename Each>
void Migration::each_need(Each&& each) const {
  for (const Pair& pair : pairs_) {
    const ReshardPlan& reshard = reshards_[pair.reshard];
    for (const Need& need : reshard.needs)
      each(pair, need, reshard.candidates[source_of(pair, need)]);
  }
}

std::vector<Move> Migration::needs_of(std::uint32_t rank) const {
  std::vector<Move> moves;
  each_need([&](const Pair& pair, const Need& need, const Candidate& from) {
    if (need.to_rank == rank) moves.push_back(make_move(pair, need, from));
  });
  return moves;
}

std::vector<std::vector<Move>> Migration::needs() const {
  std::vector<std::vector<Move>> moves(new_ranks_);
  each_need([&](const Pair& pair, const Need& need, const Candidate& from) {
    moves[need.to_rank].push_back(make_move(pair, need, from));
  });
  return moves;
}

Result<Migration> plan_migration(const World& from, const World& to,
                                 const cluster::Cluster& cluster, MigrationOptions options) {
  if (auto good = check_gpus(from, cluster, "old"); !good) return good.error();
  if (auto good = check_gpus(to, cluster, "new"); !good) return good.error();
  if (from.ranks().empty() || to.ranks().empty())
    return Error("a plan has no ranks; at least 1 is needed");
  if (!options.leaving.empty() && options.leaving.size() != from.ranks().size())
    return Error(fmt::format("it is said of {} whether they leave; the old plan has {}",
                             count_of(options.leaving.size(), "rank"), from.ranks().size()));
  return Migrator(from, to, cluster, std::move(options)).run();
}

}  // namespace swell::runtime
