// SPDX-License-Identifier: GPL-2.0-or-later
// All ranks stop at one step, without a switch.
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/meeting.h"
#include "support/given_shim.h"

using namespace live_steps;

namespace {

/// A shim without a program, with the given answers to agree; it says nothing when it has none
/// left.
class AskedShim {
 public:
  struct Answer {
    AgreeAnswer is;
    std::uint64_t step;
  };
  AskedShim(const std::string& path, std::vector<Answer> answers, bool is_always_late = false)
      : answers_(answers.begin(), answers.end()),
        is_always_late_(is_always_late),
        shim_(path, [this](const Message& asked) { return answer(asked); }) {}
  /// The numbers that were asked with this question, in order.
  std::vector<std::uint64_t> asked(Op op) const {
    std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> numbers;
    for (const auto& [its, number] : asked_)
      if (its == op) numbers.push_back(number);
    return numbers;
  }

 private:
  std::optional<std::string> answer(const Message& message) {
    const auto op = static_cast<Op>(message.op);
    const auto number = swell::ByteReader(message.body).get<std::uint64_t>();
    {
      std::lock_guard lock(mutex_);
      asked_.emplace_back(op, number);
    }
    if (op == Op::status) return write(Status{});
    if (op != Op::agree) return std::string();
    Answer next{AgreeAnswer::late, number};
    if (!is_always_late_) {
      if (answers_.empty()) return {};
      next = answers_.front();
      answers_.pop_front();
    }
    return swell::ByteWriter().put(next.is).put(next.step).take();
  }

  std::deque<Answer> answers_;
  const bool is_always_late_;
  mutable std::mutex mutex_;
  std::vector<std::pair<Op, std::uint64_t>> asked_;
  support::GivenShim shim_;  // last: its thread uses the others
};

/// The shim of one more rank, in the job's folder.
Shim given_rank(const LiveJob& job) { return {job.folder() + "/given/socket", "", {3, 0}}; }

}  // namespace

Test(live_stop, ranks_that_wait_for_each_other_leave_at_one_step, .timeout = 300) {
  for (int time = 0; time < 8; ++time) {
    Meeting meeting(time % 2 == 0 ? std::vector{0, 0, 0, 0} : std::vector{0, 500, 3000});
    const auto report = meeting.coordinator.request(kStopRequest, meeting.ranks(), 30s);
    cr_assert(report.why.empty() && report.untold.empty(), "%s", report.why.c_str());
    for (int rank = 0; rank < meeting.plan.ranks(); ++rank) {
      cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
      cr_assert_eq(meeting.told("stop", rank), report.step);
    }
  }
}

Test(live_stop, slow_ranks_that_do_not_wait_come_to_the_step_of_the_fast, .timeout = 300) {
  Meeting meeting({200, 400, 1000}, false);
  const auto report = meeting.coordinator.request(kStopRequest, meeting.ranks(), 30s);
  cr_assert(report.why.empty(), "%s", report.why.c_str());
  for (int rank = 0; rank < 3; ++rank) {
    cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
    cr_assert_eq(meeting.told("stop", rank), report.step);
  }
}

Test(live_stop, the_next_programs_begin_with_the_step_at_which_they_left, .timeout = 300) {
  Meeting meeting({0, 500, 1000});
  const auto report = meeting.coordinator.request(kStopRequest, meeting.ranks(), 30s);
  for (const pid_t pid : meeting.programs) cr_assert_eq(meeting.job.wait(pid), 0);
  std::filesystem::remove(meeting.job.folder() + "/meeting");
  meeting.start({0, 500, 1000});
  const auto again = meeting.coordinator.recover(meeting.ranks(), meeting.ranks(), 2).value();
  cr_assert(again.committed, "%s", again.summary().c_str());
  cr_assert_eq(again.step, report.step);
  wait_for_steps(meeting.job, 0, report.step + 5);
}

