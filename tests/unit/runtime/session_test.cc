// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/api/session.h"

#include <chrono>
#include <criterion/criterion.h>
#include <future>
#include <sys/socket.h>
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
    cr_assert(session->profile().report(seen).ok());
    auto channel = runtime::Channel::connect_unix(job.keepers[0]->unix_socket()).value();
    told = ask(channel, runtime::Op::last_profile, {}).value().body;
  });
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  program.join();
  cr_assert_eq(told, profiler::write(seen));
}

namespace {

/// Forwards all that a program asks of the shim at `shim` but `refused`, as a shim of an earlier
/// version does, and counts those.
void serve_as_older(const std::string& socket, const std::string& shim, runtime::Op refused,
                    std::promise<void>& listens, int& count) {
  const auto listening = runtime::listen_unix(socket).value();
  listens.set_value();
  auto program = runtime::Channel(Descriptor(accept(listening.get(), nullptr, nullptr)));
  auto behind = runtime::Channel::connect_unix(shim).value();
  while (auto asked = program.receive()) {
    if (asked->op == static_cast<std::uint16_t>(refused)) {
      ++count;
      cr_assert(program
                    .send(runtime::kRefusedOp,
                          runtime::write_refusal(Error("a question of kind 43 is not known")))
                    .ok());
      continue;
    }
    cr_assert(behind.send(asked->op, asked->body, asked->fd.get()).ok());
    const auto answer = behind.receive();
    if (!answer) return;
    cr_assert(program.send(answer->op, answer->body, answer->fd.get()).ok());
  }
}

}  // namespace

Test(session, a_shim_of_an_earlier_version_is_told_what_it_reads, .timeout = 60) {
  profiler::RankProfile seen;
  seen.times.fwd_s = 0.25;
  seen.times.bwd_s = 0.5;
  seen.micro_batches = 16;
  profiler::RankProfile weights = seen, nodes = seen;
  weights.times.weights_s = 0.125;
  nodes.nodes = {{perf::NodePass::forward, 0, 4, 0.25, 0, 0}};
  for (const bool is_older : {false, true})
    for (const profiler::RankProfile& each : {seen, weights, nodes}) {
      LiveJob job(SWELL_EXAMPLE, 1, {});
      runtime::Coordinator coordinator(LiveJob::cluster(), {});
      const std::string shim = job.keepers[0]->unix_socket(),
                        socket = job.folder() + "/older/socket";
      std::promise<void> listens;
      int refused = 0;
      std::thread between;
      if (is_older) {
        between = std::thread(
            [&] { serve_as_older(socket, shim, runtime::Op::node_profile, listens, refused); });
        listens.get_future().wait();
      }
      std::string told;
      std::thread program([&] {
        auto session = runtime::Session::open(is_older ? socket : shim).value();
        cr_assert(session->adopt().ok());
        cr_assert(session->profile().report(each).ok());
        auto channel = runtime::Channel::connect_unix(shim).value();
        told = ask(channel, runtime::Op::last_profile, {}).value().body;
      });
      cr_assert(coordinator.begin(job.shims({}), 1).ok());
      program.join();
      if (between.joinable()) between.join();
      cr_assert_eq(told, profiler::write(is_older ? seen : each));
      const bool asks_more = each.times.weights_s > 0 || !each.nodes.empty();
      cr_assert_eq(refused, is_older && asks_more ? 1 : 0);
    }
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
  cr_assert(session->profile().report({}).ok());
}
