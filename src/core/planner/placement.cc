// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/placement.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "core/perf/chunk_costs.h"
#include "core/perf/peak_memory.h"
#include "core/schedule/named.h"

namespace swell::planner {

namespace {

using models::Chain;
using models::Load;
using models::UnitKind;

constexpr double kSlack = 1 + 1e-12;  // sums of equal costs round differently

/// Numbers of units by chunk, at index chunk * stages + stage, which is the order of the model.
using Counts = std::vector<int>;

class Placer {
 public:
  Placer(const perf::PerformanceModel& perf, const plan::Layout& skeleton, int chunks)
      : perf_(perf),
        memory_(perf),
        chain_(perf.chain()),
        skeleton_(skeleton),
        stages_(static_cast<std::size_t>(skeleton.pp())),
        chunks_(static_cast<std::size_t>(chunks)),
        places_(stages_ * chunks_),
        schedule_(schedule::interleaved({skeleton.pp(), chunks, skeleton.micro_batches})) {
    for (std::size_t i = 0; i < stages_; ++i) {
      const plan::StageLayout& stage = skeleton.stages[i];
      const auto seconds = [&](const Load& load) {
        const auto passes = perf.chunk_passes(stage, load);
        return passes.fwd + passes.bwd;
      };
      costs_.push_back({0, seconds({0, 1, 0, 0}), seconds({0, 0, 1, 0}), seconds({0, 0, 0, 1})});
      int kept = 0, most = 0;
      for (const schedule::Operation& pass : schedule_.orders[i]) {
        kept += pass.kind == schedule::Kind::forward ? 1 : -1;
        most = std::max(most, kept);
      }
      kept_.push_back(most);
    }
  }

  std::vector<Placement> run() {
    std::vector<Placement> found;
    const auto add = [&](const std::optional<Counts>& counts, const char* rule) {
      if (!counts) return;
      std::optional<Placement> made = judge(*counts, rule);
      if (!made) return;
      for (const Placement& other : found)
        if (other.layout == made->layout) return;
      found.push_back(std::move(*made));
    };
    const bool all_full = chain_.units() >= static_cast<int>(places_);
    for (const bool from_rear : {true, false}) {
      if (all_full) add(min_max(1, from_rear), "min-max");
      if (chunks_ > 1 || !all_full) add(min_max(0, from_rear), "min-max");
    }
    add(by_rule(), "rule of FlexTrain");
    add(even(), "even");
    std::stable_sort(found.begin(), found.end(),
                     [](const Placement& a, const Placement& b) { return a.seconds < b.seconds; });
    return found;
  }

 private:
  std::size_t stage_at(std::size_t place) const { return place % stages_; }

  double cost(std::size_t stage, const Load& load) const {
    const auto& each = costs_[stage];
    return load.layers * each[1] + load.heads * each[2] + load.modules * each[3];
  }

  /// Returns whether a stage of which all chunks have this load would fit.
  bool fits(std::size_t stage, const Load& load) const {
    const plan::StageLayout& at = skeleton_.stages[stage];
    Load all;
    for (std::size_t chunk = 0; chunk < chunks_; ++chunk) all += load;
    for (const plan::GroupLayout& group : at.groups)
      if (memory_.held_bytes(all, at.tp, group.type, at.dp()) +
              kept_[stage] * memory_.kept_bytes(load, at.tp, group.local_batch) >
          kSlack * perf_.cluster().type(group.type).memory_bytes)
        return false;
    return true;
  }

  /// Fills the chunks one after the other, each up to `most` seconds and its memory: from the rear,
  /// so that stages that keep most activations get less, or from the front. Greedy filling is
  /// optimal, since each part of a run that fits also fits. `least`: minimum units of each chunk.
  /// Returns nothing if units are left over.
  std::optional<Counts> fill(double most, int least, bool from_rear) const {
    Counts counts(places_, 0);
    int first = 0, end = chain_.units();  // range of the remaining units
    for (std::size_t step = 0; step < places_; ++step) {
      const std::size_t place = from_rear ? places_ - 1 - step : step;
      const std::size_t stage = stage_at(place);
      const int rest = static_cast<int>(places_ - 1 - step) * least;
      const auto load = [&](int count) {
        return from_rear ? chain_.load(end - count, end) : chain_.load(first, first + count);
      };
      int low = 0, high = std::max(0, end - first - rest);
      while (low < high) {  // binary search for the longest run that fits
        const int middle = (low + high + 1) / 2;
        if (cost(stage, load(middle)) <= most && fits(stage, load(middle))) low = middle;
        else high = middle - 1;
      }
      if (low < least) return std::nullopt;
      counts[place] = low;
      if (from_rear) end -= low;
      else first += low;
    }
    return first == end ? std::optional(counts) : std::nullopt;
  }

