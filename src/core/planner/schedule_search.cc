// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/schedule_search.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <tuple>

#include "core/count_of.h"
#include "core/schedule/list_schedule.h"
#include "core/schedule/named.h"

namespace swell::planner {

namespace {

using schedule::Costs;
using schedule::Evaluation;
using schedule::Graph;
using schedule::Kind;
using schedule::Operation;
using schedule::Order;
using schedule::Schedule;
using schedule::Shape;

constexpr double kRounding = 1 + 1e-9;
constexpr double kNever = std::numeric_limits<double>::infinity();
/// Number of the best candidates from the search's first part whose order is changed then. In a
/// small pipeline, each is started several times.
constexpr std::size_t kStarts = 4;
constexpr std::size_t kSmallPasses = 400;
constexpr std::size_t kTrialsOfSmall = 4;
/// Maximum number of passes that one task predicts over all its schedules, so that the search of a
/// deep pipeline ends within a second. At least a few schedules are predicted.
constexpr std::size_t kPassesOfPiece = 2'500'000;
constexpr int kFewestChanges = 50;
constexpr int kTriesOfChange = 10;  ///< tries for a change: most passes of a long run cannot move
constexpr int kFarthestMove = 12;   ///< positions in an order

struct Candidate {
  std::size_t choice = 0;
  std::string name;
  Schedule schedule;
  double seconds = kNever;
  double peak = 0;
  long evaluated = 0;
};

bool is_better(const Candidate& a, const Candidate& b) {
  return a.seconds != b.seconds ? a.seconds < b.seconds : a.peak < b.peak;
}

/// Returns the simplest of the candidates that take `seconds`, except for rounding: prefers one
/// with a name, then fewer chunks (which come first), then less memory.
std::vector<Candidate>::iterator simplest(std::vector<Candidate>& all, double seconds) {
  const auto place = [&](const Candidate& one) {
    return std::tuple(one.seconds > seconds * kRounding, one.name.empty(), one.choice, one.peak);
  };
  return std::min_element(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
    return place(a) < place(b);
  });
}

class Search {
 public:
  Search(const ScheduleProblem& problem, Executor& executor, const Budget& budget)
      : problem_(problem), executor_(executor), budget_(budget) {}

  Result<FoundSchedule> run() {
    std::vector<Candidate> all = first_candidates();
    executor_.run(all.size(), [&](std::size_t i) {
      if (!all[i].name.empty() || !budget_.expired()) judge(all[i]);
    });
    std::vector<Candidate> listed = list_candidates(all);
    std::stable_sort(all.begin(), all.end(), is_better);
    FoundSchedule found;
    found.best_named_s = kNever;
    for (const Candidate& one : all)
      if (!one.name.empty() && one.seconds < found.best_named_s) {
        found.best_named_s = one.seconds;
        found.best_named = one.name;
      }
    std::move(listed.begin(), listed.end(), std::back_inserter(all));
    std::stable_sort(all.begin(), all.end(), is_better);
    if (all.empty() || all.front().seconds == kNever) return nothing_fits(all);
    improve_best(all);
    const auto best = simplest(all, std::min_element(all.begin(), all.end(), is_better)->seconds);
    for (const Candidate& one : all) found.evaluated += one.evaluated;
    found.choice = best->choice;
    found.name = best->name.empty() ? "search" : best->name;
    found.prediction = evaluate(Graph::of(best->schedule).value(), problem_.choices[best->choice]);
    found.schedule = std::move(best->schedule);
    return found;
  }

 private:
  /// Returns the named schedules, and interleaved ones with other groups and other numbers of
  /// passes ahead.
  std::vector<Candidate> first_candidates() const {
    std::vector<Candidate> all;
    for (std::size_t k = 0; k < problem_.choices.size(); ++k) {
      const Shape& shape = problem_.choices[k].shape;
      for (const auto name : schedule::names()) {
        auto made = schedule::named(name, shape);
        if (made && (problem_.may_split_weights || !made->splits_weights()))
          all.push_back({k, std::string(name), std::move(*made)});
      }
      const int m = shape.micro_batches, p = shape.stages, v = shape.chunks;
      std::set<int> counts = {1, std::max(1, m / p), std::max(1, 2 * m / p), (m + p - 1) / p,
                              std::max(1, m / (2 * p))};
      for (const int count : counts) {
        if (count > m) continue;
        std::vector<int> sizes;
        for (int i = 0; i < count; ++i) sizes.push_back(m / count + (i < m % count ? 1 : 0));
        const int least = (v - 1) * sizes.front();
        for (const int ahead : {least + p - 1, least + 2 * (p - 1), least + 3 * (p - 1)}) {
          Schedule made = schedule::interleaved_in_groups(shape, sizes, ahead);
          all.push_back({k, "", std::move(made)});
        }
      }
    }
    return all;
  }

