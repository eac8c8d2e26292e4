// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/controller.h"

#include <criterion/criterion.h>
#include <fstream>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

Test(controller, lends_idle_gpus_to_a_job_with_an_agent) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.step();
  cr_assert_null(world.server.last<control::Grow>(), "nobody listens yet");
  world.hello(1, 10, 4);
  cr_assert_not_null(world.server.last<control::Welcome>());
  const auto* grow = world.server.last<control::Grow>();
  cr_assert_not_null(grow);
  int gpus = 0;
  for (const auto& offer : grow->offers) gpus += offer.gpus;
  cr_assert_eq(gpus, 12);
  world.take_offers(1, 20);
  cr_assert(world.shows(10, "lent=12"), "%s", world.comment(10).c_str());
  cr_assert(world.shows(10, "companions=20:node1:4:0-3;21:node2:8:0-7"), "%s",
            world.comment(10).c_str());
}

Test(controller, tells_a_script_once_that_it_has_not_started_swellrun) {
  World world;
  const auto run = [&](JobId id, const char* node) {
    world.slurm.run_elastic(id, node, 8).start_time = world.slurm.now.taken;
  };
  run(10, "node1");
  run(11, "node2");
  world.hello(1, 11, 8);
  world.server.says(1, control::Bye{0});
  const auto pass = [&](int seconds) {
    world.slurm.now.taken += seconds;
    world.step(seconds);
  };
  pass(50);
  cr_assert(world.slurm.told.empty(), "within its first minute");
  pass(20);
  pass(20);
  cr_assert_eq(world.slurm.told.size(), 1u, "once, and not where swellrun has ended");
  cr_assert_eq(world.slurm.told[0].first, 10u);
  cr_assert_neq(world.slurm.told[0].second.find("has not started swellrun"), std::string::npos);
  run(12, "node3");
  world.hello(2, 12, 8);
  pass(1);
  world.restart();
  world.step();
  pass(70);
  cr_assert_eq(world.slurm.told.size(), 1u, "agents come back after a start of the controller");
  run(13, "node4");
  pass(70);
  cr_assert_eq(world.slurm.told.size(), 2u);
  cr_assert_eq(world.slurm.told[1].first, 13u);
}

Test(controller, reclaims_for_a_pending_job_and_counts_it) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert(world.shows(10, "lent=24"));
  world.slurm.wait(30, 8);
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert_not_null(shrink);
  cr_assert_eq(shrink->companions.size(), 1u);
  cr_assert_eq(shrink->reason, std::string("needed by job 30"));
  cr_assert_eq(shrink->deadline_s, 20, "the job's grace");
  const JobId companion = shrink->companions[0];
  world.slurm.find(companion)->preempt_time = world.slurm.now.taken;
  world.slurm.find(companion)->end_time = world.slurm.now.taken + 5;
  world.step();
  shrink = world.server.last<control::Shrink>();
  cr_assert_eq(shrink->deadline_s, 5, "Slurm's own grace");
  cr_assert_eq(shrink->reason, std::string("needed by job 30"), "Slurm took it for the same job");
  world.slurm.end(companion);
  world.server.says(1, control::Released{companion, ""});
  world.step();
  cr_assert(world.shows(10, "lent=16 "), "%s", world.comment(10).c_str());
  cr_assert(world.shows(10, "reclaims=1"));
  cr_assert(world.shows(10, "taken_back=needed_by_job_30"), "%s", world.comment(10).c_str());
  world.restart();
  world.step();
  cr_assert(world.shows(10, "taken_back=needed_by_job_30"), "known after a restart, too");
}

Test(controller, a_job_reads_each_reason_for_which_it_gives_back_at_once) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  world.slurm.wait(30, 8);
  world.slurm.wait(31, 8);
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert_not_null(shrink);
  cr_assert_eq(shrink->companions.size(), 2u);
  cr_assert_eq(shrink->reason, std::string("needed by job 30; needed by job 31"));
}

