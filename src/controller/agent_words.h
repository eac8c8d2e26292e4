// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "control/messages.h"
#include "controller/steps_left.h"

namespace swell::controller {

/// The last messages of a job's agent. Only AgentMessages writes it, but for ask_to_stay().
class AgentWords {
 public:
  AgentWords() { last_.lost_generation = -1; }

  /// Takes a hello. `no_growth`: that of the hello, as long as it is kept.
  void hello(const control::Hello& hello, std::string no_growth) {
    gpus_per_worker_ = hello.gpus_per_worker;
    last_.workers = hello.workers;
    last_.no_growth = std::move(no_growth);
    last_.sizes = hello.sizes;
  }
  /// Takes a status, with its texts as long as they are kept. `step_s`: a step's time by the job's
  /// profile; 0: it has reported none.
  void hear(control::Status status, double now, double step_s) {
    last_ = std::move(status);
    steps_.heard(now, last_.steps, last_.total_steps, step_s);
    if (last_.steps > 0 && !first_step_) first_step_ = last_.steps;
    if (last_.state == control::JobState::active && !trains_since_) trains_since_ = now;
  }
  /// Notes that a Requeue was called off, which is said once.
  void ask_to_stay() noexcept { last_.has_left = false; }
  /// Notes that its program has ended.
  void end() noexcept { last_.state = control::JobState::allocated; }
  /// Notes that the time of its program's start was taken over.
  void take_start(double now) noexcept { start_taken_ = now; }

  /// Returns its last status, with what a later hello said. `lost_generation` is -1 before the
  /// first.
  const control::Status& last() const noexcept { return last_; }
  int gpus_per_worker() const noexcept { return gpus_per_worker_; }
  /// Whether no reconfiguration is under way.
  bool is_settled() const noexcept {
    return last_.state == control::JobState::allocated || last_.state == control::JobState::active;
  }
  const StepsLeft& steps() const noexcept { return steps_; }
  /// Steps of its program that were seen: a training that is resumed made others before.
  std::int64_t steps_here() const noexcept {
    return first_step_ ? std::max<std::int64_t>(1, last_.steps - *first_step_ + 1) : 0;
  }
  /// When its program was first said to run.
  std::optional<double> trains_since() const noexcept { return trains_since_; }
  std::optional<double> start_taken() const noexcept { return start_taken_; }

 private:
  control::Status last_;
  int gpus_per_worker_ = 1;
  StepsLeft steps_;
  std::optional<std::int64_t> first_step_;
  std::optional<double> trains_since_, start_taken_;
};

}  // namespace swell::controller
