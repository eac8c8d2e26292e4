// SPDX-License-Identifier: GPL-2.0-or-later
// The driver's thread among shims of this process and real programs.
#include <condition_variable>
#include <criterion/criterion.h>
#include <mutex>

#include "launcher/live_driver.h"
#include "support/live_job.h"

using namespace swell;
using namespace swell::launcher;
using runtime::Coordinator;
using runtime::SwitchReport;
using support::LiveJob;
using support::PlanShape;

namespace {

using Phase = runtime::SwitchMachine::Phase;
using namespace std::chrono_literals;

constexpr PlanShape kOld{1, 1, 1, 0}, kNew{2, 1, 1, 0};

/// A job of one rank that trains, and the driver that is to bring it to two.
struct Run {
  Run()
      : job(SWELL_EXAMPLE, 2, {"1000000000", "4", "12", "10", "1000"}),
        driver(LiveJob::kKey, [this] {
          std::lock_guard lock(mutex);
          is_woken = true;
          woken.notify_all();
        }) {}
  pid_t begin() {
    const pid_t program = job.start(kOld)[0];
    driver.order(LiveDriver::Begin{1, job.shims(kOld)}, LiveJob::cluster());
    const auto begun = wait_for<LiveDriver::Begun>();
    cr_assert_eq(begun.why, std::string());
    cr_assert_eq(begun.generation, 1u);
    return program;
  }
  void order_switch() {
    Coordinator::Options limits;
    limits.step_lead = 100;
    driver.order(LiveDriver::Switch{2, job.shims(kOld), job.shims(kNew)}, LiveJob::cluster(),
                 limits);
  }
  void wait_for_phase(Phase phase) {
    while (wait_for<LiveDriver::InPhase>().phase != phase) continue;
  }
  /// The next news of this kind.
  template <typename T>
  T wait_for() {
    for (const auto end = std::chrono::steady_clock::now() + 30s;;) {
      for (auto at = news.begin(); at != news.end(); ++at)
        if (auto* found = std::get_if<T>(&*at)) {
          T one = std::move(*found);
          news.erase(at);
          return one;
        }
      std::unique_lock lock(mutex);
      cr_assert(woken.wait_until(lock, end, [this] { return is_woken; }), "no news came");
      is_woken = false;
      for (LiveDriver::News& each : driver.take()) news.push_back(std::move(each));
    }
  }

  LiveJob job;
  std::mutex mutex;
  std::condition_variable woken;
  bool is_woken = false;
  std::vector<LiveDriver::News> news;
  LiveDriver driver;
};

}  // namespace

Test(live_driver, tells_each_phase_and_then_the_outcome, .timeout = 60) {
  Run run;
  run.begin();
  run.job.start(kNew);
  run.order_switch();
  for (const Phase phase : {Phase::prepare, Phase::quiesce, Phase::move, Phase::commit})
    cr_assert(run.wait_for<LiveDriver::InPhase>().phase == phase);
  const auto report = run.wait_for<SwitchReport>();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(run.job.status(1).generation, 2u);
}

Test(live_driver, a_cancelled_switch_is_answered_and_the_old_generation_stays, .timeout = 60) {
  Run run;
  run.begin();
  run.order_switch();  // its programs never come
  run.wait_for_phase(Phase::prepare);
  cr_assert_not(run.driver.call_off().has_value());
  cr_assert_not(run.wait_for<SwitchReport>().committed);
  cr_assert_eq(run.job.status(0).generation, 1u);
}

Test(live_driver, a_switch_that_is_over_cannot_be_called_off_any_more, .timeout = 60) {
  Run run;
  run.begin();
  run.job.start(kNew);
  run.order_switch();
  cr_assert(run.wait_for<SwitchReport>().committed);
  run.driver.call_off();
  cr_assert_eq(run.job.status(0).generation, 2u);
}

Test(live_driver, a_second_order_calls_the_first_off, .timeout = 60) {
  Run run;
  run.begin();
  run.order_switch();
  run.wait_for_phase(Phase::prepare);
  run.order_switch();
  cr_assert_not(run.wait_for<SwitchReport>().committed);
  run.job.start(kNew);
  cr_assert(run.wait_for<SwitchReport>().committed);
}

Test(live_driver, ends_while_a_switch_is_under_way, .timeout = 60) {
  Run run;
  run.begin();
  run.order_switch();
  run.wait_for_phase(Phase::prepare);
}

Test(live_driver, workers_told_to_stop_leave_at_a_step_and_are_reported, .timeout = 60) {
  Run run;
  const pid_t program = run.begin();
  run.driver.order(LiveDriver::Stop{1, run.job.shims(kOld), runtime::within(20s)},
                   LiveJob::cluster());
  const auto stopped = run.wait_for<LiveDriver::Stopped>();
  cr_assert_eq(stopped.generation, 1u);
  cr_assert(stopped.report.step > 0 && stopped.report.untold.empty(), "%s",
            stopped.report.why.c_str());
  cr_assert_eq(run.job.wait(program), 0);
}

Test(live_driver, a_stop_that_comes_too_late_tells_nobody, .timeout = 60) {
  Run run;
  run.begin();
  run.driver.order(LiveDriver::Stop{1, run.job.shims(kOld), runtime::Deadline::clock::now() - 1s},
                   LiveJob::cluster());
  const auto stopped = run.wait_for<LiveDriver::Stopped>();
  cr_assert_eq(stopped.report.step, 0u);
  cr_assert_eq(stopped.report.untold.size(), 1u);
}

Test(live_driver, a_recovery_that_fails_is_told_of_and_lets_its_programs_go, .timeout = 60) {
  Run run;
  run.job.variables = {"SWELL_SNAPSHOT_EVERY=2"};
  const pid_t program = run.begin();
  while (run.job.status(0).step < 20) std::this_thread::sleep_for(10ms);
  run.driver.order(LiveDriver::Stop{1, run.job.shims(kOld), runtime::within(20s)},
                   LiveJob::cluster());
  cr_assert_eq(run.job.wait(program), 0);
  const pid_t next = run.job.start(kOld)[0];
  while (!run.job.status(0).has_waiting) std::this_thread::sleep_for(10ms);
  auto ranks = run.job.shims(kOld);
  ranks.push_back({"", "127.0.0.1:1", {0, 1}});
  run.driver.order(LiveDriver::Begin{2, ranks, run.job.shims(kOld)}, LiveJob::cluster());
  const auto begun = run.wait_for<LiveDriver::Begun>();
  cr_assert_neq(begun.why.find("127.0.0.1:1"), std::string::npos, "%s", begun.why.c_str());
  run.job.wait(next);  // it is told
}
