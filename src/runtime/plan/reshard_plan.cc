// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/plan/reshard_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace swell::runtime {

const char* to_text(Nearness nearness) noexcept {
  static constexpr const char* names[] = {"in place", "device", "node", "rail", "rack", "far"};
  return names[static_cast<int>(nearness)];
}

namespace {

/// Returns whether `to` can take over a run of `from`'s memory unchanged: all elements of `to` are
/// there in order, with space for its padding.
bool is_one_run(const Part& from, const std::vector<Box>& from_boxes, const Part& to,
                const std::vector<Box>& to_boxes) {
  std::optional<std::int64_t> shift;
  std::int64_t found = 0, wanted = 0;
  bool one = true;
  for (const Box& box : to_boxes) {
    wanted += box.elements();
    for (const Box& other : from_boxes) {
      const auto both = common(box, other);
      if (!both) continue;
      found += both->elements();
      // Offsets rise in both parts: if the new part is one run, equal shifts at a block's two ends
      // mean equal shifts throughout.
      each_run(*both, from, to, [&](std::int64_t in_from, std::int64_t in_to, std::int64_t) {
        if (!shift) shift = in_from - in_to;
        one = one && *shift == in_from - in_to;
      });
      if (!one) return false;
    }
  }
  return found == wanted && wanted > 0 && *shift >= 0 && *shift + to.elements() <= from.elements();
}

/// Returns whether two parts of one tensor certainly share no element. A quick test, which may
/// return false even for parts that share none.
bool are_apart(const Part& a, const Part& b) {
  for (std::size_t d = 0; d < a.begin.size(); ++d)
    if (a.begin[d] >= b.end[d] || b.begin[d] >= a.end[d]) return true;
  return a.begin == b.begin && a.end == b.end &&
         (a.flat_begin >= b.flat_end || b.flat_begin >= a.flat_end);
}

/// Cuts `box` along its outermost dimensions into blocks of at most `max` elements.
void cut(const Box& box, std::int64_t max, std::vector<Box>& cuts) {
  if (box.elements() <= max) {
    cuts.push_back(box);
    return;
  }
  std::size_t d = 0;
  while (box.end[d] - box.begin[d] == 1) ++d;
  const std::int64_t extent = box.end[d] - box.begin[d];
  const std::int64_t slice = box.elements() / extent;
  const std::int64_t step = std::max<std::int64_t>(1, max / slice);
  for (std::int64_t at = box.begin[d]; at < box.end[d]; at += step) {
    Box one = box;
    one.begin[d] = at;
    one.end[d] = std::min(at + step, box.end[d]);
    cut(one, max, cuts);
  }
}

struct Atom {
  Box box;
  std::vector<std::size_t> sources;  ///< indexes into the list of old parts
};

struct Source {
  std::uint32_t part;
  std::vector<Box> boxes;
  std::vector<std::uint32_t> ranks;
};

/// Cuts the values of `part` into blocks that each old part holds entirely or not at all.
std::vector<Atom> cut_by_sources(const Part& part, const std::vector<Source>& sources,
                                 const World& from) {
  std::vector<Atom> atoms, next;
  for (const Box& box : boxes_of(part)) atoms.push_back({box, {}});
  std::vector<Box> rest;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (are_apart(part, from.part(sources[s].part))) continue;
    for (const Box& box : sources[s].boxes) {
      next.clear();
      for (Atom& atom : atoms) {
        const auto both = common(atom.box, box);
        if (!both) {
          next.push_back(std::move(atom));
          continue;
        }
        rest.clear();
        subtract(atom.box, box, rest);
        for (const Box& one : rest) next.push_back({one, atom.sources});
        atom.box = *both;
        atom.sources.push_back(s);
        next.push_back(std::move(atom));
      }
      atoms.swap(next);
    }
  }
  return atoms;
}

/// State of one plan_reshard().
class Resharder {
 public:
  Resharder(const Worlds& worlds, std::int64_t max_elements)
      : worlds_(worlds), max_elements_(std::max<std::int64_t>(1, max_elements)) {}

  ReshardPlan run(std::span<const Holding> old_holders, std::span<const Holding> new_holders) {
    for (auto& [part, ranks] : by_part(old_holders)) {
      for (std::uint32_t rank : ranks)
        on_device_[worlds_.from_device[rank]].push_back({sources_.size(), rank});
      sources_.push_back({part, boxes_of(worlds_.from.part(part)), ranks});
    }
    for (const auto& [part, ranks] : by_part(new_holders)) {
      const Part& wanted = worlds_.to.part(part);
      const std::vector<Box> boxes = boxes_of(wanted);
      std::optional<std::vector<Atom>> atoms;  // made when a rank first needs them
      for (std::uint32_t rank : ranks) {
        if (take_over(wanted, boxes, rank, part)) continue;
        if (!atoms) atoms = atoms_of(wanted);
        for (const Atom& atom : *atoms) add_need(atom, rank, part);
      }
    }
    return std::move(made_);
  }