Test(live_stop, state_of_a_left_ranks_shim_is_with_its_partner, .timeout = 300) {
  // Both fetch the other's snapshot late: after a program that does not wait for it has left, and
  // its shim with it.
  std::atomic<bool> are_both_there = true;
  std::atomic<int> asked = 0;
  const auto holds = [&](Keeper::Options::Hold hold) {
    return hold == Keeper::Options::Hold::keeping && are_both_there && ++asked < 50;
  };
  LiveJob job(SWELL_MEETING_PROGRAM, 2, {}, false, holds);
  const PlanShape two{1, 2, 1, 0}, one{1, 1, 1, 0};
  job.variables = {"SWELL_SNAPSHOT_EVERY=1000000000"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start(two);
  cr_assert(coordinator.begin(job.shims(two), 1).ok());
  wait_for_steps(job, 0, 3);
  const auto report = coordinator.request(kStopRequest, job.shims(two), 30s);
  cr_assert_eq(job.wait(programs[1]), 0);
  job.keepers[1].reset();
  are_both_there = false;
  cr_assert_eq(job.wait(programs[0]), 0);
  cr_assert_gt(asked.load(), 0, "it was fetched without a hold");
  job.start(one);
  const auto again = coordinator.recover(job.shims(one), job.shims(one), 2);
  cr_assert(again.ok(), "%s", again ? "" : again.error().message().c_str());
  cr_assert(again->committed && again->step == report.step, "%s", again->summary().c_str());
}

Test(live_stop, a_rank_asked_a_second_time_leaves_at_the_same_step, .timeout = 300) {
  Meeting meeting({1'000'000, 1'000'000});  // the second request comes before they leave
  const auto first = meeting.coordinator.request(kStopRequest, meeting.ranks(), 30s);
  const auto again = meeting.coordinator.request(kStopRequest, meeting.ranks(), 30s);
  cr_assert(again.step == first.step && again.untold.empty(), "%s", again.why.c_str());
  for (int rank = 0; rank < 2; ++rank) {
    cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
    cr_assert_eq(meeting.told("stop", rank), first.step);
  }
}

Test(live_stop, a_checkpoint_is_written_at_one_step_and_all_go_on, .timeout = 300) {
  Meeting meeting({0, 500, 1000});
  const auto report = meeting.coordinator.request(kCheckpointRequest, meeting.ranks(), 30s);
  cr_assert(report.why.empty(), "%s", report.why.c_str());
  for (int rank = 0; rank < 3; ++rank) wait_for_steps(meeting.job, rank, report.step + 3);
  for (int rank = 0; rank < 3; ++rank) cr_assert_eq(meeting.told("checkpoint", rank), report.step);
  cr_assert_eq(meeting.coordinator.request(kStopRequest, meeting.ranks(), 30s).why, std::string());
  for (const pid_t pid : meeting.programs) cr_assert_eq(meeting.job.wait(pid), 0);
}

Test(live_stop, where_one_was_told_too_late_all_are_asked_for_a_later_step, .timeout = 300) {
  Meeting meeting({0, 1000});
  const Shim more = given_rank(meeting.job);
  const AskedShim late(
      more.unix_socket,
      {{AgreeAnswer::late, 1'000}, {AgreeAnswer::late, 1'010}, {AgreeAnswer::stands, 1'010}});
  auto ranks = meeting.ranks();
  ranks.push_back(more);
  const auto report = meeting.coordinator.request(kStopRequest, ranks, 30s);
  cr_assert(report.why.empty(), "%s", report.why.c_str());
  const auto asked = late.asked(Op::agree);
  cr_assert_geq(report.step, 1'012u, "beyond the farthest rank");
  cr_assert(asked.size() == 3 && asked.back() == report.step);
  cr_assert(asked[0] < asked[1] && asked[1] < asked[2]);
  cr_assert(late.asked(Op::conclude) == std::vector{report.step});
  for (int rank = 0; rank < 2; ++rank) {
    cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
    cr_assert_eq(meeting.told("stop", rank), report.step);
  }
}

Test(live_stop, a_dead_program_and_a_dead_shim_hold_nobody, .timeout = 300) {
  Meeting meeting({100, 100, 100, 100}, false);
  meeting.job.stop(meeting.programs[2]);
  while (meeting.job.status(2).has_program) std::this_thread::yield();
  meeting.job.keepers[3].reset();
  const auto start = Clock::now();
  const auto report = meeting.coordinator.request(kStopRequest, meeting.ranks(), 40s);
  cr_assert_lt(Clock::now() - start, 20s, "nobody was waited for");
  cr_assert_eq(report.untold.size(), 2u);
  for (const int rank : {0, 1}) {
    cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
    cr_assert_eq(meeting.told("stop", rank), report.step);
  }
}

Test(live_stop, a_silent_shim_holds_the_others_no_longer_than_the_limit, .timeout = 300) {
  for (const bool is_silent_at_once : {true, false}) {
    Meeting meeting({1000, 1000}, false);
    auto ranks = meeting.ranks();
    ranks.push_back(given_rank(meeting.job));
    std::optional<AskedShim> answers_once;
    std::optional<swell::Descriptor> accepts_nobody;
    if (is_silent_at_once) accepts_nobody = listen_unix(ranks.back().unix_socket).value();
    else answers_once.emplace(ranks.back().unix_socket, std::vector<AskedShim::Answer>());
    const auto start = Clock::now();
    const auto report = meeting.coordinator.request(kStopRequest, ranks, 2s);
    cr_assert_lt(Clock::now() - start, 10s);
    cr_assert_eq(report.untold.size(), 1u);
    cr_assert_eq(report.untold[0].unix_socket, ranks.back().unix_socket);
    cr_assert_eq(report.why, "rank 2: no answer within the time limit", "%s", report.why.c_str());
    for (const int rank : {0, 1}) {
      cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
      cr_assert_eq(meeting.told("stop", rank), report.step);
    }
  }
}

Test(live_stop, a_silent_program_holds_nobody, .timeout = 300) {
  Meeting meeting({1000, 1000, 1000}, false, 5);
  const auto start = Clock::now();
  const auto report = meeting.coordinator.request(kStopRequest, meeting.ranks(), 60s);
  cr_assert_lt(Clock::now() - start, 20s, "its shim answers for it");
  cr_assert(report.untold.empty(), "%s", report.why.c_str());
  for (const int rank : {0, 1}) {
    cr_assert_eq(meeting.job.wait(meeting.programs[static_cast<std::size_t>(rank)]), 0);
    cr_assert_eq(meeting.told("stop", rank), report.step);
  }
  cr_assert_eq(meeting.told("stop", 2), 0u);
}

Test(live_stop, ranks_that_cannot_agree_in_time_leave_at_their_own_next_boundary, .timeout = 300) {
  Meeting meeting({1000, 1000}, false);
  auto ranks = meeting.ranks();
  ranks.push_back(given_rank(meeting.job));
  const AskedShim runs_away(ranks.back().unix_socket, {}, true);
  const auto report = meeting.coordinator.request(kStopRequest, ranks, 1s);
  cr_assert_eq(report.step, 0u);
  cr_assert(report.untold.empty());
  cr_assert_eq(report.why, "the ranks did not agree on a step in time", "%s", report.why.c_str());
  cr_assert(runs_away.asked(Op::request) == std::vector{kStopRequest});
  cr_assert(runs_away.asked(Op::conclude).empty());
  for (const pid_t pid : meeting.programs) cr_assert_eq(meeting.job.wait(pid), 0);
}

Test(live_stop, a_cancelled_stop_stops_nobody, .timeout = 300) {
  Meeting meeting({1000, 1000});
  auto ranks = meeting.ranks();
  ranks.push_back(given_rank(meeting.job));
  const AskedShim silent(ranks.back().unix_socket, {});
  std::thread other([&] {
    // It is asked at the same time as the others, which stand, or were late and go on.
    while (silent.asked(Op::agree).empty()) std::this_thread::yield();
    std::this_thread::sleep_for(100ms);
    cr_assert(meeting.coordinator.call_off());
  });
  const auto start = Clock::now();
  const auto report = meeting.coordinator.request(kStopRequest, ranks, 200s);
  other.join();
  cr_assert_lt(Clock::now() - start, 30s);
  cr_assert_eq(report.code, swell::ErrorCode::cancelled);
  cr_assert_eq(report.untold.size(), 3u);
  for (const int rank : {0, 1})
    wait_for_steps(meeting.job, rank, meeting.job.status(rank).step + 5);
  for (const int rank : {0, 1}) cr_assert_eq(meeting.told("stop", rank), 0u);
}