  /// Returns the filling whose largest cost is minimal. This cost is always the cost of a run of
  /// units.
  std::optional<Counts> min_max(int least, bool from_rear) const {
    double high = 0, low = 0;
    for (std::size_t i = 0; i < stages_; ++i)
      high = std::max(high, cost(i, chain_.load(0, chain_.units())));
    std::optional<Counts> best = fill(high * kSlack, least, from_rear);
    if (!best) return std::nullopt;
    // The largest cost found is the next upper bound; stop when no cost is below it.
    for (int step = 0; step < 64; ++step) {
      high = largest(*best);
      const double middle = (low + high) / 2;
      if (high - low <= 1e-9 * high) break;
      if (auto found = fill(middle, least, from_rear)) best = std::move(found);
      else low = middle;
    }
    return best;
  }

  double largest(const Counts& counts) const {
    double most = 0;
    int next = 0;
    for (std::size_t place = 0; place < places_; ++place) {
      most = std::max(most, cost(stage_at(place), chain_.load(next, next + counts[place])));
      next += counts[place];
    }
    return most;
  }

  /// Distributes the units in parts of equal weight. A unit without weight stays with the unit
  /// before it, and the embedding with the unit after it.
  Counts deal(const std::function<bool(int)>& weight) const {
    int all = 0;
    for (int unit = 0; unit < chain_.units(); ++unit) all += weight(unit) ? 1 : 0;
    const int places = static_cast<int>(places_);
    Counts counts(places_, 0);
    std::size_t place = 0;
    int left = all / places + (0 < all % places ? 1 : 0);
    for (int unit = 0; unit < chain_.units(); ++unit) {
      if (weight(unit)) {
        while (left == 0 && place + 1 < places_) {
          ++place;
          left = all / places + (static_cast<int>(place) < all % places ? 1 : 0);
        }
        --left;
      }
      ++counts[place];
    }
    return counts;
  }

  std::optional<Counts> by_rule() const {
    if (chain_.mtp_heads() == 0) return std::nullopt;
    return deal([&](int unit) {
      const UnitKind kind = chain_.kind_at(unit);
      if (kind == UnitKind::layer || kind == UnitKind::mtp_module) return true;
      // The last unit and the third from the end are heads.
      return unit >= chain_.units() - 3 && kind != UnitKind::embedding;
    });
  }

  std::optional<Counts> even() const {
    return deal([&](int unit) { return chain_.kind_at(unit) == UnitKind::layer; });
  }

  std::optional<Placement> judge(const Counts& counts, const char* rule) const {
    Placement made{skeleton_, rule};
    int next = 0;
    for (plan::StageLayout& stage : made.layout.stages) {
      stage.layers = 0;
      stage.chunks.assign(chunks_, 0);
    }
    for (std::size_t place = 0; place < places_; ++place) {
      plan::StageLayout& stage = made.layout.stages[stage_at(place)];
      stage.chunks[place / stages_] = counts[place];
      stage.layers += chain_.load(next, next + counts[place]).layers;
      next += counts[place];
    }
    for (const plan::StageLayout& stage : made.layout.stages)
      if (std::all_of(stage.chunks.begin(), stage.chunks.end(), [](int one) { return one == 0; }))
        return std::nullopt;
    const schedule::Costs costs = perf::chunk_costs(perf_, made.layout);
    const auto graph = schedule::Graph::of_orders(schedule_);
    if (!graph) return std::nullopt;
    const schedule::Evaluation prediction = schedule::evaluate(*graph, costs);
    for (std::size_t i = 0; i < stages_; ++i) {
      double room = 1e300;
      for (const plan::GroupLayout& group : made.layout.stages[i].groups)
        room = std::min(room, perf_.cluster().type(group.type).memory_bytes);
      if (prediction.peak_bytes[i] > kSlack * room) return std::nullopt;
    }
    made.seconds = prediction.seconds;
    return made;
  }

  const perf::PerformanceModel& perf_;
  const perf::MemoryModel memory_;
  const Chain& chain_;
  const plan::Layout& skeleton_;
  const std::size_t stages_, chunks_, places_;
  const schedule::Schedule schedule_;
  std::vector<std::array<double, 4>> costs_;  ///< by stage: embedding, layer, head, MTP module
  /// By stage: maximum number of passes whose activations are kept.
  std::vector<int> kept_;
};

}  // namespace

std::vector<Placement> placements(const perf::PerformanceModel& perf, const plan::Layout& skeleton,
                                  int chunks) {
  if (skeleton.pp() < 1 || chunks < 1 || skeleton.pp() > perf.chain().units() ||
      !schedule::check_shape({skeleton.pp(), chunks, skeleton.micro_batches}))
    return {};
  return Placer(perf, skeleton, chunks).run();
}

}  // namespace swell::planner