// Slurm preempts a companion for a pending job, and that has ended; the node records, loaded before
// the job records, still count its CPUs and its memory as used.
Test(controller, takes_nothing_more_for_a_job_that_slurm_itself_has_made_room_for) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  slurm::NodeRecord& node = world.slurm.now.nodes[2];
  const slurm::JobRecord companion = *world.slurm.find(21);
  cr_assert_eq(companion.nodes.front(), node.name);
  node.cpus_used = node.cpus;
  node.memory_used_mib = companion.memory_mib;
  world.slurm.now.nodes[1].cpus_used = world.slurm.now.nodes[3].cpus_used = node.cpus;
  world.slurm.find(21)->preempt_time = world.slurm.now.taken;
  world.slurm.find(21)->end_time = world.slurm.now.taken + 1;
  world.slurm.wait(30, 8).min_cpus_per_node = 16;
  world.slurm.find(30)->min_memory_mib_per_node = 510000;
  world.step();
  world.server.sent.clear();
  world.slurm.end(21);
  const int before = world.slurm.forgotten;
  world.step();
  cr_assert_null(world.server.last<control::Shrink>(), "the node has what job 30 needs");
  cr_assert_null(world.server.last<control::Grow>(), "and nobody else gets it");
  cr_assert_gt(world.slurm.forgotten, before, "newer node records are asked for");
  // They say that something else holds the node: now another companion is needed.
  world.step();
  cr_assert_not_null(world.server.last<control::Shrink>());
}

Test(controller, tells_slurms_side_which_companions_go_first) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert_eq(world.book.reclaim_order().get(), (std::vector<JobId>{20, 21, 22}));
  world.slurm.find(22)->preempt_time = world.slurm.now.taken;
  world.slurm.find(22)->end_time = world.slurm.now.taken + 7;
  world.step();
  cr_assert_eq(world.book.reclaim_order().get().front(), 22u);
}

Test(controller, tells_slurms_side_of_no_companion_when_the_last_elastic_job_has_ended) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert_eq(world.book.reclaim_order().get().size(), 3u);
  for (JobId id : {20u, 21u, 22u, 10u}) world.slurm.end(id);
  world.step();
  cr_assert(world.book.reclaim_order().get().empty());
}

Test(controller, cancels_what_outlives_its_deadline) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.wait(30, 8);
  world.step();
  world.step(19);
  cr_assert(world.slurm.cancelled.empty());
  world.step(3);
  cr_assert_eq(world.slurm.cancelled.size(), 1u);
}

Test(controller, counters_survive_a_restart) {
  World world;
  world.slurm.run_elastic(10, "node1", 8, " grants=5 reclaims=3");
  world.step();
  cr_assert(world.shows(10, "grants=5 reclaims=3"), "%s", world.comment(10).c_str());
}

Test(controller, slurms_own_preemption_is_told_to_the_agent) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.find(20)->preempt_time = world.slurm.now.taken;
  world.slurm.find(20)->end_time = world.slurm.now.taken + 7;
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert_not_null(shrink);
  cr_assert_eq(shrink->companions[0], 20u);
  cr_assert_eq(shrink->deadline_s, 7);
}

Test(controller, the_state_file_forgets_the_grants_of_ended_jobs_and_companions) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  cr_assert_eq(load_state(world.state_path)->issued.size(), 3u);
  world.slurm.end(20);
  world.step();
  cr_assert_eq(load_state(world.state_path)->issued.size(), 2u);
  for (JobId id : {10u, 21u, 22u}) world.slurm.end(id);
  world.restart();  // they ended while slurmctld was away
  world.step();
  cr_assert(load_state(world.state_path)->issued.empty());
}

Test(controller, admin_comment_is_written_only_when_it_changes) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  const int written = world.slurm.comments_written;
  for (int i = 0; i < 10; ++i) world.step(0.1);
  cr_assert_eq(world.slurm.comments_written, written);
}

Test(controller,
     an_admin_comment_that_slurm_refuses_is_tried_ever_more_rarely_and_written_in_the_end) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.step();
  world.slurm.refuses_comments = true;
  world.take_offers(1, 20);
  const int before = world.slurm.comments_written;
  for (int i = 0; i < 600; ++i) world.step(1);
  const int tried = world.slurm.comments_written - before;
  cr_assert(tried >= 8 && tried <= 12, "%d", tried);
  const Json troubles = world.troubles();
  cr_assert(troubles.string_at("AdminComment").value().find("Unspecified error") !=
            std::string::npos);
  world.slurm.refuses_comments = false;
  world.step(300);
  world.step(1);
  cr_assert_not(world.shows(10, "lent=0"), "%s", world.comment(10).c_str());
  cr_assert_not(world.troubles().has("AdminComment"));
}

Test(controller, a_refused_comment_stays_a_trouble_while_another_cannot_be_written_yet) {
  World world;
  for (JobId id = 10; id < 12; ++id) world.slurm.run_elastic(id, "node1", 1);
  world.step(3);
  world.step();
  world.slurm.refuses_comments = true;
  world.hello(10, 10, 1);
  for (int i = 0; i < 5; ++i) world.step(1);
  cr_assert(world.troubles().has("AdminComment"));
  world.slurm.comments_wait[11] = 0;
  world.hello(11, 11, 1);
  for (int i = 0; i < 100; ++i) {
    world.step(1);
    cr_assert(world.troubles().has("AdminComment"), "after %d s", i);
  }
}

