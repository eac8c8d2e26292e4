// SPDX-License-Identifier: GPL-2.0-or-later
// The search of schedules: against all schedules of small pipelines, and against eq. 5 for larger
// ones.
#include "core/planner/schedule_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <criterion/criterion.h>
#include <random>

#include "core/helpers.h"
#include "core/perf/modelled.h"
#include "core/schedule/named.h"

using namespace swell;
using namespace swell::schedule;
using planner::FoundSchedule;
using planner::ScheduleProblem;

namespace {

FoundSchedule search(const ScheduleProblem& problem) {
  InOrder alone;
  auto found = planner::search_schedule(problem, alone);
  cr_assert(found.ok(), "%s", found.error().message().c_str());
  return std::move(*found);
}

/// Goes through all schedules of one pipeline, but for those that cannot be faster than the best so
/// far: starts passes in the order of time.
class Exhaustive {
 public:
  Exhaustive(const Costs& costs, std::vector<double> limit_bytes, bool splits, double known_s)
      : costs_(costs),
        shape_(costs.shape),
        limit_(std::move(limit_bytes)),
        kinds_(splits ? 3 : 2),
        best_s_(known_s) {
    const std::size_t stages = size(shape_.stages);
    free_.assign(stages, 0);
    held_.assign(stages, 0);
    left_.assign(stages, 0);
    done_.assign(stages * size(shape_.chunks) * kKinds, 0);
    end_.assign(done_.size() * size(shape_.micro_batches), 0);
    for (int stage = 0; stage < shape_.stages; ++stage)
      for (int chunk = 0; chunk < shape_.chunks; ++chunk)
        for (const double seconds : costs.at(stage, chunk).seconds)
          left_[size(stage)] += shape_.micro_batches * seconds;
  }
  /// The shortest time, or what was known where nothing is shorter.
  double run() {
    passes_ = shape_.stages * shape_.chunks * shape_.micro_batches * kinds_;
    go_on(0, 0, 0);
    return best_s_;
  }

 private:
  static std::size_t size(int i) { return static_cast<std::size_t>(i); }
  std::size_t place(int stage, const Operation& one) const {
    return (size(stage) * size(shape_.chunks) + size(one.chunk)) * kKinds +
           static_cast<std::size_t>(one.kind);
  }
  double& end(int stage, const Operation& one) {
    return end_[place(stage, one) * size(shape_.micro_batches) + size(one.micro_batch)];
  }

  void go_on(int made, double last_begin, int last_stage) {
    double latest = 0;
    for (std::size_t s = 0; s < free_.size(); ++s) latest = std::max(latest, free_[s] + left_[s]);
    if (latest > best_s_ * (1 - 1e-9)) return;
    if (made == passes_) {
      best_s_ = latest;
      return;
    }
    for (int stage = 0; stage < shape_.stages; ++stage)
      for (int chunk = 0; chunk < shape_.chunks; ++chunk)
        for (int kind = 0; kind < kinds_; ++kind) {
          Operation one{static_cast<Kind>(kind), static_cast<std::int16_t>(chunk), 0};
          int& count = done_[place(stage, one)];
          if (count == shape_.micro_batches) continue;
          one.micro_batch = count;
          double begin = free_[size(stage)];
          if (kind > 0) {
            const Operation first{static_cast<Kind>(kind - 1), one.chunk, 0};
            if (done_[place(stage, first)] <= count) continue;
          }
          if (const Need need = need_of(shape_, stage, one); need.any) {
            if (done_[place(need.stage, need.operation)] <= count) continue;
            const ChunkCost& from = costs_.at(need.stage, need.operation.chunk);
            const double send = kind == 0 ? from.send_forward_s : from.send_backward_s;
            begin =
                std::max(begin, end(need.stage, need.operation) + (need.stage == stage ? 0 : send));
          }
          if (begin < last_begin || (begin == last_begin && stage < last_stage)) continue;
          const ChunkCost& cost = costs_.at(stage, chunk);
          double seconds = cost.seconds[size(kind)], bytes = cost.bytes[size(kind)];
          if (kind == 1 && kinds_ == 2) seconds += cost.seconds[2], bytes += cost.bytes[2];
          if (!limit_.empty() && held_[size(stage)] + bytes > limit_[size(stage)]) continue;
          const double free = free_[size(stage)];
          ++count;
          free_[size(stage)] = end(stage, one) = begin + seconds;
          held_[size(stage)] += bytes;
          left_[size(stage)] -= seconds;
          go_on(made + 1, begin, stage);
          left_[size(stage)] += seconds;
          held_[size(stage)] -= bytes;
          free_[size(stage)] = free;
          --count;
        }
  }

