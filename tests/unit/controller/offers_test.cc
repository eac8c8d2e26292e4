// SPDX-License-Identifier: GPL-2.0-or-later
// What the controller offers to agents, how often, and what it does with their answers.
#include <criterion/criterion.h>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::hello_of;
using swell::test::World;

namespace {

/// Offers made to an agent that says nothing.
int grows_in_400_s(World& world) {
  int grows = 0;
  for (int i = 0; i < 400; ++i) {
    if (world.server.last<control::Grow>() != nullptr) ++grows;
    world.server.sent.clear();
    world.step(1);
  }
  return grows;
}

/// A job of 4 GPUs on node1 that was lent node1's others. A rigid job on node2 has ended since.
struct Grown : World {
  explicit Grown(const std::string& elastic) {
    slurm.run(10, "node1", 4, "swell[elastic=" + elastic + ",grace=20 basic=4]");
    for (const JobId rigid : {52, 53, 54})
      slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
    hello(1, 10, 4);
    take_offers(1, 20);
    cr_assert_eq(controller->jobs().at(10).companions.lent_gpus(), 4);
    slurm.end(52);
    server.sent.clear();
  }
  /// Whether it is offered more within so many seconds, a look a second.
  bool is_offered_within(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      step();
      if (server.last<control::Grow>() != nullptr) return true;
    }
    return false;
  }
};

int offered_gpus(const World& world) {
  int gpus = 0;
  for (const control::Offer& offer : world.server.last<control::Grow>()->offers) gpus += offer.gpus;
  return gpus;
}

}  // namespace

Test(controller, nothing_is_offered_twice) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run_elastic(11, "node2", 4);
  world.hello(1, 10, 4);
  world.hello(2, 11, 4);
  int on_node[5] = {0, 4, 4, 0, 0};
  for (const auto& [connection, message] : world.server.sent)
    if (const auto* grow = std::get_if<control::Grow>(&message))
      for (const auto& offer : grow->offers) on_node[offer.node.back() - '0'] += offer.gpus;
  for (int gpus : on_node) cr_assert_leq(gpus, 8);
}

Test(controller, an_offer_nobody_takes_up_is_withdrawn) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const std::string nonce = world.server.last<control::Grow>()->offers.at(0).nonce;
  world.step(16);
  cr_assert_not(world.book.use(nonce, 1000, world.now).ok());
}

Test(controller, offers_to_an_ended_job_are_idle_again) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  // The agent takes an offer up, and the job and its companion end before anybody has seen that.
  cr_assert(world.book.use(grow.offers[0].nonce, 1000, world.now).ok());
  world.slurm.end(10);
  world.slurm.run_elastic(11, "node1", 8);
  world.hello(2, 11, 8);
  int gpus = 0;
  for (const auto& offer : world.server.last<control::Grow>()->offers) gpus += offer.gpus;
  cr_assert_eq(gpus, 24, "%d", gpus);
  cr_assert_not(world.book.use(grow.offers[1].nonce, 1000, world.now).ok(),
                "nobody is left who could be lent that");
}

Test(controller, offers_to_an_ended_program_cannot_be_used) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  world.server.says(1, control::Bye{0});
  world.step();
  cr_assert_not(world.book.use(grow.offers[0].nonce, 1000, world.now).ok());
}

Test(controller, refused_growths_are_tried_again_ever_more_rarely) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  int grows = 0;
  for (int i = 0; i < 400; ++i) {
    if (!world.server.sent.empty()) {
      if (const auto* grow = world.server.last<control::Grow>()) {
        ++grows;
        control::GrowDone done;
        for (const auto& offer : grow->offers) done.results.push_back({offer.nonce, 0, "busy"});
        world.server.sent.clear();
        world.server.says(1, done);
      }
    }
    world.step(1);
  }
  cr_assert_geq(grows, 3);
  cr_assert_leq(grows, 8);
}

Test(controller, another_jobs_grant_cannot_be_answered) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run_elastic(11, "node2", 4);
  world.hello(1, 10, 4);
  const std::string nonce = world.server.last<control::Grow>()->offers.at(0).nonce;
  world.hello(2, 11, 4);
  world.server.says(2, control::GrowDone{{{nonce, 0, "spite"}}});
  world.step();
  cr_assert(world.book.use(nonce, 1000, world.now).ok());
}

Test(controller, an_agent_that_takes_nothing_up_is_offered_ever_less) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const int grows = grows_in_400_s(world);
  cr_assert_geq(grows, 3);
  cr_assert_leq(grows, 8, "%d offers", grows);
  cr_assert(world.shows(10, " why=expired"), "%s", world.comment(10).c_str());
}

