// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: workers that do not leave for a growth, and how a leave is told from the
// end.
#include <csignal>

#include "launcher/generation_run.h"

using namespace generation_run;

namespace {

constexpr const char* kDidNotLeave = "workers did not leave within 30 s of USR1";

/// A run of 2 workers that was asked to leave for a growth by 4, `seconds` ago.
struct Asked : Run {
  explicit Asked(double seconds, GenerationMachine::Settings settings = {}) : Run(settings) {
    grow(9, 4);
    hello(1, 4);
    cr_assert(signalled(SIGUSR1, 2));
    if (seconds > 0) tick(now + seconds);
  }
};

/// Given back 4 of 6 GPUs: 2 workers of the job's own were started `seconds` ago.
struct Shrunk : Run {
  explicit Shrunk(double seconds, GenerationMachine::Settings settings = {}) : Run(settings) {
    grown();
    shrink(9, 30);
    leave(1, 4);
    leave(0, 2);
    cr_assert_eq(starts, 3);
    now += seconds;
    signals.clear();
  }
  void fail(Exit exit) {
    handle(event::Exited{{0, 0}, exit});
    handle(event::Hello{{0, 0}, "host", 1});
    tick(now);
    handle(event::Exited{{0, 1}, {0, SIGKILL}});
    handle(event::Hello{{0, 1}, "host", 2});
  }
};

GenerationMachine::Settings with_leave_code(int code) {
  GenerationMachine::Settings settings;
  settings.leave_code = code;
  return settings;
}

}  // namespace

Test(growth_leave, workers_that_do_not_leave_for_a_growth_train_on) {
  Asked run(30);
  cr_assert(run.signalled(SIGKILL, 0));
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.starts, 1);
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.no_growth(), std::string(kDidNotLeave));
  cr_assert(run.has_said("did not leave within 30 s of USR1: no more GPUs; they train on"));
  run.now += 61;
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 0, "the end of the training");
  cr_assert_eq(run.starts, 1);
}

Test(growth_leave, a_growth_is_tried_again_after_a_pause) {
  Asked run(30);
  run.tick(run.now + 600);
  cr_assert_eq(run.no_growth(), std::string());
  run.grow(10, 4);
  run.hello(2, 4);
  cr_assert(run.signalled(SIGUSR1, 4));
  run.leave(0, 2);
  cr_assert_eq(run.workers, 6u);
}

Test(growth_leave, a_worker_that_leaves_late_does_not_end_the_training) {
  Asked run(30);
  run.now += 40;
  run.handle(event::Exited{{0, 0}, {}});
  cr_assert(run.signalled(SIGKILL, 0), "the others have time to follow");
  run.handle(event::Hello{{0, 0}, "host", 1});
  run.now += 20;
  run.handle(event::Exited{{0, 1}, {}});
  run.handle(event::Hello{{0, 1}, "host", 1});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts, 2);
  cr_assert_eq(run.workers, 2u);
}

Test(growth_leave, where_only_some_left_the_others_have_more_time_and_then_all_resume) {
  Asked run(0);
  run.handle(event::Exited{{0, 0}, {}});
  run.handle(event::Hello{{0, 0}, "host", 1});
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 0));
  cr_assert_eq(run.releases, Jobs{9}, "the GPUs do not wait for them");
  cr_assert(run.has_said("1 of 2 workers did not leave"));
  run.tick(run.now + 59);
  cr_assert(run.signalled(SIGKILL, 0));
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGKILL, 1));
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
  run.handle(event::Hello{{0, 1}, "host", 1});
  cr_assert_eq(run.starts, 2);
  cr_assert_eq(run.no_growth(), std::string(kDidNotLeave));
}

Test(growth_leave, lent_workers_that_ignore_a_second_growth_are_not_killed_either) {
  Run run;
  run.grown();
  run.grow(10, 2);
  run.hello(2, 2);
  cr_assert(run.signalled(SIGUSR1, 6));
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 0));
  cr_assert_eq(run.releases, Jobs{10}, "only what was to join goes back");
  cr_assert_eq(run.machine.status().workers, 6);
}

Test(growth_leave, a_reclaim_during_a_growth_has_its_deadline) {
  for (const bool by_slurm : {false, true}) {
    Run run;
    run.grown();
    run.grow(10, 2);
    run.hello(2, 2);
    const double since = run.now;
    if (by_slurm) run.handle(event::Notice{{1, 0}, SIGTERM});
    else run.shrink(9, 20);
    run.tick(since + 18);
    cr_assert(run.signalled(SIGKILL, by_slurm ? 0 : 6));
    run.tick(since + 30);
    cr_assert(run.signalled(SIGKILL, 6));
  }
}

Test(growth_leave, a_worker_that_dies_of_the_signal_is_not_asked_again) {
  Asked run(0);
  run.leave(0, 2, {0, SIGUSR1});
  cr_assert_eq(run.starts, 2);
  run.tick(run.now + 1e6);
  cr_assert_neq(run.no_growth().find("died of USR1"), std::string::npos);
}

Test(growth_leave, with_a_leave_code_0_is_always_the_end) {
  Asked run(0, with_leave_code(3));
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 0);
  cr_assert_eq(run.starts, 1);
}

Test(growth_leave, with_a_leave_code_that_code_is_a_leave) {
  Asked run(0, with_leave_code(3));
  run.leave(0, 2, {3, 0});
  cr_assert_eq(run.starts, 2);
  cr_assert_eq(run.no_growth(), std::string(), "it is not an error");
  cr_assert_not(run.code.has_value());
  const auto& environment = run.last_start.workers.front().second;
  cr_assert(std::find(environment.begin(), environment.end(),
                      std::pair<std::string, std::string>("SWELL_LEAVE_CODE", "3")) !=
            environment.end());
}

