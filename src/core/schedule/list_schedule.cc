// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/list_schedule.h"

#include <limits>
#include <queue>
#include <tuple>

namespace swell::schedule {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Player {
 public:
  Player(const Schedule& base, const Costs& costs, const ListRules& rules)
      : base_(base),
        costs_(costs),
        rules_(rules),
        shape_(base.shape),
        stages_(base.orders.size()),
        come_(2 * passes(), kNever),
        made_{shape_, std::vector<Order>(base.orders.size())} {
    const std::size_t chunks = static_cast<std::size_t>(shape_.chunks);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      stage.done.assign(kKinds * chunks, 0);
      if (!costs.static_bytes.empty()) stage.held = costs.static_bytes[s];
      for (const Operation& one : base.orders[s])
        if (one.kind != Kind::weights) stage.order.push_back(one);
      if (!rules.keeps_order) stage.rank.assign(stage.order.size(), 0);
      for (std::size_t i = 0; i < stage.rank.size(); ++i)
        stage.rank[in_stage(stage.order[i])] = static_cast<std::int32_t>(i);
    }
    for (int m = 0; m < shape_.micro_batches; ++m) come(0, {Kind::forward, 0, m}) = 0;
    const int last = shape_.stages - 1;
    for (int m = 0; m < shape_.micro_batches; ++m)
      come(last, {Kind::backward, static_cast<std::int16_t>(shape_.chunks - 1), m}) = 0;
  }

  std::optional<Schedule> play() {
    for (int stage = 0; stage < shape_.stages; ++stage) wake(stage, 0);
    while (!events_.empty()) {
      const auto [at, number, stage] = events_.top();
      events_.pop();
      act(stage, at);
    }
    const std::size_t each = (rules_.splits_weights ? 3 : 2) *
                             static_cast<std::size_t>(shape_.chunks) *
                             static_cast<std::size_t>(shape_.micro_batches);
    for (const Order& order : made_.orders)
      if (order.size() != each) return std::nullopt;
    return std::move(made_);
  }

 private:
  struct Stage {
    Order order;  ///< forward and backward passes of the base
    /// Position in `order` of each pass, if passes may overtake each other.
    std::vector<std::int32_t> rank;
    std::size_t at = 0;     ///< position in `order`, if the order is kept
    std::vector<int> done;  ///< number of passes by kind and chunk
    std::queue<Operation> weights;
    double free_s = 0, held = 0;
  };

  std::size_t passes() const {
    return static_cast<std::size_t>(shape_.stages) * static_cast<std::size_t>(shape_.chunks) *
           static_cast<std::size_t>(shape_.micro_batches);
  }
  std::size_t in_stage(const Operation& one) const {
    return (static_cast<std::size_t>(one.chunk) * 2 + static_cast<std::size_t>(one.kind)) *
               static_cast<std::size_t>(shape_.micro_batches) +
           static_cast<std::size_t>(one.micro_batch);
  }
  /// Returns the time at which the input of a pass arrives.
  double& come(int stage, const Operation& one) {
    return come_[static_cast<std::size_t>(stage) * 2 * static_cast<std::size_t>(shape_.chunks) *
                     static_cast<std::size_t>(shape_.micro_batches) +
                 in_stage(one)];
  }
  int& done(Stage& stage, Kind kind, int chunk) {
    return stage.done[static_cast<std::size_t>(kind) * static_cast<std::size_t>(shape_.chunks) +
                      static_cast<std::size_t>(chunk)];
  }
  void wake(int stage, double at) { events_.emplace(at, ++numbers_, stage); }

  double change(int stage, const Operation& one) const {
    const auto& bytes = costs_.at(stage, one.chunk).bytes;
    const double own = bytes[static_cast<std::size_t>(one.kind)];
    return one.kind == Kind::backward && !rules_.splits_weights ? own + bytes[2] : own;
  }
  double seconds(int stage, const Operation& one) const {
    const auto& seconds = costs_.at(stage, one.chunk).seconds;
    const double own = seconds[static_cast<std::size_t>(one.kind)];
    return one.kind == Kind::backward && !rules_.splits_weights ? own + seconds[2] : own;
  }
  bool fits(int stage, const Operation& one) const {
    if (rules_.limit_bytes.empty() || one.kind != Kind::forward) return true;
    const std::size_t s = static_cast<std::size_t>(stage);
    return stages_[s].held + change(stage, one) <= rules_.limit_bytes[s];
  }
  bool may_start(int number, Stage& stage, const Operation& one, double now) {
    if (one.kind == Kind::backward && done(stage, Kind::forward, one.chunk) <= one.micro_batch)
      return false;
    return come(number, one) <= now && fits(number, one);
  }

