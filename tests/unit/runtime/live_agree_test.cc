// SPDX-License-Identifier: GPL-2.0-or-later
// What one shim answers that is asked to let its program stand at a step, without a switch.
#include "runtime/meeting.h"

using namespace live_steps;

Test(live_agree, a_program_that_has_passed_the_step_says_so_and_goes_on, .timeout = 300) {
  Meeting meeting({1000});
  auto channel = Channel::connect_unix(meeting.ranks()[0].unix_socket).value();
  cr_assert(agree(channel, 2) == AgreeAnswer::late);
  wait_for_steps(meeting.job, 0, meeting.job.status(0).step + 3);
  const std::uint64_t step = meeting.job.status(0).step + 50;
  cr_assert(agree(channel, step) == AgreeAnswer::stands);
  wait_until_it_stands(meeting.job, 0);
  cr_assert(agree(channel, step + 7) == AgreeAnswer::stands, "it goes on to a later one");
  wait_until_it_stands(meeting.job, 0);
  cr_assert(ask(channel, Op::conclude, step_and_request(step + 7, kStopRequest)).ok());
  cr_assert_eq(meeting.job.wait(meeting.programs[0]), 0);
  cr_assert_eq(meeting.told("stop", 0), step + 7);
}

Test(live_agree, when_its_coordinator_dies_a_program_that_stands_goes_on, .timeout = 300) {
  Meeting meeting({1000});
  auto channel = Channel::connect_unix(meeting.ranks()[0].unix_socket).value();
  const std::uint64_t step = meeting.job.status(0).step + 20;
  cr_assert(agree(channel, step) == AgreeAnswer::stands);
  wait_until_it_stands(meeting.job, 0);
  cr_assert_eq(meeting.job.status(0).step, step);
  channel = Channel();
  wait_for_steps(meeting.job, 0, step + 5);
  cr_assert_eq(meeting.told("stop", 0), 0u);
}

Test(live_agree, a_decision_holds_though_its_coordinator_dies, .timeout = 300) {
  Meeting meeting({1000});
  auto channel = Channel::connect_unix(meeting.ranks()[0].unix_socket).value();
  const std::uint64_t step = meeting.job.status(0).step + 50;
  cr_assert(agree(channel, step) == AgreeAnswer::stands);
  cr_assert(ask(channel, Op::conclude, step_and_request(step, kStopRequest)).ok());
  cr_assert(ask(channel, Op::abort, {}).ok());
  cr_assert(ask(channel, Op::request, swell::ByteWriter().put(kStopRequest).take()).ok());
  channel = Channel();
  cr_assert_eq(meeting.job.wait(meeting.programs[0]), 0);
  cr_assert_eq(meeting.told("stop", 0), step);
}

Test(live_agree, a_stop_and_a_switch_do_not_mix, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 2, kForEver);
  const PlanShape one{}, two{1, 2, 1, 0};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start(one);
  cr_assert(coordinator.begin(job.shims(one), 1).ok());
  wait_for_steps(job, 0, 3);
  job.start(two);
  auto channel = Channel::connect_unix(job.shims(one)[0].unix_socket).value();
  const std::uint64_t far = 1'000'000'000'000;
  cr_assert(agree(channel, far) == AgreeAnswer::stands);
  const auto refused = coordinator.switch_plan(job.shims(one), job.shims(two), 2).value();
  cr_assert_not(refused.committed);
  cr_assert_eq(refused.why,
               "shim 0: the program is about to stand at step 1000000000000 for another reason",
               "%s", refused.why.c_str());
  cr_assert_eq(ask(channel, Op::conclude, step_and_request(far, kStopRequest)).error().message(),
               "step 1000000000000 is not agreed on here", "the abort of the switch ended it");

  auto with_stop = options();
  std::string why;
  with_stop.on_phase = [&](Phase phase) {
    if (phase == Phase::move) why = ask_agree(channel, far).error().message();
  };
  Coordinator switching(LiveJob::cluster(), with_stop);
  job.start(two);
  const auto report = switching.switch_plan(job.shims(one), job.shims(two), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(why, "generation 2 is being prepared; abort it first", "%s", why.c_str());
}

Test(live_agree, bad_questions_are_refused_and_change_nothing, .timeout = 300) {
  Meeting meeting({1000});
  auto channel = Channel::connect_unix(meeting.ranks()[0].unix_socket).value();
  const std::uint64_t far = 1'000'000'000'000;
  const std::string good = swell::ByteWriter().put(far).take(),
                    decision = step_and_request(far, kStopRequest);
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    cr_assert_not(ask(channel, Op::agree, good.substr(0, bytes)).ok());
  cr_assert_not(ask(channel, Op::agree, good + '\0').ok());
  cr_assert_eq(ask_agree(channel, 0).error().message(), "a program stands at a step, 1 or more");
  cr_assert_not(ask(channel, Op::conclude, decision).ok(), "nothing is agreed on");
  cr_assert(agree(channel, far) == AgreeAnswer::stands);
  for (std::size_t bytes = 0; bytes < decision.size(); ++bytes)
    cr_assert_not(ask(channel, Op::conclude, decision.substr(0, bytes)).ok());
  cr_assert_not(ask(channel, Op::conclude, decision + '\0').ok());
  cr_assert_not(ask(channel, Op::conclude, step_and_request(far + 1, kStopRequest)).ok());
  for (const std::uint64_t request : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4}, far})
    cr_assert_not(ask(channel, Op::conclude, step_and_request(far, request)).ok());
  auto other = Channel::connect_unix(meeting.ranks()[0].unix_socket).value();
  cr_assert_eq(ask_agree(other, far + 1).error().message(),
               "the program is about to stand at step 1000000000000 already");
  wait_for_steps(meeting.job, 0, meeting.job.status(0).step + 5);
  cr_assert(ask(channel, Op::conclude, decision).ok(), "it is still agreed on");
  cr_assert(agree(other, far + 1) == AgreeAnswer::leaves, "it is decided");
}
