// SPDX-License-Identifier: GPL-2.0-or-later
// Who may speak for a job, and what becomes of its expansions when nobody does.
#include <criterion/criterion.h>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::hello_of;
using swell::test::World;

Test(controller, only_the_owner_may_speak_for_a_job) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  control::Hello hello = hello_of(10, 4);
  world.server.says(1, hello, 1001);
  world.step();
  cr_assert_eq(world.server.last<control::Refused>()->reason,
               std::string("job 10 belongs to another user"));
  cr_assert_null(world.server.last<control::Grow>());
  world.hello(2, 10, 4);
  world.hello(3, 10, 4);
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("another swellrun"),
                std::string::npos);
}

Test(controller, a_job_that_is_not_elastic_is_told_so_once_it_is_certain) {
  World world;
  world.slurm.run(10, "node1", 4, "");
  world.hello(1, 10, 4);
  cr_assert_null(world.server.last<control::Refused>(), "it may just have started");
  world.step(6);
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("--elastic"), std::string::npos);
}

Test(controller, a_message_that_cannot_be_read_costs_no_agent_its_session) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.server.says_wrong(1, "message \"status\": \"lost_s\" is -1");
  world.take_offers(1, 20);
  world.server.says_wrong(1, "unknown message type \"of-tomorrow\"");
  world.step();
  cr_assert(world.server.closed.empty());
  cr_assert_null(world.server.last<control::Refused>());
  const auto times_said = [&](const std::string& line) {
    return std::count(world.said.begin(), world.said.end(),
                      "job 10: left out what its agent says: " + line);
  };
  cr_assert_eq(times_said("message \"status\": \"lost_s\" is -1"), 1);
  for (int i = 0; i < 1000; ++i) world.server.says_wrong(1, "x");
  world.step();
  cr_assert_leq(times_said("x"), 100);
  // One that has not said whose it is has no session.
  world.server.says_wrong(2, "unknown");
  world.step();
  cr_assert_eq(world.server.closed.size(), 1u);
}

Test(controller, an_agent_that_died_loses_its_expansions_after_a_while) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.hangs_up(1);
  world.step();
  cr_assert(world.slurm.cancelled.empty(), "it may come back");
  world.step(20);
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
}

Test(controller, an_agent_that_comes_back_keeps_its_expansions) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.hangs_up(1);
  world.step(5);
  world.hello(2, 10, 8, {20, 21, 22});
  world.step(20);
  cr_assert(world.slurm.cancelled.empty());
}

Test(controller, an_ended_program_gives_everything_back_at_once) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.says(1, control::Bye{0});
  world.step();
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
}

Test(controller, an_agent_that_is_refused_is_lost) {
  struct {
    const char* what;
    control::Message (*message)();
  } const cases[] = {
      {"a message that is not for the controller",
       [] { return control::Message(control::Welcome{}); }},
      {"a second hello", [] { return control::Message(hello_of(10, 8)); }},
      {"a hello for another job", [] { return control::Message(hello_of(11, 4)); }},
  };
  for (const auto& each : cases) {
    World world;
    world.slurm.run_elastic(10, "node1", 8);
    world.hello(1, 10, 8);
    world.take_offers(1, 20);
    world.slurm.run_elastic(11, "node1", 4);
    world.server.says(1, each.message());
    world.step();
    cr_assert_not_null(world.server.last<control::Refused>(), "%s", each.what);
    cr_assert_eq(world.server.closed.size(), 1u, "%s", each.what);
    cr_assert(world.slurm.cancelled.empty(), "%s", each.what);
    world.step(20);
    cr_assert_eq(world.slurm.cancelled.size(), 3u, "%s: AgentTimeout did not fire", each.what);
  }
}

Test(controller, nothing_is_heard_from_a_connection_that_was_closed) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.server.says(1, control::Bye{0});  // no hello came before: refused
  control::Hello hello = hello_of(10, 8);
  world.server.says(1, hello);
  world.step();
  world.server.says(1, hello);
  world.step();
  cr_assert_null(world.server.last<control::Welcome>());
}

Test(controller, messages_right_after_a_hello_are_heard_after_it) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  control::Hello hello = hello_of(10, 8);
  world.server.says(1, hello);
  control::Status status;
  status.state = control::JobState::active;
  status.generation = 3;
  world.server.says(1, status);
  world.step();
  cr_assert_null(world.server.last<control::Refused>());
  world.step(2);
  cr_assert(world.shows(10, "generation=3"), "%s", world.comment(10).c_str());
}

Test(controller, numbers_of_a_hello_cannot_overflow) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  control::Hello hello;
  hello.job = 10;
  hello.workers = hello.gpus_per_worker = 1'000'000;
  world.server.says(1, hello);
  world.step();
  cr_assert_not_null(world.server.last<control::Refused>());
}
