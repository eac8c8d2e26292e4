// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <criterion/criterion.h>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/generation_machine.h"
#include "support/worker_nodes.h"

// A run for tests of the generation machine, without agent, clock or processes.
namespace generation_run {

using namespace swell;
using namespace swell::control;
using namespace swell::launcher;

inline constexpr JobId job = 5;

/// A run of 2 basic workers on node1 (node 0), and what its machine asked for.
class Run {
 public:
  explicit Run(GenerationMachine::Settings settings = {})
      : machine(with_job(settings), {worker_node(0, job, "node1", 2)}) {
    machine.start(now);
    hello(0, 2);
    collect();
    cr_assert_eq(starts, 1);
  }

  void hello(int node_id, int workers) {
    for (int local = 0; local < workers; ++local)
      machine.handle(now, event::Hello{{node_id, local}, "host", 1000 + local});
    collect();
  }
  /// Every running worker at a node leaves, and its shim is ready again.
  void leave(int node_id, int workers, Exit exit = {}) {
    for (int local = 0; local < workers; ++local) {
      machine.handle(now, event::Exited{{node_id, local}, exit});
      machine.handle(now, event::Hello{{node_id, local}, "host", 2000 + local});
    }
    collect();
  }
  /// Grants a companion of `gpus` on node2; its node gets the next id.
  void grow(JobId companion, int gpus) {
    Grow message;
    message.offers.resize(1);
    machine.handle(now, message);
    collect();
    cr_assert_eq(allocations, ++expected_allocations);
    machine.handle(
        now, event::Allocated{{{"nonce", companion, "", {worker_node(0, 0, "node2", gpus)}}}});
    collect();
  }
  /// A companion with 4 workers takes part (node 1).
  void grown() {
    grow(9, 4);
    hello(1, 4);
    leave(0, 2);
    cr_assert_eq(starts, 2);
    cr_assert_eq(workers, 6u);
    signals.clear();
  }
  void shrink(JobId companion, int deadline_s) {
    machine.handle(now, control::Shrink{{companion}, deadline_s, "needed"});
    collect();
  }
  void tick(double time) {
    now = time;
    machine.tick(now);
    collect();
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
      if (const auto* step = std::get_if<action::StartStep>(&each)) steps.push_back(step->job);
      if (const auto* start = std::get_if<action::StartWorkers>(&each)) {
        ++starts;
        workers = start->workers.size();
        last_start = *start;
        started = true;
      }
      if (const auto* signal = std::get_if<action::SignalWorkers>(&each))
        for (const WorkerId id : signal->workers) signals.emplace_back(id, signal->signal);
      if (std::holds_alternative<action::Allocate>(each)) ++allocations;
      if (const auto* release = std::get_if<action::Release>(&each))
        releases.push_back(release->job);
      if (const auto* tell = std::get_if<action::Tell>(&each)) told.push_back(tell->message);
      if (const auto* finish = std::get_if<action::Finish>(&each)) code = finish->code;
      if (const auto* say = std::get_if<action::Say>(&each)) said.push_back(say->line);
      if (const auto* note = std::get_if<action::Note>(&each)) notes.push_back(*note);
    }
    if (std::exchange(started, false) && !deaf) listen();
  }
  /// The programs of the newest generation have installed their handlers.
  void listen() {
    for (const auto& [id, environment] : last_start.workers)
      machine.handle(now, event::Listens{id});
    collect();
  }
  std::string no_growth() const { return machine.status().no_growth; }
  bool has_said(const std::string& words) const {
    return std::any_of(said.begin(), said.end(),
                       [&](const std::string& line) { return line.find(words) != line.npos; });
  }
  bool signalled(int signal, std::size_t count) const {
    std::size_t found = 0;
    for (const auto& [id, number] : signals) found += number == signal;
    return found == count;
  }
  JobState state() const { return machine.status().state; }

  double now = 100;
  GenerationMachine machine;
  std::vector<JobId> steps, releases;
  int starts = 0, allocations = 0, expected_allocations = 0;
  std::size_t workers = 0;
  action::StartWorkers last_start;
  std::vector<std::pair<WorkerId, int>> signals;
  std::vector<Message> told;
  std::optional<int> code;
  std::vector<std::string> said;
  std::vector<action::Note> notes;
  bool deaf = false;  ///< programs that start do not handle the restart signal

 private:
  bool started = false;
  static GenerationMachine::Settings with_job(GenerationMachine::Settings settings) {
    settings.job = job;
    settings.restart_signal = SIGUSR1;
    return settings;
  }
};

using Jobs = std::vector<JobId>;

}  // namespace generation_run