  /// Returns the list schedules derived from each of `bases` with the current costs.
  std::vector<Candidate> list_candidates(const std::vector<Candidate>& bases) const {
    struct Piece {
      const Candidate* base;
      bool splits, keeps;
      double patience;
    };
    std::vector<Piece> pieces;
    for (const Candidate& base : bases) {
      if (base.name == "zero-bubble" || base.name == "memory-minimised") continue;
      pieces.push_back({&base, false, false, 0});
      if (!problem_.may_split_weights) continue;
      for (const double patience : {0.0, 0.5}) pieces.push_back({&base, true, true, patience});
      pieces.push_back({&base, true, false, 0});
    }
    std::vector<Candidate> made(pieces.size());
    executor_.run(pieces.size(), [&](std::size_t i) {
      const Piece& piece = pieces[i];
      made[i].choice = piece.base->choice;
      if (budget_.expired() || !schedule::check(piece.base->schedule)) return;
      schedule::ListRules rules;
      rules.splits_weights = piece.splits;
      rules.keeps_order = piece.keeps;
      rules.patience = piece.patience;
      rules.limit_bytes = problem_.limit_bytes;
      auto listed = schedule::list_schedule(piece.base->schedule,
                                            problem_.choices[piece.base->choice], rules);
      if (!listed) return;
      made[i].schedule = std::move(*listed);
      judge(made[i]);
    });
    return made;
  }

  /// Fills in time and peak memory. A schedule that is invalid or does not fit gets no time.
  void judge(Candidate& one) const {
    ++one.evaluated;
    const auto graph = Graph::of(one.schedule);
    if (graph) take(one, evaluate(*graph, problem_.choices[one.choice]));
  }

  void take(Candidate& one, const Evaluation& found) const {
    one.peak = *std::max_element(found.peak_bytes.begin(), found.peak_bytes.end());
    one.seconds = fits(found) ? found.seconds : kNever;
  }

  bool fits(const Evaluation& found) const {
    for (std::size_t s = 0; s < problem_.limit_bytes.size(); ++s)
      if (found.peak_bytes[s] > problem_.limit_bytes[s]) return false;
    return true;
  }

  /// Appends candidates made from the best ones by changes of order.
  void improve_best(std::vector<Candidate>& all) const {
    std::vector<const Candidate*> starts;
    for (const Candidate& one : all) {
      if (one.seconds == kNever || starts.size() == kStarts) break;
      if (std::none_of(starts.begin(), starts.end(),
                       [&](const Candidate* other) { return other->schedule == one.schedule; }))
        starts.push_back(&one);
    }
    std::size_t passes = 0;
    for (const Order& order : all.front().schedule.orders) passes += order.size();
    const std::size_t trials = passes <= kSmallPasses ? kTrialsOfSmall : 1;
    std::vector<Candidate> made(starts.size() * trials);
    executor_.run(made.size(), [&](std::size_t i) {
      if (budget_.expired()) return;
      made[i] = improved(*starts[i % starts.size()], static_cast<unsigned>(i + 1));
    });
    std::move(made.begin(), made.end(), std::back_inserter(all));
  }

  /// Moves passes of the critical path one after the other to near positions in their order.
  /// Accepts slower results up to a limit that decreases (as simulated annealing does).
  Candidate improved(const Candidate& start, unsigned seed) const {
    const Costs& costs = problem_.choices[start.choice];
    std::size_t passes = 0;
    for (const Order& order : start.schedule.orders) passes += order.size();
    const int rounds = std::min(
        problem_.changes, std::max(kFewestChanges, static_cast<int>(kPassesOfPiece / passes)));
    std::mt19937 random(seed);
    Candidate now{start.choice, "", start.schedule, start.seconds, start.peak, 0}, best = now;
    Graph graph = Graph::of_orders(now.schedule).value();
    Evaluation found = evaluate(graph, costs);
    for (int round = 0, tries = 0; round < rounds && tries < kTriesOfChange * rounds; ++tries) {
      const schedule::Node& node = any_pass(graph, found.critical, random);
      const int far = static_cast<int>(random() % (2 * kFarthestMove + 1)) - kFarthestMove;
      if (far == 0) continue;
      Order& order = now.schedule.orders[static_cast<std::size_t>(node.stage)];
      const Operation moved{static_cast<Kind>(node.kind), node.chunk, node.micro_batch};
      const auto from = std::find(order.begin(), order.end(), moved) - order.begin();
      const auto to = move(order, from, far);
      if (to == from) continue;
      if (budget_.expired()) break;
      ++round;
      ++best.evaluated;
      auto changed = Graph::of_orders(now.schedule);
      if (changed) {
        Evaluation its = evaluate(*changed, costs);
        const double slack = 0.02 * found.seconds * (1 - static_cast<double>(round) / rounds) *
                             static_cast<double>(random() % 1000) / 1000;
        if (fits(its) && its.seconds <= found.seconds + slack) {
          graph = std::move(*changed);
          found = std::move(its);
          take(now, found);
          if (is_better(now, best)) {
            const long evaluated = best.evaluated;
            best = now;
            best.evaluated = evaluated;
          }
          continue;
        }
      }
      rotate(order, to, from);
    }
    return best;
  }