  const Costs& costs_;
  const Shape shape_;
  const std::vector<double> limit_;
  const int kinds_;
  double best_s_;
  int passes_ = 0;
  std::vector<double> free_, held_, left_, end_;
  std::vector<int> done_;
};

double between(std::mt19937& random, double from, double to) {
  return from + (to - from) * static_cast<double>(random() % 1000) / 1000;
}

Costs random_costs(const Shape& shape, std::mt19937& random) {
  Costs costs = Costs::uniform(shape, {});
  for (ChunkCost& one : costs.chunks) {
    one.seconds = {between(random, 0.5, 1.5), between(random, 0.5, 1.5), between(random, 0.5, 1.5)};
    one.bytes = {1, -0.25, -0.75};
    one.send_forward_s = between(random, 0, 0.4);
    one.send_backward_s = between(random, 0, 0.4);
  }
  return costs;
}

double eq5(const Shape& shape) {
  return perf::modelled_pipeline(shape.micro_batches, shape.stages, shape.chunks, shape.chunks)
      .total();
}

Costs equal_costs(const Shape& shape) {
  ChunkCost cost;
  cost.seconds = {1, 1, 1};
  cost.bytes = {1, -0.5, -0.5};
  return Costs::uniform(shape, cost);
}

}  // namespace

Test(schedule_search, small_pipelines_are_nearly_as_fast_as_the_best_of_all_schedules) {
  std::mt19937 random(3);
  double sum = 0, worst = 1;
  int count = 0;
  for (const bool splits : {false, true})
    for (const bool bounded : {false, true})
      for (const Shape shape : {Shape{2, 1, 4}, Shape{3, 1, 2}, Shape{4, 1, 2}, Shape{2, 2, 2},
                                Shape{2, 1, 6}, Shape{3, 1, 4}, Shape{4, 1, 3}}) {
        if (shape.stages * shape.chunks * shape.micro_batches * (splits ? 3 : 2) > 24) continue;
        for (int round = 0; round < 5; ++round) {
          ScheduleProblem problem{{random_costs(shape, random)}, {}, splits, 150};
          if (bounded)
            for (int i = 0; i < shape.stages; ++i)
              problem.limit_bytes.push_back(
                  shape.chunks + 0.3 +
                  static_cast<double>(random() %
                                      static_cast<unsigned>(shape.chunks * shape.micro_batches)));
          const double found = search(problem).prediction.seconds;
          const double best =
              Exhaustive(problem.choices.front(), problem.limit_bytes, splits, found).run();
          sum += best / found;
          worst = std::min(worst, best / found);
          ++count;
        }
      }
  cr_assert_gt(count, 90);
  cr_assert_geq(sum / count, 0.99, "on average %g of the best, at worst %g", sum / count, worst);
  cr_assert_geq(worst, 0.8, "%g", worst);
}

// FlexTrain, eq. 5, for every number of micro-batches, in the memory of interleaved().
Test(schedule_search, equation_5_is_reached_in_the_memory_of_interleaved) {
  double sum = 0, worst = 1;
  int count = 0;
  for (const int p : {2, 4, 7, 16})
    for (const int v : {1, 2, 4})
      for (const int m : {1, p / 2 + 1, p, p + 1, p + p / 2, 2 * p - 1, 3 * p + 1}) {
        const Shape shape{p, v, m};
        const Costs costs = equal_costs(shape);
        ScheduleProblem problem{{costs}, {}, false, 20};
        problem.limit_bytes = evaluate(*Graph::of(interleaved(shape)), costs).peak_bytes;
        const double ratio = search(problem).prediction.seconds / (3 * eq5(shape));
        cr_assert_geq(ratio, 1 - 1e-9);
        sum += ratio;
        worst = std::max(worst, ratio);
        ++count;
      }
  cr_assert_leq(sum / count, 1.03, "%g", sum / count);
  cr_assert_leq(worst, 1.12, "%g", worst);
}

Test(schedule_search, it_is_never_slower_than_a_named_schedule_and_often_faster) {
  std::mt19937 random(5);
  int faster = 0;
  for (int round = 0; round < 30; ++round) {
    const Shape shape{2 + static_cast<int>(random() % 5), 1 + static_cast<int>(random() % 2),
                      1 + static_cast<int>(random() % 12)};
    ScheduleProblem problem{{random_costs(shape, random)}, {}, true, 100};
    const FoundSchedule found = search(problem);
    double named_s = 1e300;
    for (const auto name : names())
      if (const auto one = named(name, shape))
        named_s = std::min(named_s, evaluate(*Graph::of(*one), problem.choices[0]).seconds);
    cr_assert(found.best_named_s == named_s, "%g, %g", found.best_named_s, named_s);
    cr_assert_leq(found.prediction.seconds, named_s);
    cr_assert(check(found.schedule, shape).ok());
    if (found.prediction.seconds < named_s) ++faster;
  }
  cr_assert_gt(faster, 15, "%d of 30", faster);
}