Test(controller, an_agent_that_takes_one_offer_up_is_offered_the_others_ever_less) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const control::Offer first = world.server.last<control::Grow>()->offers[0];
  cr_assert(world.book.use(first.nonce, 1000, world.now).ok());
  world.slurm.run(20, first.node, first.gpus, "swell[parent=10 grant=" + first.nonce + "]");
  const int grows = grows_in_400_s(world);
  cr_assert_geq(grows, 3);
  cr_assert_leq(grows, 9, "%d offers", grows);
}

Test(controller, claims_of_an_agent_do_not_end_its_backoff) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run(32, "node3", 1, "");
  world.hello(1, 10, 4);
  int grows = 0;
  for (int i = 0; i < 400; ++i) {
    if (const auto* grow = world.server.last<control::Grow>()) {
      ++grows;
      control::GrowDone done;
      for (const auto& offer : grow->offers) done.results.push_back({offer.nonce, 32, ""});
      world.server.sent.clear();
      world.server.says(1, done);
    }
    world.step(1);
  }
  cr_assert_leq(grows, 8, "%d offers", grows);
}

Test(controller, refusals_and_their_kind_are_shown) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const control::Grow grow = *world.server.last<control::Grow>();
  control::GrowDone done;
  for (const auto& offer : grow.offers)
    done.results.push_back(
        {offer.nonce, 0, "Job submit/allocate failed: Invalid qos specification"});
  world.server.says(1, done);
  world.step(3);
  cr_assert(world.shows(10, "refused=2 why=qos"), "%s", world.comment(10).c_str());
  world.restart();
  world.step();
  cr_assert(world.shows(10, "refused=2 why=qos"), "%s", world.comment(10).c_str());
}

Test(controller, no_more_is_lent_than_the_program_says_that_it_can_run_on) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  control::Hello hello = hello_of(10, 8);
  hello.sizes = {8, 12};
  world.server.says(1, hello);
  world.step();
  const auto* grow = world.server.last<control::Grow>();
  cr_assert_not_null(grow);
  int lent = 0;
  for (const control::Offer& offer : grow->offers) lent += offer.gpus;
  cr_assert_eq(lent, 4, "%d", lent);
}

Test(controller, a_job_that_was_grown_stays_as_it_is_for_the_time_that_its_owner_asked_for) {
  Grown site_alone("max=4x");
  cr_assert(site_alone.is_offered_within(20), "GrowthInterval and GrantExpiry are over");
  Grown staying("max=4x,stay=300");
  cr_assert_not(staying.is_offered_within(290));
  cr_assert(staying.is_offered_within(20));
  Grown shorter("max=4x,stay=2");
  cr_assert_not(shorter.is_offered_within(10), "the site's time is the least");
}

Test(controller, a_job_that_gave_gpus_back_stays_as_it_is_for_that_time) {
  Grown world("max=4x,stay=300");
  cr_assert_not(world.is_offered_within(290));
  world.server.says(1, control::Released{20, "the program has no use for it"});
  world.slurm.end(20);
  cr_assert_not(world.is_offered_within(290), "from when it was given back");
  cr_assert(world.is_offered_within(20));
}

Test(controller, its_time_to_stay_runs_anew_when_the_controller_does) {
  Grown world("max=4x,stay=300");
  world.step(200);
  world.restart();
  world.step();
  world.hello(1, 10, 4, {20});
  cr_assert_eq(world.controller->jobs().at(10).companions.lent_gpus(), 4);
  cr_assert_not(world.is_offered_within(290));
  cr_assert(world.is_offered_within(20));
}

Test(controller, an_offer_that_failed_is_followed_by_another_before_that_time) {
  World world;
  world.slurm.run(10, "node1", 4, "swell[elastic=max=4x,stay=3000,grace=20 basic=4]");
  world.hello(1, 10, 4);
  cr_assert_geq(grows_in_400_s(world), 3);
}

Test(controller, its_owner_reads_for_how_long_it_stays) {
  Grown world("max=4x,stay=300");
  world.step(100);
  control::Ask ask;
  ask.job = 10;
  ask.what = "why";
  world.server.says(9, ask);
  world.step(50);
  const auto* answer = world.server.last<control::Answer>();
  cr_assert_not_null(answer);
  cr_assert_neq(answer->text.find("it stays as it is for 150 s more (stay=300)"), std::string::npos,
                "%s", answer->text.c_str());
}

Test(controller, a_job_is_lent_whole_steps) {
  World world;
  world.slurm.run(10, "node1", 4, "swell[elastic=max=16,step=5,grace=20 basic=4]");
  world.hello(1, 10, 4);
  cr_assert_eq(offered_gpus(world), 10);
}

