// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_driver.h"

#include <chrono>
#include <cstdlib>
#include <unistd.h>
#include <utility>

#include "base/mutex.h"
#include "control/quiet_thread.h"

namespace swell::launcher {

namespace {

/// SWELL_TEST_HOLD=PHASE:FILE: the phase begins when the file is gone, so that a test can kill
/// something just then.
void hold_for_a_test(runtime::SwitchMachine::Phase phase) {
  const char* set = std::getenv("SWELL_TEST_HOLD");
  const std::string text = set != nullptr ? set : "";
  const auto colon = text.find(':');
  if (colon == text.npos || text.substr(0, colon) != runtime::to_text(phase)) return;
  while (access(text.c_str() + colon + 1, F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

LiveDriver::LiveDriver(std::string key, std::function<void()> wake)
    : key_(std::move(key)), wake_(std::move(wake)) {
  thread_ = control::quiet_thread("swell-live", [this] { run(); });
}

LiveDriver::~LiveDriver() {
  {
    Lock lock(mutex_);
    stopping_ = true;
    for (Job& each : waiting_) each.coordinator->call_off();
    if (under_way_ != nullptr) under_way_->call_off();
    changed_.notify_all();
  }
  thread_.join();
}

void LiveDriver::order(Order order, const cluster::Cluster& cluster,
                       runtime::Coordinator::Options limits) {
  limits.key = key_;
  std::uint64_t generation = 0;
  std::visit([&](const auto& one) { generation = one.generation; }, order);
  limits.on_phase = [this, generation](runtime::SwitchMachine::Phase phase) {
    tell(InPhase{generation, phase});
    hold_for_a_test(phase);
  };
  limits.on_let_go = [this, generation] { tell(LetGo{generation}); };
  Lock lock(mutex_);
  for (Job& each : waiting_) each.coordinator->call_off();
  if (under_way_ != nullptr) under_way_->call_off();
  waiting_.push_back({std::move(order),
                      std::make_shared<runtime::Coordinator>(cluster, std::move(limits)),
                      generation});
  changed_.notify_all();
}

std::optional<std::uint64_t> LiveDriver::call_off() {
  Lock lock(mutex_);
  for (Job& each : waiting_) each.coordinator->call_off();
  if (under_way_ == nullptr || under_way_->call_off()) return std::nullopt;
  return its_generation_;
}

std::vector<LiveDriver::News> LiveDriver::take() {
  Lock lock(mutex_);
  return std::exchange(news_, {});
}

void LiveDriver::tell(News news) {
  {
    Lock lock(mutex_);
    news_.push_back(std::move(news));
  }
  wake_();
}

LiveDriver::Begun LiveDriver::begin_one(runtime::Coordinator& coordinator, const Begin& begin) {
  const auto report = coordinator.recover(begin.holders, begin.ranks, begin.generation);
  if (report.ok())
    return report->committed
               ? Begun{begin.generation, "", report->step, coordinator.stay(begin.ranks)}
               : Begun{begin.generation, report->why};
  if (report.error().code() != ErrorCode::not_found)
    return {begin.generation, report.error().message()};
  const auto done = coordinator.begin(begin.ranks, begin.generation);
  if (!done) return {begin.generation, done.error().message()};
  return {begin.generation, "", 0, coordinator.stay(begin.ranks)};
}

runtime::SwitchReport LiveDriver::switch_one(runtime::Coordinator& coordinator, const Switch& one) {
  auto report = coordinator.switch_plan(one.from, one.to, one.generation);
  if (report) return std::move(*report);
  // Nothing was asked of the old generation yet, so it goes on.
  runtime::SwitchReport failed;
  failed.generation = one.generation;
  failed.failed_in = runtime::SwitchMachine::Phase::prepare;
  failed.why = report.error().message();
  failed.code = report.error().code();
  failed.lacks_room = report.error().shortage().has_value();
  return failed;
}

LiveDriver::Stopped LiveDriver::stop_one(runtime::Coordinator& coordinator, const Stop& stop) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(stop.by - runtime::Deadline::clock::now());
  if (left.count() <= 0) return {stop.generation, {0, stop.ranks, "there was no time to agree"}};
  return {stop.generation, coordinator.request(runtime::kStopRequest, stop.ranks, left)};
}

void LiveDriver::carry_out(const Job& job) {
  runtime::Coordinator& coordinator = *job.coordinator;
  if (const auto* begin = std::get_if<Begin>(&job.order)) tell(begin_one(coordinator, *begin));
  else if (const auto* one = std::get_if<Switch>(&job.order)) tell(switch_one(coordinator, *one));
  else tell(stop_one(coordinator, std::get<Stop>(job.order)));
}

void LiveDriver::run() {
  for (;;) {
    std::optional<Job> job;
    {
      Lock lock(mutex_);
      under_way_.reset();
      changed_.wait(lock, [&]() SWELL_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      job.emplace(std::move(waiting_.front()));
      waiting_.erase(waiting_.begin());
      under_way_ = job->coordinator;
      its_generation_ = job->generation;
    }
    carry_out(*job);
  }
}

}  // namespace swell::launcher