Test(schedule_search, memory_bounds_are_kept_and_the_number_of_chunks_is_chosen) {
  // Two chunks of half the layers each, or one: few micro-batches ask for two, little memory for
  // one.
  const auto choices_of = [](int m) {
    std::vector<Costs> choices;
    for (const int v : {1, 2}) {
      Costs costs = equal_costs({8, v, m});
      for (ChunkCost& one : costs.chunks) {
        for (double& seconds : one.seconds) seconds /= v;
        for (double& bytes : one.bytes) bytes /= v;
      }
      choices.push_back(costs);
    }
    return choices;
  };
  ScheduleProblem problem{choices_of(8), {}, false, 50};
  cr_assert_eq(search(problem).choice, 1u);
  for (const double limit : {1.0, 2.0, 5.0, 8.0}) {
    problem.limit_bytes.assign(8, limit);
    const FoundSchedule found = search(problem);
    for (const double peak : found.prediction.peak_bytes) cr_assert_leq(peak, limit);
    if (limit == 1.0) cr_assert_str_eq(found.best_named.c_str(), "memory-minimised");
  }
  problem.limit_bytes[3] = 0.9;
  InOrder alone;
  const auto none = planner::search_schedule(problem, alone);
  cr_assert(!none.ok());
  cr_assert(none.error().message().find("no schedule fits: stage 3 needs") == 0, "%s",
            none.error().message().c_str());
}

Test(schedule_search, any_number_of_threads_finds_the_same) {
  std::mt19937 random(9);
  ScheduleProblem problem{
      {random_costs({4, 1, 6}, random), random_costs({4, 2, 6}, random)}, {}, true, 200};
  const FoundSchedule one = search(problem);
  for (const int threads : {1, 3}) {
    Helpers helpers(threads,
                    [](std::function<void()> body) { return std::thread(std::move(body)); });
    const auto other = planner::search_schedule(problem, helpers);
    cr_assert(other.ok());
    cr_assert(other->schedule == one.schedule && other->choice == one.choice);
    cr_assert_eq(other->evaluated, one.evaluated);
  }
}

Test(schedule_search, time_that_is_up_leaves_the_best_named_one_or_better) {
  std::mt19937 random(9);
  const ScheduleProblem problem{
      {random_costs({4, 1, 6}, random), random_costs({4, 2, 6}, random)}, {}, true, 200};
  InOrder alone;
  long evaluated = 0;
  double seconds = std::numeric_limits<double>::infinity();
  std::atomic<long> looks = 0;
  for (const long limit : {0L, 10L, 100L, 400L, 1000L}) {
    looks = 0;
    const planner::Budget budget{[&] { return ++looks > limit; }};
    const auto found = planner::search_schedule(problem, alone, budget);
    cr_assert(found.ok());
    cr_assert_leq(found->prediction.seconds, found->best_named_s);
    cr_assert_leq(found->prediction.seconds, seconds, "more time is never worse");
    cr_assert(check(found->schedule, problem.choices[found->choice].shape).ok());
    const long named = 4 + 5;  // 1f1b has one chunk
    cr_assert_leq(found->evaluated, named + limit, "%ld after %ld", found->evaluated, limit);
    cr_assert_geq(found->evaluated, evaluated);
    evaluated = found->evaluated;
    seconds = found->prediction.seconds;
  }
  cr_assert_gt(evaluated, 500);
  cr_assert_leq(search(problem).prediction.seconds, seconds);
}

Test(schedule_search, time_that_is_up_finds_no_reason_why_nothing_fits) {
  ScheduleProblem problem{{equal_costs({4, 1, 6})}, {1, 1, 1, 1}, false, 50};
  InOrder alone;
  const planner::Budget over{[] { return true; }};
  const auto found = planner::search_schedule(problem, alone, over);
  cr_assert(found.ok(), "one micro-batch at a time fits always where anything does");
  cr_assert_str_eq(found->name.c_str(), "memory-minimised");
  problem.limit_bytes[2] = 0.9;
  const auto none = planner::search_schedule(problem, alone, over);
  cr_assert(none.error().message().starts_with("no schedule fits: stage 2 needs"));
}

Test(schedule_search, wrong_problems_are_refused) {
  InOrder alone;
  ScheduleProblem problem;
  cr_assert(!planner::search_schedule(problem, alone).ok());
  problem.choices = {equal_costs({2, 1, 4})};
  problem.limit_bytes = {5, 5, 5};
  cr_assert(!planner::search_schedule(problem, alone).ok());
  problem.limit_bytes = {5, 5};
  problem.choices.front().at(1, 0).seconds[0] = -1;
  cr_assert(!planner::search_schedule(problem, alone).ok());
}