Test(controller, a_grant_that_stands_when_the_drain_begins_is_withdrawn) {
  World world;
  world.slurm.run_elastic(1, "node1", 8);
  world.step();
  world.hello(7, 1, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  world.controller->set_draining(true);
  world.step();
  for (const control::Offer& offer : grow.offers)
    cr_assert_not(world.book.use(offer.nonce, 1000, world.now).ok());
}

Test(controller, a_refusal_by_job_submit_is_recorded) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  control::GrowDone done;
  for (const control::Offer& offer : grow.offers) {
    world.book.refuse(offer.nonce);
    done.results.push_back({offer.nonce, 0, "a Swell companion was refused: nice=0xa"});
  }
  world.server.says(1, done);
  world.step(3);
  const ElasticJob& job = world.controller->jobs().at(10);
  cr_assert_eq(job.offers.refused().times, static_cast<int>(grow.offers.size()));
  cr_assert_eq(job.offers.refused().kind, "unlike");
  cr_assert_eq(job.offers.failures(), 1);
  cr_assert(world.shows(10, "why=unlike"));
}

Test(controller, a_companion_that_was_never_used_does_not_end_the_backoff) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  for (const JobId rigid : {52, 53, 54})
    world.slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
  world.hello(1, 10, 4);
  std::vector<double> offered_at;
  for (JobId companion = 20; companion < 24; ++companion) {
    for (int i = 0; i < 200 && world.server.last<control::Grow>() == nullptr; ++i) world.step();
    cr_assert_not_null(world.server.last<control::Grow>());
    offered_at.push_back(world.now);
    world.take_offers(1, companion);
    world.slurm.end(companion);
    world.server.says(1, control::Released{companion, "its workers did not come up"});
    world.server.sent.clear();
    world.step();
  }
  for (std::size_t i = 2; i < offered_at.size(); ++i)
    cr_assert_geq(offered_at[i] - offered_at[i - 1], 1.5 * (offered_at[i - 1] - offered_at[i - 2]));
  cr_assert_eq(world.controller->jobs().at(10).offers.failures(), 4);
}

Test(controller, training_on_lent_gpus_ends_the_backoff) {
  Grown world("max=16");
  world.step();
  world.server.says(1, control::Released{20, "no use"});
  world.slurm.end(20);
  world.step();
  cr_assert_eq(world.controller->jobs().at(10).offers.failures(), 1);
  for (int i = 0; i < 200 && world.server.last<control::Grow>() == nullptr; ++i) world.step();
  world.take_offers(1, 21);
  control::Status status;
  status.state = control::JobState::active;
  status.workers = 4;
  world.server.says(1, status);
  world.step();
  cr_assert_eq(world.controller->jobs().at(10).offers.failures(), 1, "on its own GPUs");
  status.workers = 8;
  world.server.says(1, status);
  world.step();
  cr_assert_eq(world.controller->jobs().at(10).offers.failures(), 0);
}

Test(controller,
     a_companion_that_its_agent_gives_up_before_use_is_a_failed_growth_with_its_reason) {
  Grown world("max=16");
  control::GrowDone done;
  done.results.push_back({world.controller->jobs().at(10).companions.begin()->grant, 0,
                          "its node was not ready within 300 s of Slurm's grant (Prolog)"});
  world.server.says(1, done);
  world.step(3);
  const ElasticJob& job = world.controller->jobs().at(10);
  cr_assert_eq(job.offers.refused().kind, "prolog");
  cr_assert_eq(job.offers.failures(), 1);
  cr_assert(job.companions.begin()->is_leaving());
  world.step(10);
  cr_assert_eq(world.slurm.cancelled, std::vector<JobId>{20});
}

Test(controller, a_job_that_slurm_ends_after_a_grace_is_offered_nothing) {
  for (const bool is_preempted : {false, true}) {
    Grown world("max=24");
    if (is_preempted) world.slurm.find(10)->preempt_time = world.slurm.now.taken;
    cr_assert_neq(world.is_offered_within(60), is_preempted);
  }
}

Test(controller, a_job_whose_agent_has_seen_its_end_is_offered_nothing) {
  Grown world("max=24");
  control::Status status;
  status.state = control::JobState::active;
  status.no_growth = "the job is ending";
  world.server.says(1, status);
  world.server.sent.clear();
  cr_assert_not(world.is_offered_within(60));
}

Test(controller, a_preemption_counts_for_the_run_that_it_was_said_of) {
  slurm::JobRecord record;
  record.start_time = 1000;
  for (const auto& [at, is_preempted] :
       {std::pair(0, false), std::pair(999, false), std::pair(1000, true)}) {
    record.preempt_time = at;
    cr_assert_eq(record.is_preempted(), is_preempted, "%d", at);
  }
}