  /// Returns a random pass among the nodes of a critical path.
  static const schedule::Node& any_pass(const Graph& graph,
                                        const std::vector<std::int32_t>& critical,
                                        std::mt19937& random) {
    while (true) {  // ends: the first and last node of the path are passes
      const std::int32_t pick = critical[random() % critical.size()];
      const schedule::Node& node = graph.nodes()[static_cast<std::size_t>(pick)];
      if (schedule::computes(node.kind)) return node;
    }
  }

  /// Moves the pass at `from` by at most `far` positions, and not past passes of its own
  /// micro-batch or chunk. Returns its new position.
  static std::ptrdiff_t move(Order& order, std::ptrdiff_t from, int far) {
    const Operation one = order[static_cast<std::size_t>(from)];
    const std::ptrdiff_t step = far > 0 ? 1 : -1;
    std::ptrdiff_t to = from;
    for (int i = 0; i < std::abs(far); ++i) {
      const std::ptrdiff_t next = to + step;
      if (next < 0 || next == static_cast<std::ptrdiff_t>(order.size())) break;
      const Operation& other = order[static_cast<std::size_t>(next)];
      if (other.chunk == one.chunk &&
          (other.kind == one.kind || other.micro_batch == one.micro_batch))
        break;
      to = next;
    }
    rotate(order, from, to);
    return to;
  }

  static void rotate(Order& order, std::ptrdiff_t from, std::ptrdiff_t to) {
    const auto at = [&](std::ptrdiff_t i) { return order.begin() + i; };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    else std::rotate(at(to), at(from), at(from + 1));
  }

  Error nothing_fits(const std::vector<Candidate>& all) const {
    double least = kNever, limit = 0;
    std::size_t stage = 0;
    for (const Candidate& one : all) {
      if (one.evaluated == 0) continue;  // time was up before it was tried
      const auto graph = Graph::of(one.schedule);
      if (!graph) continue;
      const Evaluation found = evaluate(*graph, problem_.choices[one.choice]);
      double over = 0;
      std::size_t worst = 0;
      for (std::size_t s = 0; s < problem_.limit_bytes.size(); ++s)
        if (found.peak_bytes[s] - problem_.limit_bytes[s] > over) {
          over = found.peak_bytes[s] - problem_.limit_bytes[s];
          worst = s;
        }
      if (over >= least - limit) continue;
      stage = worst;
      least = found.peak_bytes[worst];
      limit = problem_.limit_bytes[worst];
    }
    return Error(
        fmt::format("no schedule fits: stage {} needs {:.3g} GB of {:.3g} GB at least; give "
                    "the job more GPUs or smaller micro-batches",
                    stage, least / 1e9, limit / 1e9));
  }

  const ScheduleProblem& problem_;
  Executor& executor_;
  const Budget& budget_;
};

}  // namespace

Result<FoundSchedule> search_schedule(const ScheduleProblem& problem, Executor& executor,
                                      const Budget& budget) {
  if (problem.choices.empty())
    return Error("a schedule is searched without costs; give those of one number of chunks");
  for (const Costs& costs : problem.choices) {
    if (const auto valid = schedule::check_shape(costs.shape); !valid) return valid.error();
    if (const auto valid = costs.check(costs.shape); !valid) return valid.error();
    if (!problem.limit_bytes.empty() &&
        problem.limit_bytes.size() != static_cast<std::size_t>(costs.shape.stages))
      return Error(fmt::format("memory is given for {}, the plan has {}",
                               count_of(problem.limit_bytes.size(), "stage"), costs.shape.stages));
  }
  return Search(problem, executor, budget).run();
}

}  // namespace swell::planner
