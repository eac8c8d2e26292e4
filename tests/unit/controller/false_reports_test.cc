// SPDX-License-Identifier: GPL-2.0-or-later
// The controller with jobs that report what is not so: it gains them nothing.
#include <algorithm>
#include <chrono>
#include <criterion/criterion.h>
#include <string>
#include <thread>

#include "unit/controller/live_world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::kEight;
using swell::test::Live;
using swell::test::Reported;

namespace {

/// A pass of 8 layers of 100 million parameters within 16 ns.
const Reported kFalse{.gpus = kEight, .layer_s = 1e-9, .layer_bytes = 4e8};
const std::string kLentNothing = "lent nothing until it reports a usable profile: fwd_s is ";

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// A job that may report such a profile.
struct Liar : Live {
  void refused(const Reported& reported = kFalse) {
    report(reported);
    step(6);  // it is tried again meanwhile
    cr_assert_not(job().reports.refused().empty());
  }
  /// Rounds pass as fast as they can: what is decided at all, is decided then.
  void pass(double seconds) {
    for (const double end = now + seconds; now < end;) step();
  }
  std::size_t grown_times() const { return server.count<control::Grow>(); }
  std::size_t shrunk_times() const { return server.count<control::Shrink>(); }
};

}  // namespace

Test(false_reports, a_job_whose_profile_is_refused_is_lent_nothing_until_it_reports_a_usable_one) {
  Liar world;
  world.refused();
  world.pass(200);
  cr_assert_eq(world.grown_times(), 0u, "who reports that it gains nothing gets nothing either");
  cr_assert(world.job().decision.why().starts_with(kLentNothing), "%s",
            world.job().decision.why().c_str());
  cr_assert(has(world.job().decision.why(), "a h100 needs at least "));
  cr_assert(has(world.ask("why").text, world.job().decision.why()));
  cr_assert(has(world.ask("why").text, "\nit takes no more now: its profile is not used: " +
                                           world.job().reports.refused()));
  world.report({.gpus = kEight});
  cr_assert(world.grown());
  cr_assert(is_object(world.server.last<control::Grow>()->plan));
  cr_assert_eq(world.job().decision.by(), std::string("planned"));
}

Test(false_reports, one_that_explains_too_little_counts_as_none_not_as_false) {
  Liar world;
  world.refused({.gpus = kEight, .step_factor = 10});
  cr_assert(has(world.job().reports.refused(), "explain 10 %"));
  cr_assert_not(world.job().is_distrusted());
  cr_assert(world.grown(), "what is left, as a job that reports nothing");
  world.refused();
  cr_assert(world.job().is_distrusted());
  world.refused({.gpus = kEight, .step_factor = 10});
  cr_assert(world.job().is_distrusted(), "it fixes no false one");
}

Test(false_reports, one_that_differs_from_the_last_by_its_figures_alone_is_said_once) {
  Liar world;
  const auto said = [&] {
    return std::count_if(world.said.begin(), world.said.end(), [](const std::string& line) {
      return has(line, "job 10: its profile is not used");
    });
  };
  for (const double factor : {10.0, 12.0, 11.0, 10.0})
    world.refused({.gpus = kEight, .step_factor = factor});
  cr_assert_eq(said(), 1);
  world.refused();
  cr_assert_eq(said(), 2, "another reason");
  world.refused({.gpus = kEight, .step_factor = 10});
  cr_assert_eq(said(), 3, "the first one again, after another");
}

// A report that was on its way when another job took some of the GPUs that it is of.
Test(false_reports, one_of_gpus_that_go_back_is_not_held_against_the_job) {
  for (const bool names_them : {true, false}) {
    Liar world;
    world.refused({.gpus = kEight, .step_factor = 10});
    cr_assert(world.grown());
    world.take_offers(20);
    const std::string lent = world.job().companions.begin()->node;
    world.slurm.wait(30, 8).required_nodes = {lent};
    world.step();
    cr_assert(world.until([&] { return world.shrunk_times() == 1; }));
    control::Profile report = Reported{.gpus = kEight, .lent_node = lent}.message();
    if (names_them)
      for (const Companion& each : world.job().companions) report.companions.push_back(each.id);
    world.server.says(1, report);
    world.step();
    world.step(6);
    cr_assert_eq(world.job().is_distrusted(), !names_them);
    cr_assert_eq(has(world.job().reports.refused(), "that it does not hold"), !names_them);
  }
}