// As after a takeover, or while slurmdbd is away: each try holds the controller for 5 s.
Test(controller, comments_that_slurm_cannot_write_yet_hold_it_rarely_and_are_written_soon_after) {
  World world;
  for (JobId id = 10; id < 14; ++id) world.slurm.run_elastic(id, "node1", 1);
  world.step(3);
  world.step();
  for (JobId id = 10; id < 14; ++id) world.slurm.comments_wait[id] = 0;
  for (JobId id = 10; id < 14; ++id) world.hello(id, id, 1);  // every job's words change
  for (int i = 0; i < 100; ++i) world.step(1);
  int tried = 0;
  for (const auto& [id, times] : world.slurm.comments_wait) {
    cr_assert_geq(times, 1, "job %u was never tried", id);
    tried += times;
  }
  cr_assert(tried >= 5 && tried <= 8, "%d", tried);
  cr_assert_not(world.troubles().has("AdminComment"));

  world.slurm.comments_wait.erase(10);
  world.slurm.comments_wait.erase(11);
  world.slurm.comments_wait.erase(12);
  for (int i = 0; i < 61; ++i) world.step(1);
  for (JobId id = 10; id < 13; ++id)
    cr_assert(world.shows(id, "workers=1"), "%s", world.comment(id).c_str());
  world.slurm.comments_wait.clear();
  for (int i = 0; i < 41; ++i) world.step(1);
  cr_assert(world.shows(13, "workers=1"), "%s", world.comment(13).c_str());
}

Test(controller, a_comment_waits_for_no_more_than_one_pause_of_others_that_cannot_be_written) {
  World world;
  world.slurm.run_elastic(90, "node1", 1);
  world.step(3);
  world.hello(90, 90, 1);
  world.step(3);
  cr_assert(world.shows(90, "workers=1"), "%s", world.comment(90).c_str());
  for (JobId id = 10; id < 40; ++id) {
    world.slurm.run_elastic(id, "node2", 1);
    world.slurm.comments_wait[id] = 0;
  }
  world.step(3);
  for (JobId id = 10; id < 40; ++id) world.hello(id, id, 1);
  control::Status status;
  status.workers = 3;
  world.server.says(90, status);  // a job whose comment was written before
  for (int i = 0; i < 21; ++i) world.step(1);
  cr_assert(world.shows(90, "workers=3"), "%s", world.comment(90).c_str());

  for (int i = 0; i < 1240; ++i) world.step(1);  // each of the others was tried twice
  world.slurm.run_elastic(91, "node3", 1);
  world.step(3);
  world.hello(91, 91, 1);
  for (int i = 0; i < 3; ++i) world.step(1);
  cr_assert(world.shows(91, "workers=1"), "%s", world.comment(91).c_str());

  world.slurm.comments_wait[92] = 0;
  world.slurm.run_elastic(92, "node4", 1);
  world.step(3);
  world.hello(92, 92, 1);
  for (int i = 0; i < 3; ++i) world.step(1);
  world.slurm.comments_wait.erase(92);  // it has waited once, the others more often
  for (int i = 0; i < 21; ++i) world.step(1);
  cr_assert(world.shows(92, "workers=1"), "%s", world.comment(92).c_str());
}

Test(controller, a_slurmctld_that_does_not_answer_is_said_once_and_is_a_trouble_until_it_does) {
  World world;
  world.step();
  for (int i = 0; i < 2; ++i) {
    world.said.clear();
    world.slurm.answers = false;
    for (int round = 0; round < 10; ++round) world.step();
    cr_assert_eq(world.said.size(), 1u, "%zu lines", world.said.size());
    cr_assert_eq(world.said.front(),
                 "slurmctld did not answer: slurm_load_jobs: Unable to contact slurm controller");
    cr_assert(world.troubles().has("slurmctld"));
    world.slurm.answers = true;
    world.step();
    cr_assert_not(world.troubles().has("slurmctld"));
  }
}