Test(growth_leave, where_one_worker_left_and_another_ended_the_run_goes_on) {
  Asked run(0, with_leave_code(3));
  run.leave(0, 1, {3, 0});
  run.handle(event::Exited{{0, 1}, {}});
  run.handle(event::Hello{{0, 1}, "host", 1});
  cr_assert_eq(run.starts, 2);
}

Test(growth_leave, a_leave_that_nobody_asked_for_is_the_exit_code_of_the_run) {
  Run run(with_leave_code(3));
  run.handle(event::Exited{{0, 0}, {3, 0}});
  cr_assert(run.signals.empty(), "the others leave, too");
  run.handle(event::Exited{{0, 1}, {3, 0}});
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(growth_leave, a_program_that_fails_just_after_a_reclaim_is_started_again_once) {
  Shrunk run(20);
  run.fail({1, 0});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts, 4);
  cr_assert(run.has_said("the program failed with 1 within 20 s of a resize"));
  run.now += 20;
  run.fail({1, 0});
  cr_assert_eq(run.code.value_or(-1), 1, "once");
}

Test(growth_leave, so_is_one_whose_workers_all_fail_at_once) {
  Shrunk run(1);
  run.leave(0, 2, {1, 0});
  run.tick(run.now);
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts, 4);
}

Test(growth_leave, a_program_that_fails_long_after_a_resize_ends_the_run) {
  Shrunk run(61);
  run.fail({1, 0});
  cr_assert_eq(run.code.value_or(-1), 1);
}

Test(growth_leave, a_program_that_was_killed_after_a_resize_is_not_started_again) {
  Shrunk run(1);
  run.fail({0, SIGKILL});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGKILL);
}

Test(growth_leave, a_launcher_within_the_program_is_said_once_and_not_grown) {
  Run run;
  run.handle(event::TrainsAlone{{0, 1}, "python with RANK=0"});
  run.handle(event::TrainsAlone{{0, 0}, "python with RANK=0"});
  cr_assert_eq(std::count_if(run.said.begin(), run.said.end(),
                             [](const std::string& line) {
                               return line.find("each of the 2 workers") != line.npos;
                             }),
               1);
  run.tick(run.now + 1e6);
  cr_assert_neq(run.no_growth().find("python with RANK=0"), std::string::npos);
  cr_assert_not(run.code.has_value());
}

Test(growth_leave, a_run_that_can_start_nothing_more_takes_no_offer_and_keeps_what_it_has) {
  Run run;
  run.grown();
  const std::size_t workers = run.workers;
  for (int i = 0; i < 2; ++i) run.handle(event::GrowsNoMore{"its folder is gone"});
  cr_assert_eq(std::count_if(run.said.begin(), run.said.end(),
                             [](const std::string& line) {
                               return line == "its folder is gone: the job is lent no more GPUs";
                             }),
               1);
  run.tick(run.now + 1e6);
  cr_assert_eq(run.no_growth(), std::string("its folder is gone"));
  cr_assert_eq(run.workers, workers);
  cr_assert(run.releases.empty());
}

Test(growth_leave, a_program_without_its_rank_is_said_and_not_grown) {
  Run run;
  run.handle(event::TrainsAlone{{0, 1}, "python", true});
  cr_assert(run.has_said("python was started without the variables that swellrun gives"));
  cr_assert(run.has_said("--cleanenv"));
  run.tick(run.now + 1e6);
  cr_assert_neq(run.no_growth().find("such as RANK"), std::string::npos);
}

Test(growth_leave, a_launcher_that_is_seen_on_lent_gpus_gives_them_back) {
  Run run;
  run.grown();
  run.handle(event::TrainsAlone{{0, 1}, "python with RANK=0"});
  cr_assert(run.signalled(SIGUSR1, 6));
  run.leave(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
}

Test(growth_leave, a_run_that_takes_no_lent_gpus_says_why_from_the_start) {
  GenerationMachine::Settings settings;
  settings.never_grows = "its program may be read from standard input";
  Run run(settings);
  cr_assert_eq(run.no_growth(), settings.never_grows);
  // A failure that pauses growth later does not take the place of it.
  run.handle(event::TrainsAlone{{0, 1}, "python"});
  run.tick(run.now + 1e6);
  cr_assert_eq(run.no_growth(), settings.never_grows);
}

Test(growth, lent_gpus_that_are_up_wait_for_others_only_so_long) {
  Run run;
  run.grow(9, 4);
  run.grow(10, 4);
  run.hello(1, 4);
  cr_assert_eq(run.signals.size(), 0u, "one growth may do for both");
  const double until = run.now + 10;
  cr_assert_eq(*run.machine.deadline(), until);
  run.tick(until);
  run.leave(0, 2);
  cr_assert_eq(run.starts, 2);
  cr_assert_eq(run.workers, 6u);
  run.hello(2, 4);  // it joins later
  for (int node = 0; node < 2; ++node) run.leave(node, node == 0 ? 2 : 4);
  cr_assert_eq(run.workers, 10u);
}

Test(growth, lent_gpus_that_come_up_soon_after_others_join_with_them) {
  Run run;
  run.grow(9, 4);
  run.grow(10, 4);
  run.hello(1, 4);
  run.tick(run.now + 5);
  run.hello(2, 4);
  run.leave(0, 2);
  cr_assert_eq(run.starts, 2);
  cr_assert_eq(run.workers, 10u);
}