Test(false_reports, the_owners_message_fits_into_admincomment) {
  Liar world;
  world.refused();
  world.step(2);
  const std::string comment = world.comment(10);
  cr_assert(has(comment, "decided_why=lent_nothing_until_it_reports_a_usable_profile:_fwd~s_is_"));
  cr_assert(
      has(comment, "_to_read_its_parameters:_mark_the_regions_around_what_they_are_named_for"),
      "%s", comment.c_str());
}

Test(false_reports, is_lent_what_its_user_asked_for_all_the_same) {
  Liar world;
  world.slurm.run(11, "node2", 4, "swell[elastic=max=4x,mode=live,grace=20 basic=4 wanted=8]");
  world.server.says(2, test::hello_of(11, 4));
  Reported reported = kFalse;
  reported.gpus = {0, 1, 2, 3};
  reported.node = "node2";
  world.server.says(2, reported.message());
  world.step();
  const auto* grow = world.server.last<control::Grow>();
  cr_assert_not_null(grow);
  cr_assert_eq(grow->offers.size(), 1u);
  cr_assert_eq(grow->offers[0].name, std::string("swell-11-lent"));
  cr_assert_eq(grow->offers[0].gpus, 4, "and no more");
  world.World::take_offers(2, 20);
  world.refused();
  world.pass(200);
  cr_assert_eq(world.grown_times(), 1u);
  cr_assert_eq(world.shrunk_times(), 0u, "it keeps that");
  const std::string& why = world.controller->jobs().at(11).decision.why();
  cr_assert(why.starts_with("lent no more than the 8 GPUs that it asked for until it reports a "),
            "%s", why.c_str());
}

Test(false_reports, gives_earlier_lent_gpus_back_after_a_while) {
  for (const bool fixes : {false, true}) {
    Liar world;
    world.step(121);
    cr_assert(world.grown());
    world.take_offers(20);
    world.refused();
    world.pass(15);
    cr_assert_eq(world.shrunk_times(), 0u, "its next report may be better");
    if (fixes) world.report({.gpus = kEight});
    world.pass(15);
    cr_assert_eq(world.shrunk_times(), fixes ? 0u : 1u);
    if (fixes) continue;
    const auto* shrink = world.server.last<control::Shrink>();
    cr_assert(shrink->reason.starts_with("its profile is not used: fwd_s is "), "%s",
              shrink->reason.c_str());
    world.slurm.end(20);
    world.pass(200);
    cr_assert_eq(world.grown_times(), 1u);
  }
}

Test(false_reports, keeps_what_its_user_asked_for_when_lent_gpus_go_back) {
  Liar world;
  world.slurm.run(11, "node2", 2, "swell[elastic=max=16,mode=live,grace=20 basic=2 wanted=4]");
  world.ask("pause");
  world.World::hello(2, 11, 2);
  cr_assert_eq(world.grown_times(), 1u);
  world.World::take_offers(2, 20);
  cr_assert_eq(world.controller->jobs().at(11).companions.lent_gpus(), 2);
  world.step(120);
  cr_assert_eq(world.grown_times(), 2u, "ProfileWait is over");
  world.World::take_offers(2, 30);
  Reported reported = kFalse;
  reported.gpus = {0, 1};
  reported.node = "node2";
  world.server.says(2, reported.message());
  world.pass(40);
  cr_assert_gt(world.shrunk_times(), 0u);
  const auto& companions = world.controller->jobs().at(11).companions;
  for (const Companion& each : companions)
    cr_assert_eq(each.is_leaving(), each.id != 20, "companion %u", each.id);
}

Test(false_reports, a_profile_that_was_taken_before_still_counts) {
  Liar world;
  world.ask("pause");
  world.report({.gpus = kEight});
  world.refused();
  cr_assert_eq(world.grown_times(), 0u);
  world.ask("resume");
  cr_assert(world.grown());
  cr_assert(is_object(world.server.last<control::Grow>()->plan));
  world.take_offers(20);
  world.pass(60);
  cr_assert_eq(world.shrunk_times(), 0u);
}

// Jobs of three other owners, of whom one or all report what their steps show to be far off.
Test(false_reports, jobs_of_others_that_explain_little_keep_a_job_from_nothing) {
  for (const int far_off : {1, 3}) {
    Live world;
    for (int i = 0; i < 3; ++i) {
      const JobId id = 11 + static_cast<JobId>(i);
      const uid_t owner = 1001 + static_cast<uid_t>(i);
      const std::string node = "node" + std::to_string(i + 2);
      world.slurm.run(id, node, 4, "swell[elastic=max=4,mode=live,grace=20 basic=4]").uid = owner;
      world.server.says(id, test::hello_of(id, 4), owner);
      world.step();
      Reported reported{.gpus = {0, 1, 2, 3}, .node = node};
      if (i < far_off) reported.step_factor = 1.8;
      world.server.says(id, reported.message(), owner);
      world.step();
    }
    world.report({.gpus = kEight});
    cr_assert(world.grown(), "%d", far_off);
  }
}

