// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/progress.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace swell::launcher {

namespace {

constexpr std::size_t kKept = 31;         // intervals, whose median is the usual one
constexpr std::size_t kLeast = 8;         // intervals before their median counts as usual
constexpr int kStepsOfGeneration = 3;     // the first ones may compile
constexpr int kOutputsOfGeneration = 20;  // programs write also before the first step
/// Factor of the minimum for output: programs may train on without writing, seldom after much.
constexpr double kOutputPatience = 3;
/// Factor by which a pause that was seen once, such as an evaluation, may be exceeded.
constexpr double kLongest = 2;
/// Workers repeat their reports within this time.
constexpr double kHeard_s = 20;

}  // namespace

void Progress::Signs::add(double now, std::uint64_t count) {
  if (has_last && in_generation >= kStepsOfGeneration - 1) {
    intervals.push_back((now - last) / static_cast<double>(count));
    if (intervals.size() > kKept) intervals.pop_front();
    longest_s = std::max(longest_s, now - last);
  }
  has_last = true;
  last = now;
  ++in_generation;
}

bool Progress::Signs::is_known() const { return intervals.size() >= kLeast; }

double Progress::Signs::usual_s() const {
  std::vector<double> sorted(intervals.begin(), intervals.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void Progress::begin(double now) {
  began_ = now;
  for (Signs* each : {&steps_, &output_}) {
    each->has_last = false;
    each->in_generation = 0;
    each->number = 0;
  }
}

void Progress::rest(double now) {
  began_ = now;
  for (Signs* each : {&steps_, &output_}) each->last = now;
}

void Progress::step(double now, std::uint64_t steps) {
  heard_ = now;
  if (steps == 0) return;
  if (steps_.has_last && steps <= steps_.number) return;
  steps_.add(now, steps_.has_last ? steps - steps_.number : 1);
  steps_.number = steps;
}

void Progress::output(double now) { output_.add(now, 1); }

const Progress::Signs* Progress::judged() const {
  if (settings_.factor <= 0) return nullptr;
  if (steps_.is_known() || steps_.in_generation > 0)
    return steps_.is_known() && steps_.in_generation >= kStepsOfGeneration ? &steps_ : nullptr;
  const bool writes = output_.is_known() && output_.in_generation >= kOutputsOfGeneration &&
                      output_.last - began_ >= limit_s(output_);
  return writes ? &output_ : nullptr;
}

double Progress::limit_s(const Signs& signs) const {
  const double minimum_s = settings_.minimum_s * (&signs == &output_ ? kOutputPatience : 1);
  return patience_ *
         std::max({minimum_s, settings_.factor * signs.usual_s(), kLongest * signs.longest_s});
}

std::optional<double> Progress::hangs_at() const {
  const Signs* signs = judged();
  if (signs == nullptr) return std::nullopt;
  return signs->last + limit_s(*signs);
}

bool Progress::is_heard(double now) const { return now - heard_ <= kHeard_s; }

std::string Progress::reason(double now) const {
  const Signs* signs = judged();
  if (signs == nullptr) return "no step";
  return fmt::format("the program has {} for {:.0f} s, where {:.3g} s are usual",
                     signs == &steps_ ? "made no step" : "written nothing", now - signs->last,
                     signs->usual_s());
}

}  // namespace swell::launcher