 private:
  using ByPart = std::map<std::uint32_t, std::vector<std::uint32_t>>;
  struct Holder {
    std::size_t source;  ///< index into sources_
    std::uint32_t rank;
  };

  static ByPart by_part(std::span<const Holding> holders) {
    ByPart ranks;
    for (const Holding& holding : holders) ranks[holding.part].push_back(holding.rank);
    return ranks;
  }

  /// Has the new part take over memory of its device, if one run of that memory holds it.
  bool take_over(const Part& wanted, const std::vector<Box>& boxes, std::uint32_t rank,
                 std::uint32_t part) {
    const auto mine = on_device_.find(worlds_.to_device[rank]);
    if (mine == on_device_.end()) return false;
    for (const Holder& holder : mine->second) {
      const Source& source = sources_[holder.source];
      if (handed_over_.contains({holder.rank, source.part}) ||
          !is_one_run(worlds_.from.part(source.part), source.boxes, wanted, boxes))
        continue;
      handed_over_.insert({holder.rank, source.part});
      for (const Box& box : boxes) {
        made_.needs.push_back({box, box.elements(), rank, part,
                               static_cast<std::uint32_t>(made_.candidates.size()), 1,
                               Need::kNoChoice});
        made_.candidates.push_back({holder.rank, source.part, Nearness::in_place});
      }
      return true;
    }
    return false;
  }

  std::vector<Atom> atoms_of(const Part& wanted) const {
    std::vector<Atom> atoms;
    std::vector<Box> cuts;
    for (Atom& atom : cut_by_sources(wanted, sources_, worlds_.from)) {
      cuts.clear();
      cut(atom.box, max_elements_, cuts);
      for (const Box& box : cuts) atoms.push_back({box, atom.sources});
    }
    return atoms;
  }

  void add_need(const Atom& atom, std::uint32_t rank, std::uint32_t part) {
    const cluster::GpuRef& here = worlds_.to.ranks()[rank];
    const auto first = static_cast<std::uint32_t>(made_.candidates.size());
    double best = 0;  // largest bandwidth from another node
    for (std::size_t s : atom.sources)
      for (std::uint32_t holder : sources_[s].ranks) {
        const cluster::GpuRef& there = worlds_.from.ranks()[holder];
        if (there.node != here.node)
          best = std::max(best, worlds_.cluster.node_bandwidth(there.node, here.node));
      }
    for (std::size_t s : atom.sources)
      for (std::uint32_t holder : sources_[s].ranks)
        made_.candidates.push_back(
            {holder, sources_[s].part, nearness(worlds_.from.ranks()[holder], here, best)});
    std::sort(made_.candidates.begin() + first, made_.candidates.end(),
              [](const Candidate& a, const Candidate& b) {
                return std::tie(a.nearness, a.rank, a.part) < std::tie(b.nearness, b.rank, b.part);
              });
    // Only the first of two copies on one rank is a candidate; a copy on this device leaves no
    // choice.
    auto last =
        std::unique(made_.candidates.begin() + first, made_.candidates.end(),
                    [](const Candidate& a, const Candidate& b) { return a.rank == b.rank; });
    if (made_.candidates[first].nearness == Nearness::device)
      last = made_.candidates.begin() + first + 1;
    if (last - (made_.candidates.begin() + first) > 0xffff)
      last = made_.candidates.begin() + first + 0xffff;
    made_.candidates.erase(last, made_.candidates.end());
    const auto count = static_cast<std::uint32_t>(made_.candidates.size()) - first;
    std::uint32_t open = Need::kNoChoice;
    if (made_.candidates[first].nearness != Nearness::device) {
      open = static_cast<std::uint32_t>(made_.open.size());
      made_.open.push_back(static_cast<std::uint32_t>(made_.needs.size()));
    }
    made_.needs.push_back({atom.box, atom.box.elements(), rank, part, first, count, open});
  }

  Nearness nearness(const cluster::GpuRef& from, const cluster::GpuRef& to, double best) const {
    if (from == to) return Nearness::device;
    if (from.node == to.node) return Nearness::node;
    // Measured bandwidths of equal links differ by some percent.
    constexpr double kEqualShare = 0.9;
    if (worlds_.cluster.node_bandwidth(from.node, to.node) < kEqualShare * best)
      return Nearness::far;
    return from.index == to.index ? Nearness::rail : Nearness::rack;
  }

  const Worlds& worlds_;
  const std::int64_t max_elements_;
  std::vector<Source> sources_;
  std::map<std::uint32_t, std::vector<Holder>> on_device_;
  /// Old ranks and parts whose memory a new part takes over; each appears once.
  std::set<std::pair<std::uint32_t, std::uint32_t>> handed_over_;
  ReshardPlan made_;
};

}  // namespace

ReshardPlan plan_reshard(const Worlds& worlds, std::span<const Holding> old_holders,
                         std::span<const Holding> new_holders, std::int64_t max_elements) {
  return Resharder(worlds, max_elements).run(old_holders, new_holders);
}

}  // namespace swell::runtime
