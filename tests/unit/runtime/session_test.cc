// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/session.h"

#include <chrono>
#include <criterion/criterion.h>
#include <thread>

#include "support/live_job.h"

using namespace swell;
using support::LiveJob;

Test(session, unasked_reports_of_a_program_reach_the_shim) {
  LiveJob job(SWELL_EXAMPLE, 1, {});
  runtime::Coordinator coordinator(LiveJob::cluster(), {});
  profiler::RankProfile seen;
  seen.role.stage = 3;
  seen.times.fwd_s = 0.25;
  seen.micro_batches = 16;
  seen.layer_param_bytes = 7e9;
  std::string told;
  std::thread program([&] {
    auto session = runtime::Session::open(job.keepers[0]->unix_socket()).value();
    runtime::Entry entry;
    entry.tensor.name = "w";
    entry.tensor.shape = {8};
    entry.part = runtime::Part::whole(entry.tensor.shape);
    cr_assert(session->add(entry).ok());
    cr_assert(session->adopt().ok());
    cr_assert(session->report(seen).ok());
    auto channel = runtime::Channel::connect_unix(job.keepers[0]->unix_socket()).value();
    told = ask(channel, runtime::Op::last_profile, {}).value().body;
  });
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  program.join();
  cr_assert_eq(told, profiler::write(seen));
}

Test(session, the_shim_knows_for_how_long_a_step_has_been_made) {
  using Clock = std::chrono::steady_clock;
  LiveJob job(SWELL_EXAMPLE, 1, {});
  runtime::Coordinator coordinator(LiveJob::cluster(), {});
  const runtime::Keeper& keeper = *job.keepers[0];
  double before = -1, age = 0, most = 0;
  std::thread program([&] {
    auto session = runtime::Session::open(job.keepers[0]->unix_socket()).value();
    cr_assert(session->adopt().ok());
    before = keeper.step_age_s();
    const auto begin = Clock::now();
    cr_assert(session->step(1).ok());
    while (age < 0.02) age = keeper.step_age_s();
    most = std::chrono::duration<double>(Clock::now() - begin).count();
  });
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  program.join();
  cr_assert_eq(before, 0);  // it has made none
  cr_assert_leq(age, most);
}

Test(session, alone_nobody_is_told) {
  auto session = runtime::Session::open("").value();
  cr_assert(session->adopt().ok());
  cr_assert(session->report({}).ok());
}
