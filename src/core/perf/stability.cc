// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/stability.h"

#include <algorithm>
#include <cmath>

namespace swell::perf {

namespace {

double change(double a, double b) {
  if (a == b) return 0;
  return std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

}  // namespace

double largest_change(const Coefficients& a, const Coefficients& b) {
  double max = 0;
  auto with = [&](double x, double y) { max = std::max(max, change(x, y)); };
  if (a.types.size() != b.types.size()) return 1;
  for (std::size_t i = 0; i < a.types.size(); ++i) {
    with(a.types[i].comp_s, b.types[i].comp_s);
    with(a.types[i].backward, b.types[i].backward);
    with(a.types[i].optim_s, b.types[i].optim_s);
    with(a.types[i].overlap, b.types[i].overlap);
    with(a.types[i].weights_share, b.types[i].weights_share);
  }
  with(a.activ_bytes, b.activ_bytes);
  with(a.param_bytes, b.param_bytes);
  with(a.param_optim_bytes, b.param_optim_bytes);
  with(a.activ_p_bytes, b.activ_p_bytes);
  with(a.activ_np_bytes, b.activ_np_bytes);
  with(a.sharded_state, b.sharded_state);
  with(a.sharded_gradients, b.sharded_gradients);
  with(a.max_shards, b.max_shards);
  return max;
}

bool Stability::add(Coefficients coefficients) {
  recent_.push_back(std::move(coefficients));
  if (recent_.size() > window_) recent_.pop_front();
  return stable();
}

bool Stability::stable() const {
  if (recent_.size() < window_) return false;
  for (std::size_t i = 0; i < recent_.size(); ++i)
    for (std::size_t j = i + 1; j < recent_.size(); ++j)
      if (largest_change(recent_[i], recent_[j]) > tolerance_) return false;
  return true;
}

}  // namespace swell::perf