  /// Returns the first pass of `stage` that may start now.
  const Operation* next_of(int number, Stage& stage, double now) {
    if (rules_.keeps_order) {
      if (stage.at == stage.order.size()) return nullptr;
      const Operation& one = stage.order[stage.at];
      return may_start(number, stage, one, now) ? &one : nullptr;
    }
    const Operation* best = nullptr;
    std::int32_t best_rank = 0;
    for (int chunk = 0; chunk < shape_.chunks; ++chunk)
      for (const Kind kind : {Kind::forward, Kind::backward}) {
        const Operation one{kind, static_cast<std::int16_t>(chunk), done(stage, kind, chunk)};
        if (one.micro_batch == shape_.micro_batches || !may_start(number, stage, one, now))
          continue;
        const std::int32_t rank = stage.rank[in_stage(one)];
        if (best && rank >= best_rank) continue;
        best = &stage.order[static_cast<std::size_t>(rank)];
        best_rank = rank;
      }
    return best;
  }

  /// Returns whether the next pass in order starts so soon that a weight gradient would delay it.
  bool waits(int number, Stage& stage, double now) {
    if (rules_.patience <= 0 || stage.at >= stage.order.size() || !rules_.keeps_order) return false;
    const Operation& one = stage.order[stage.at];
    const double soon = come(number, one);
    return soon > now && fits(number, one) &&
           soon - now < rules_.patience * seconds(number, stage.weights.front());
  }

  void act(int number, double now) {
    Stage& stage = stages_[static_cast<std::size_t>(number)];
    if (stage.free_s > now) return;
    if (const Operation* one = next_of(number, stage, now)) {
      run(number, stage, Operation(*one), now);
      ++stage.at;
    } else if (!stage.weights.empty() && !waits(number, stage, now)) {
      const Operation weights = stage.weights.front();
      stage.weights.pop();
      run(number, stage, weights, now);
    }
  }

  void run(int number, Stage& stage, const Operation& one, double now) {
    made_.orders[static_cast<std::size_t>(number)].push_back(one);
    ++done(stage, one.kind, one.chunk);
    stage.held += change(number, one);
    stage.free_s = now + seconds(number, one);
    wake(number, stage.free_s);
    if (one.kind == Kind::weights) return;
    if (one.kind == Kind::backward && rules_.splits_weights)
      stage.weights.push({Kind::weights, one.chunk, one.micro_batch});
    const bool forward = one.kind == Kind::forward;
    const ChunkCost& cost = costs_.at(number, one.chunk);
    Operation its = one;
    int to = number + (forward ? 1 : -1);
    if (to < 0 || to == shape_.stages) {
      its.chunk = static_cast<std::int16_t>(one.chunk + (forward ? 1 : -1));
      if (its.chunk < 0 || its.chunk == shape_.chunks) return;
      to = forward ? 0 : shape_.stages - 1;
    }
    const double send = shape_.stages == 1 ? 0
                        : forward          ? cost.send_forward_s
                                           : cost.send_backward_s;
    const double at = come(to, its) = stage.free_s + send;
    if (to != number || send > 0) wake(to, at);
  }

  const Schedule& base_;
  const Costs& costs_;
  const ListRules& rules_;
  const Shape shape_;
  std::vector<Stage> stages_;
  std::vector<double> come_;
  Schedule made_;
  using Event = std::tuple<double, long, int>;  // time, order of creation, stage
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  long numbers_ = 0;
};

}  // namespace

std::optional<Schedule> list_schedule(const Schedule& base, const Costs& costs,
                                      const ListRules& rules) {
  return Player(base, costs, rules).play();
}

}  // namespace swell::schedule
