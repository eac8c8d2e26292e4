// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/training_progress.h"

namespace swell::sim {

namespace {

constexpr double kCheckpoint_s = 1800;  // seconds between checkpoints of a training program

}  // namespace

void TrainingProgress::advance(double now_s) noexcept {
  while (saved_s_ + kCheckpoint_s <= now_s) {
    saved_s_ += kCheckpoint_s;
    saved_left_ = left_ - std::max(0.0, saved_s_ - since_s_) * rate_;
  }
  left_ = left(now_s);
  since_s_ = now_s;
}

void TrainingProgress::set_rate(double rate, double now_s) noexcept {
  advance(now_s);
  rate_ = rate;
  ++stamp_;
}

void TrainingProgress::fall_back(double now_s) noexcept {
  left_ = saved_left_;
  since_s_ = saved_s_ = now_s;
}

}  // namespace swell::sim
