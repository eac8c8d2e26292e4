// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_pace.h"

#include <algorithm>
#include <cstddef>

namespace swell::launcher {

namespace {

constexpr std::size_t kKept = 3;
constexpr int kLeavesUntilForgotten = 3;

double longest(const std::deque<double>& list) {
  return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
}

}  // namespace

std::optional<double> LivePace::expected_s() const {
  if (!starts_of_running_s_.empty()) return longest(starts_of_running_s_) + longest(moves_s_);
  if (stays_) return std::nullopt;  // nothing has to start
  if (!starts_s_.empty()) return longest(starts_s_) + longest(moves_s_);
  return first_start_s_;
}

std::optional<double> LivePace::longer_than_leaving_s(bool listen) const {
  const auto switch_s = expected_s();
  if (!switch_s || (leaves_s_.empty() && (stays_ || !listen))) return std::nullopt;
  return *switch_s - (leaves_s_.empty() ? kLeave_s : longest(leaves_s_));
}

void LivePace::left(double seconds) {
  remember(leaves_s_, seconds);
  if (++leaves_since_ < kLeavesUntilForgotten) return;
  leaves_since_ = 0;
  starts_of_running_s_.clear();
  moves_s_.clear();
}

void LivePace::remember(std::deque<double>& list, double seconds) {
  list.push_back(std::max(0.0, seconds));
  if (list.size() > kKept) list.pop_front();
}

}  // namespace swell::launcher