Test(false_reports, where_nothing_is_planned_no_report_counts) {
  Liar world;
  world.config.policy = "fewest-first";
  world.restart();
  world.hello(1);
  world.refused();
  cr_assert(world.grown());
  world.take_offers(20);
  world.pass(60);
  cr_assert_eq(world.shrunk_times(), 0u);
}

Test(false_reports, reports_that_cannot_be_judged_do_not_count_against_the_job) {
  Liar world;
  world.slurm.find(10)->gpus[0].gpus.indices.clear();  // Slurm does not say which they are
  world.refused({.gpus = kEight});
  world.step(121);
  cr_assert(world.grown());
  cr_assert(world.job().decision.why().starts_with("its profile is not used: Slurm does not say"),
            "%s", world.job().decision.why().c_str());
}

namespace {

const Reported kPromise{.gpus = kEight, .samples = 64};

/// Job 10 with 8 lent GPUs on node2, by a profile that promises twice the speed, and all of its
/// reports can be true; its steps then take so many times what they would at that speed. Job 11
/// on node3 gains what it promises; other GPUs are not idle.
struct Rivals : Liar {
  explicit Rivals(double step_factor) {
    report(kPromise);
    cr_assert(grown());
    take_offers(20);
    Reported on_both = kPromise;
    on_both.step_factor = step_factor;
    on_both.generation = 1;
    on_both.lent_node = "node2";
    cr_assert_eq(slurm.find(20)->nodes.front(), on_both.lent_node);
    report(on_both);
    cr_assert(job().reports.refused().empty(), "%s", job().reports.refused().c_str());
    cr_assert_gt(job().training.speedup()->predicted, 1.6);
    slurm.run(12, "node4", 8, "");
    slurm.run(11, "node3", 8, "swell[elastic=max=16,mode=live,grace=20 basic=8]");
    World::hello(2, 11, 8);
    Reported honest = kPromise;
    honest.node = "node3";
    server.says(2, honest.message());
  }
  /// Whether job 10 was told to give its lent GPUs back within so long.
  bool gives_back_within(double seconds) {
    for (const double end = now + seconds; now < end && shrunk_times() == 0;
         std::this_thread::sleep_for(std::chrono::milliseconds(2)))
      step();
    return shrunk_times() > 0;
  }
};

}  // namespace

Test(false_reports, a_job_that_keeps_its_promise_keeps_its_lent_gpus) {
  Rivals world(1);
  cr_assert_not(world.gives_back_within(300), "%s",
                world.server.last<control::Shrink>()->reason.c_str());
}

Test(false_reports, a_job_that_promises_too_much_loses_its_lent_gpus_to_one_that_does_not) {
  Rivals world(1.6);
  cr_assert(world.job().trust.why().empty(), "it gains enough to be trusted on");
  cr_assert(world.gives_back_within(300));
  cr_assert_eq(world.server.last<control::Shrink>()->reason,
               std::string("another elastic job gains more by them"));
}

Test(false_reports, a_job_that_gains_nothing_gives_back_and_further_promises_do_not_help) {
  Rivals world(1.9);
  world.slurm.end(11);  // nobody else wants them
  world.pass(15);
  cr_assert_eq(world.shrunk_times(), 0u, "its next report may be better");
  world.pass(15);
  cr_assert_eq(world.shrunk_times(), 1u);
  cr_assert_eq(world.server.last<control::Shrink>()->reason, world.job().trust.why());
  cr_assert(world.job().trust.why().ends_with(" was predicted, a gain below 5 %"), "%s",
            world.job().trust.why().c_str());
  world.slurm.end(20);
  Reported more = kPromise;
  more.layer_s *= 0.9;
  more.generation = 2;
  world.report(more);
  cr_assert_eq(world.job().decision.by(), std::string("planned"));
  for (const double end = world.now + 500; world.now < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    world.step();
  cr_assert_eq(world.grown_times(), 1u, "%s", world.job().decision.why().c_str());
  world.step(100);
  cr_assert(world.until([&] { return world.grown_times() > 1; }), "it may try again");
}
