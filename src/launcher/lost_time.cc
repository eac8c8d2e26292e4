// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/lost_time.h"

#include <algorithm>

namespace swell::launcher {

namespace {

// Programs report their boundaries once a second.
constexpr std::size_t kHeard = 64;
// The usual duration of a step is measured over at least this many steps and seconds.
constexpr std::uint64_t kSteps = 5;
constexpr double kUsual_s = 2;
// The first steps of a program are slower.
constexpr std::uint64_t kSlowSteps = 3;
constexpr double kRounding = 1e-6;

template <typename P>
bool is_long_enough(const P& from, const P& to) {
  return to.step >= from.step + kSteps && to.at >= from.at + kUsual_s;
}
template <typename P>
double seconds_a_step(const P& from, const P& to) {
  return (to.at - from.at) / static_cast<double>(to.step - from.step);
}

}  // namespace

void LostTime::passed(double at, int generation, std::uint64_t step) {
  const Passed now{at, generation, step};
  if (step == 0) return;
  if (!heard_.empty() && heard_.back().generation == generation && heard_.back().step >= step)
    return;
  heard_.push_back(now);
  if (heard_.size() > kHeard) heard_.pop_front();
  if (change_ && generation == change_->generation) measure(now);
}

void LostTime::changed(double began, int generation, std::uint64_t stopped_at) {
  change_.reset();
  const auto before = std::find_if(heard_.rbegin(), heard_.rend(), [&](const Passed& one) {
    return one.at <= began && one.generation < generation;
  });
  if (before == heard_.rend()) return;
  Change change{generation, stopped_at, *before, 0, {}};
  for (auto from = before; from != heard_.rend() && from->generation == before->generation; ++from)
    if (is_long_enough(*from, *before)) {
      change.old_s = seconds_a_step(*from, *before);
      break;
    }
  if (change.old_s <= 0) return;
  for (const Passed& one : heard_)
    if (stopped_at == 0 && one.generation == before->generation)
      change.stopped_at = std::max(change.stopped_at, one.step);
  change_ = std::move(change);
  for (const Passed& one : std::deque<Passed>(heard_))
    if (change_ && one.generation == generation) measure(one);
}

void LostTime::measure(const Passed& now) {
  Change& change = *change_;
  if (!change.usual) {
    // The program may count anew: then its step in the whole training is not known.
    if (now.step < change.stopped_at) change_.reset();
    else if (now.step >= change.stopped_at + kSlowSteps) change.usual = now;
    return;
  }
  if (!is_long_enough(*change.usual, now)) return;
  const double new_s = seconds_a_step(*change.usual, now);
  const auto steps = [](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(to) - static_cast<double>(from);
  };
  const double lost = change.usual->at - change.before.at -
                      steps(change.before.step, change.stopped_at) * change.old_s -
                      steps(change.stopped_at, change.usual->step) * new_s;
  // A negative result means that steps vary by more than the change cost.
  if (lost > -kRounding) last_ = Cost{change.generation, std::max(0.0, lost)};
  change_.reset();
}

}  // namespace swell::launcher