Test(controller, a_companion_that_slurm_does_not_cancel_is_said_once) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.step();
  world.take_offers(1, 20);
  const auto refusals = [&] {
    return std::count_if(world.said.begin(), world.said.end(), [](const std::string& line) {
      return line.find("Access/permission denied") != std::string::npos ||
             line.find("slurm_load_job:") != std::string::npos;
    });
  };
  const auto companions =
      static_cast<std::ptrdiff_t>(world.server.last<control::Grow>()->offers.size());
  cr_assert_geq(companions, 1);
  world.slurm.refuses_cancel = true;
  world.slurm.end(10);
  for (int round = 0; round < 30; ++round) world.step();
  cr_assert_eq(refusals(), companions, "%td lines of %td companions", refusals(), companions);
  world.said.clear();
  world.slurm.answers_for_jobs = false;
  for (int round = 0; round < 30; ++round) world.step();
  cr_assert_eq(refusals(), companions, "%td lines of %td companions", refusals(), companions);
}

Test(controller, a_state_file_that_cannot_be_written_is_known_from_the_first_round_on) {
  World world;
  world.step();
  cr_assert(std::filesystem::is_regular_file(world.state_path));
  cr_assert_not(world.troubles().has("state"));
  std::filesystem::remove(world.state_path);
  std::filesystem::create_directory(world.state_path);
  world.restart();
  cr_assert_eq(world.troubles().string_at("state").value(),
               "going on without the saved state: " + world.state_path + ": Is a directory");
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.step();
  world.take_offers(1, 20);
  const std::string now = world.troubles().string_at("state").value();
  cr_assert_eq(now, "the state could not be saved: " + world.state_path + ": Is a directory", "%s",
               now.c_str());
  const std::size_t said = world.said.size();
  world.step(5);
  world.step(5);
  cr_assert_eq(world.said.size(), said, "it is said once");
  std::filesystem::remove(world.state_path);
  world.step(5);
  cr_assert_not(world.troubles().has("state"));
}

Test(controller,
     a_trouble_with_the_state_file_is_over_when_it_can_be_written_with_nothing_to_save) {
  World world;
  world.step();
  std::filesystem::remove(world.state_path);
  std::filesystem::create_directory(world.state_path);
  world.restart();
  world.step(5);
  cr_assert(world.troubles().has("state"));
  std::filesystem::remove(world.state_path);
  world.step(5);
  cr_assert_not(world.troubles().has("state"));
  // One that cannot be read is left as it is: it may be fixed.
  std::ofstream(world.state_path) << "{";
  world.restart();
  for (int i = 0; i < 3; ++i) world.step(5);
  cr_assert(world.troubles().has("state"));
  cr_assert_eq(std::filesystem::file_size(world.state_path), 1u);
}

Test(controller, draining_reclaims_everything_within_the_grace_and_lends_no_more) {
  World world;
  world.slurm.run_elastic(1, "node1", 8);
  world.step();
  world.hello(7, 1, 8);
  world.take_offers(7, 100);
  world.step();
  cr_assert(world.shows(1, "lent=24"));

  world.controller->set_draining(true);
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert(shrink != nullptr);
  cr_assert_eq(shrink->deadline_s, 20, "the job's own grace, not at once");
  cr_assert_eq(shrink->reason, std::string("the administrator drains Swell"));
  cr_assert(world.slurm.cancelled.empty());
  for (const Companion& companion : world.controller->jobs().at(1).companions)
    cr_assert(companion.is_leaving());

  for (JobId companion : {100u, 101u, 102u}) world.slurm.end(companion);
  world.server.sent.clear();
  world.step(60);
  cr_assert(world.shows(1, "lent=0"));
  world.step(60);
  cr_assert_null(world.server.last<control::Grow>(), "lent while being drained");

  world.controller->set_draining(false);
  world.step();
  cr_assert_not_null(world.server.last<control::Grow>());
}

Test(controller, no_job_has_longer_to_give_gpus_back_than_the_site_allows) {
  World world;
  world.slurm.run(10, "node1", 4, "swell[elastic=max=8,grace=86400 basic=4]");
  world.controller->set_max_grace(30);
  world.hello(1, 10, 4);
  cr_assert_eq(world.server.last<control::Grow>()->offers.at(0).warn_s, 30);
  world.take_offers(1, 20);
  world.controller->set_draining(true);
  world.step();
  cr_assert_eq(world.server.last<control::Shrink>()->deadline_s, 30);
  world.step(32);
  cr_assert_eq(world.slurm.cancelled, std::vector<JobId>{20});
}

Test(controller, a_grace_below_the_sites_is_the_jobs_own) {
  World world;
  world.slurm.run(10, "node1", 4, "swell[elastic=max=8,grace=12 basic=4]");
  world.controller->set_max_grace(30);
  world.hello(1, 10, 4);
  world.take_offers(1, 20);
  world.controller->set_draining(true);
  world.step();
  cr_assert_eq(world.server.last<control::Shrink>()->deadline_s, 12);
}
