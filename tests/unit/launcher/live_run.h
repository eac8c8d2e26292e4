// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <criterion/criterion.h>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "launcher/generation_machine.h"
#include "runtime/wire/messages.h"
#include "support/worker_nodes.h"

// A run in live mode for tests of the generation machine, without agent, clock or processes.
namespace live_run {

using namespace swell;
using namespace swell::control;
using namespace swell::launcher;

inline constexpr JobId kJob = 5, kCompanion = 9;

inline GenerationMachine::Settings live_settings(double first_offer_s = 0, double recover_s = 0,
                                                 double grow_s = 0) {
  GenerationMachine::Settings settings;
  settings.job = kJob;
  settings.restart_signal = SIGUSR1;
  settings.live = true;
  settings.first_offer_s = first_offer_s;
  settings.recover_s = recover_s;
  settings.grow_s = grow_s;
  return settings;
}

/// One basic worker (node 0) whose program has begun with the runtime.
struct Run {
  explicit Run(bool begins = true, bool is_up = true, double first_offer_s = 0,
               double recover_s = 0, double grow_s = 0, bool stays = true)
      : machine(live_settings(first_offer_s, recover_s, grow_s),
                {worker_node(0, kJob, "node1", 1)}) {
    machine.start(now);
    collect();
    if (!is_up) return;
    basic_up();
    cr_assert_eq(begin.generation, 0);
    if (begins) handle(event::Begun{0, "", 0, stays});
  }
  void basic_up() { handle(event::Hello{{0, 0}, "host", 1}); }
  void offered() {
    Grow message;
    message.offers.resize(1);
    handle(message);
  }
  /// salloc's answer to an offer; no job: it was refused.
  void allocated(JobId companion) {
    handle(event::Allocated{{{"nonce", companion, "", {worker_node(0, 0, "node2", 1)}}}});
  }
  /// A companion of one GPU on node2 is up: node `id`.
  void lend(int id = 1, JobId companion = kCompanion, Json plan = Json()) {
    Grow message;
    message.offers.resize(1);
    message.plan = std::move(plan);
    handle(message);
    handle(event::Allocated{{{"nonce", companion, "", {worker_node(0, 0, "node2", 1)}}}});
    handle(event::Hello{{id, 0}, "host", 2});
  }
  void grown() {
    lend();
    committed(1);
    handle(event::Exited{{0, 0}, {}, 0});
    cr_assert_eq(machine.status().workers, 2);
  }
  void committed(int generation) {
    handle(event::Switching{generation, SwitchPhase::quiesce});
    SwitchOutcome outcome;
    outcome.committed = true;
    outcome.stopped_s = 0.25;
    outcome.summary = "generation at step 7";
    handle(event::Switched{generation, outcome});
  }
  void aborted(int generation, bool is_silent = false, const std::string& why = "it broke",
               bool lacks_room = false) {
    fails(generation, is_silent, swell::Error(why), lacks_room);
  }
  /// The coordinator called the switch off, as the machine had asked.
  void cancelled(int generation, bool is_silent = false) {
    fails(generation, is_silent, swell::runtime::called_off(), false);
  }
  void fails(int generation, bool is_silent, const swell::Error& why, bool lacks_room) {
    SwitchOutcome outcome;
    outcome.why = outcome.summary = why.message();
    outcome.code = why.code();
    outcome.is_silent = is_silent;
    outcome.lacks_room = lacks_room;
    handle(event::Switched{generation, outcome});
  }
  /// Its owner asks for a plan of two stages over the two workers, `first` layers in the first one.
  void replan(int first) {
    swell::plan::Plan plan{
        2, {{first, 1, {{"node1", "h100", {0}, 2}}}, {4 - first, 1, {{"node2", "h100", {0}, 2}}}}};
    handle(control::Replan{plan.to_json(), "its owner wants it"});
  }
  void shrink(int deadline_s) { handle(control::Shrink{{kCompanion}, deadline_s, "needed"}); }
  void tick(double time) {
    now = time;
    event([&] { machine.tick(now); });
  }
  void handle(const event::Any& one) {
    machine.handle(now, one);
    collect();
  }
  template <typename F>
  void event(F function) {
    function();
    collect();
  }
  void collect() {
    for (const action::Any& each : machine.take()) {
      if (const auto* one = std::get_if<action::BeginLive>(&each)) begin = *one;
      if (const auto* one = std::get_if<action::SwitchLive>(&each)) orders.push_back(*one);
      if (const auto* one = std::get_if<action::StopLive>(&each)) stops.push_back(*one);
      if (const auto* one = std::get_if<action::StartWorkers>(&each)) starts.push_back(*one);
      if (const auto* one = std::get_if<action::SignalWorkers>(&each)) signals.push_back(*one);
      if (const auto* one = std::get_if<action::Release>(&each)) releases.push_back(one->job);
      if (const auto* one = std::get_if<action::Finish>(&each)) code = one->code;
      if (const auto* one = std::get_if<action::Say>(&each)) said += one->line + "\n";
      calls_off += std::holds_alternative<action::CallOffLive>(each);
    }
  }
  /// By the signal, or all at one step.
  bool has_asked_to_leave() const { return has_signalled(SIGUSR1) || !stops.empty(); }
  bool has_signalled(int signal) const {
    return std::any_of(signals.begin(), signals.end(),
                       [&](const auto& each) { return each.signal == signal; });
  }

  double now = 100;
  GenerationMachine machine;
  action::BeginLive begin{-1, {}};
  std::vector<action::SwitchLive> orders;
  std::vector<action::StopLive> stops;
  std::vector<action::StartWorkers> starts;
  std::vector<action::SignalWorkers> signals;
  std::vector<JobId> releases;
  int calls_off = 0;
  std::optional<int> code;
  std::string said;
};

using Workers = std::vector<WorkerId>;

}  // namespace live_run
