// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/agent_sessions.h"

#include <criterion/criterion.h>

#include "unit/controller/fakes.h"

using namespace swell;
using namespace swell::controller;
using swell::test::FakeServer;

namespace {

control::Hello hello_of(JobId job) {
  control::Hello hello;
  hello.job = job;
  return hello;
}

}  // namespace

Test(agent_sessions, a_hello_of_a_job_that_is_not_seen_yet_waits) {
  FakeServer server;
  AgentSessions sessions(server);
  server.says(1, hello_of(10));
  bool hello_came = false;
  cr_assert(sessions.take(100, hello_came).empty());
  cr_assert(hello_came);
  JobTable jobs;
  cr_assert(sessions.answerable(jobs, 100).empty());
  jobs[10].id = 10;
  cr_assert_eq(sessions.answerable(jobs, 101).size(), 1u);
}

Test(agent_sessions, a_flood_of_hellos_waits_in_bounded_memory) {
  FakeServer server;
  AgentSessions sessions(server);
  const JobTable jobs;
  bool hello_came = false;
  std::size_t answered = 0;
  for (control::ConnectionId connection = 1; connection <= 2000; ++connection)
    server.says(connection, hello_of(10));
  server.says(3000, hello_of(11), 1001);
  sessions.take(100, hello_came);
  for (const auto& event : sessions.answerable(jobs, 100)) {
    cr_assert_eq(event.uid, 1000u, "another user is not served worse");
    ++answered;
  }
  cr_assert_geq(answered, 1700u, "%zu", answered);
}
