// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/epoch_machine.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <csignal>
#include <utility>

#include "support/worker_nodes.h"

using namespace swell;
using namespace swell::control;
using namespace swell::launcher;

namespace {

constexpr JobId job = 5;

/// A run of 2 basic workers on node1 (node 0), and what its machine asked for.
class Run {
 public:
  explicit Run(EpochMachine::Settings settings = {})
      : machine(with_job(settings), {worker_node(0, job, "node1", 2)}) {
    machine.start(now);
    hello(0, 2);
    collect();
    cr_assert_eq(starts, 1);
  }

  void hello(int node_id, int workers) {
    for (int local = 0; local < workers; ++local)
      machine.hello(now, {node_id, local}, "host", 1000 + local);
    collect();
  }
  /// Every running worker at a node leaves, and its shim is ready again.
  void leave(int node_id, int workers, Exit exit = {}) {
    for (int local = 0; local < workers; ++local) {
      machine.exited(now, {node_id, local}, exit);
      machine.hello(now, {node_id, local}, "host", 2000 + local);
    }
    collect();
  }
  /// Grants a companion of `gpus` on node2; its node gets the next id.
  void grow(JobId companion, int gpus) {
    Grow message;
    message.offers.resize(1);
    machine.grow(now, message);
    collect();
    cr_assert_eq(allocations, ++expected_allocations);
    machine.allocated(now, {{"nonce", companion, "", {worker_node(0, 0, "node2", gpus)}}});
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
    machine.shrink(now, {{companion}, deadline_s, "needed"});
    collect();
  }
  void tick(double time) {
    now = time;
    machine.tick(now);
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
    }
    if (std::exchange(started, false) && !deaf) listen();
  }
  /// The programs of the newest epoch have installed their handlers.
  void listen() {
    for (const auto& [id, environment] : last_start.workers) machine.listens(now, id);
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
  EpochMachine machine;
  std::vector<JobId> steps, releases;
  int starts = 0, allocations = 0, expected_allocations = 0;
  std::size_t workers = 0;
  action::StartWorkers last_start;
  std::vector<std::pair<WorkerId, int>> signals;
  std::vector<Message> told;
  std::optional<int> code;
  std::vector<std::string> said;
  bool deaf = false;  ///< programs that start do not handle the restart signal

 private:
  bool started = false;
  static EpochMachine::Settings with_job(EpochMachine::Settings settings) {
    settings.job = job;
    settings.restart_signal = SIGUSR1;
    return settings;
  }
};

using Jobs = std::vector<JobId>;

}  // namespace

Test(epochs, the_basic_workers_start_when_all_are_there) {
  Run run;
  cr_assert_eq(run.steps, Jobs{job});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.machine.status().epoch, 0);
}

Test(epochs, the_program_s_end_is_the_run_s_end) {
  Run run;
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 0);
}

Test(epochs, an_error_exit_without_companions_ends_the_run_with_it) {
  Run run;
  run.event([&] { run.machine.exited(run.now, {0, 0}, {3, 0}); });
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGTERM, 1));
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 3);
  cr_assert_eq(run.starts, 1);
}

Test(epochs, a_death_by_signal_is_128_and_its_number) {
  Run run;
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGSEGV}); });
  run.tick(run.now);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 128 + SIGSEGV);
}

Test(epochs, with_kill_on_bad_exit_0_the_others_may_finish) {
  EpochMachine::Settings settings;
  settings.kill_on_bad_exit = false;
  Run run(settings);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {3, 0}); });
  cr_assert(run.signals.empty());
  cr_assert_not(run.code.has_value());
  run.event([&] { run.machine.exited(run.now, {0, 1}, {}); });
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(epochs, growing_disturbs_nobody_until_the_new_workers_are_up) {
  Run run;
  run.grow(9, 4);
  cr_assert_eq(run.state(), JobState::warming);
  cr_assert_eq(run.steps, (Jobs{job, 9}));
  run.hello(1, 3);
  cr_assert(run.signals.empty());
  run.event([&] { run.machine.hello(run.now, {1, 3}, "host", 1); });
  cr_assert(run.signalled(SIGUSR1, 2));
  cr_assert_eq(run.state(), JobState::switching);
  run.now += 1.5;
  run.leave(0, 2);
  cr_assert_eq(run.workers, 6u);
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.machine.status().epoch, 1);
  cr_assert_float_eq(run.machine.status().stopped_s, 1.5, 1e-9);
  // Rank 0 is in the basic allocation.
  cr_assert_eq(run.last_start.workers.front().first.node, 0);
}

Test(epochs, a_refused_grant_changes_nothing) {
  Run run;
  Grow grow;
  grow.offers.resize(1);
  run.event([&] { run.machine.grow(run.now, grow); });
  run.event([&] { run.machine.allocated(run.now, {{"nonce", 0, "busy", {}}}); });
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.steps, Jobs{job});
  cr_assert(run.signals.empty());
}

Test(epochs, a_companion_whose_step_does_not_come_up_is_given_back) {
  Run run;
  run.grow(9, 4);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert(run.signals.empty());
  cr_assert_eq(run.starts, 1);
}

Test(epochs, a_shrink_releases_before_the_others_have_left) {
  Run run;
  run.grown();
  run.shrink(9, 20);
  cr_assert(run.signalled(SIGUSR1, 6));
  cr_assert_eq(run.state(), JobState::draining);
  run.leave(1, 4);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.starts, 2);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  run.event([&] { run.machine.released(run.now, 9); });
  cr_assert(std::holds_alternative<Released>(run.told.back()));
}

Test(epochs, who_has_not_left_before_the_deadline_is_killed) {
  Run run;
  run.grown();
  run.shrink(9, 10);
  cr_assert_float_eq(*run.machine.deadline(), run.now + 8, 1e-9);
  run.tick(run.now + 8);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(1, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(epochs, a_companion_that_never_took_part_is_given_back_at_once) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 2);
  run.shrink(9, 20);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert(run.signals.empty());
}

Test(epochs, a_shrink_while_switching_goes_into_the_same_stop) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 4);
  cr_assert_eq(run.state(), JobState::switching);
  run.shrink(9, 20);
  cr_assert_eq(run.releases, Jobs{9});
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 2);
}

Test(epochs, a_grant_during_a_stop_joins_later) {
  Run run;
  run.grown();
  run.shrink(9, 20);
  run.grow(12, 2);
  run.leave(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  run.hello(2, 2);
  cr_assert_eq(run.state(), JobState::switching);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 4u);
}

Test(epochs, a_warning_from_slurm_is_a_shrink) {
  Run run;
  run.grown();
  run.event([&] { run.machine.notice(run.now, {1, 0}, SIGTERM); });
  run.event([&] { run.machine.notice(run.now, {1, 1}, SIGTERM); });
  cr_assert(run.signalled(SIGUSR1, 6));
  run.leave(1, 4, {143, 0});
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
}

Test(epochs, a_lost_companion_means_starting_again_without_it) {
  Run run;
  run.grown();
  for (int local = 0; local < 4; ++local) run.event([&] { run.machine.lost(run.now, {1, local}); });
  cr_assert(run.signalled(SIGKILL, 5));  // one of the six was lost when the first news came
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 3);
}

Test(epochs, an_error_is_forgiven_when_a_companion_s_loss_explains_it) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });  // its peer died
  run.now += 1;
  run.event([&] { run.machine.step_ended(run.now, 9, {0, SIGKILL}); });
  run.leave(1, 4, {0, SIGKILL});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}); });
  run.hello(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(epochs, an_error_long_after_a_growth_is_the_program_s_own) {
  Run run;
  run.grown();
  run.now += 601;
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });
  cr_assert_not(run.code.has_value());
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGTERM, 5));
  run.leave(1, 4, {0, SIGTERM});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 1);
  cr_assert_eq(run.releases, Jobs{9});
}

Test(epochs, an_error_soon_after_a_growth_means_going_on_as_before_it) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });
  run.tick(run.now + 2);
  cr_assert(run.signalled(SIGKILL, 5));
  run.event([&] { run.machine.hello(run.now, {0, 1}, "host", 1); });
  run.leave(1, 4, {0, SIGKILL});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}); });
  run.event([&] { run.machine.hello(run.now, {0, 0}, "host", 1); });
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.no_growth(), std::string("the program failed with 1 over 6 workers"));
  cr_assert(run.has_said("the program failed with 1 over 6 workers: on with the job's own GPUs"));
  // The basic run's own failure ends it.
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });
  run.tick(run.now);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 1);
}

Test(epochs, a_basic_worker_that_is_killed_ends_the_run_also_with_companions) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGKILL}); });
  run.tick(run.now + 2);
  cr_assert(run.signalled(SIGTERM, 5));
}

Test(epochs, a_fault_that_shows_only_on_lent_gpus_leaves_the_job_its_own) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {1, 2}, {3, 0}); });
  run.tick(run.now + 2);
  run.event([&] { run.machine.hello(run.now, {1, 2}, "host", 1); });
  for (const int local : {0, 1, 3})
    run.event([&] { run.machine.exited(run.now, {1, local}, {0, SIGKILL}); });
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
  cr_assert_not(run.no_growth().empty());
  // What is offered meanwhile is refused with the reason, and after a while accepted again.
  Grow grow;
  grow.offers.resize(1);
  run.event([&] { run.machine.grow(run.now, grow); });
  cr_assert_eq(std::get<GrowDone>(run.told.back()).results.front().reason, run.no_growth());
  cr_assert_eq(run.allocations, 1);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.no_growth(), std::string());
  cr_assert_eq(std::get<Status>(run.told.back()).no_growth, std::string());
  run.grow(12, 2);
}

Test(epochs, too_many_losses_end_the_growing_and_not_the_run) {
  EpochMachine::Settings settings;
  settings.max_restarts = 1;
  Run run(settings);
  run.grown();
  run.event([&] { run.machine.exited(run.now, {1, 0}, {0, SIGKILL}); });
  run.leave(1, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.no_growth(), std::string());
  run.grow(12, 2);
  run.hello(2, 2);
  run.leave(0, 2);
  cr_assert_eq(run.starts, 4);
  run.event([&] { run.machine.exited(run.now, {2, 0}, {0, SIGKILL}); });
  run.leave(2, 2, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.no_growth(), std::string("2 losses of lent GPUs within 600 s"));
}

Test(epochs, growth_waits_until_every_worker_handles_the_signal) {
  Run run;
  run.deaf = true;
  run.grown();
  run.grow(12, 2);
  run.hello(2, 2);
  cr_assert(run.signals.empty());
  cr_assert_eq(run.no_growth(), std::string("6 of 6 workers have no handler for USR1 yet"));
  run.listen();
  cr_assert(run.signalled(SIGUSR1, 6));
  cr_assert_eq(run.no_growth(), std::string());
}

Test(epochs, only_as_many_workers_run_as_the_program_can_run_with) {
  Run run;
  run.event([&] { run.machine.can_run_with({2, 3, 5}); });
  cr_assert(std::get<Status>(run.told.back()).sizes == (std::vector<int>{2, 3, 5}));
  run.grow(9, 4);
  run.hello(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 5u, "not 6");
  const std::size_t told = run.told.size();
  run.event([&] { run.machine.can_run_with({2, 3, 5}); });
  cr_assert_eq(run.told.size(), told, "no news");
}

Test(epochs, what_the_program_can_run_with_is_told_in_gpus) {
  EpochMachine::Settings settings;
  settings.gpus_per_worker = 4;
  EpochMachine machine(settings, {worker_node(0, job, "node1", 4)});
  machine.can_run_with({1, 3, 500'000});
  cr_assert(machine.status().sizes == (std::vector<int>{4, 12}), "no job has 2,000,000");
}

Test(epochs, a_program_that_never_handles_the_signal_is_left_as_it_is) {
  Run run;
  run.deaf = true;
  run.grown();
  run.grow(12, 2);
  run.hello(2, 2);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{12});
  cr_assert(run.signals.empty());
  cr_assert_eq(run.starts, 2);
  cr_assert_not(run.no_growth().empty());
}

Test(epochs, who_did_not_leave_in_time_is_not_grown_again) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 4);
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 2));
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.no_growth(),
               std::string("workers did not leave within 30 s of the restart signal"));
  run.tick(run.now + 1e6);
  cr_assert_not(run.no_growth().empty());
}

Test(epochs, who_was_still_starting_when_asked_to_leave_may_be_grown_again) {
  Run run;
  run.grown();
  run.deaf = true;
  run.shrink(9, 60);
  run.leave(1, 4);
  run.leave(0, 2);
  run.grow(12, 4);
  run.hello(2, 4);
  run.listen();
  run.leave(0, 2);
  cr_assert_eq(run.starts, 4);
  run.signals.clear();
  // None of the six has come up when one of them is reclaimed, and 30 s later only one has.
  run.shrink(12, 60);
  run.tick(run.now + 20);
  run.event([&] { run.machine.listens(run.now, {0, 0}); });
  run.tick(run.now + 10);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(2, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.starts, 5);
  run.listen();
  cr_assert_eq(run.no_growth(), std::string());
}

Test(epochs, a_shorter_deadline_than_the_grace_is_not_the_program_s_fault) {
  Run run;
  run.grown();
  run.shrink(9, 5);
  run.tick(run.now + 3);
  cr_assert(run.signalled(SIGKILL, 6));
  cr_assert_eq(run.no_growth(), std::string());
}

Test(epochs, a_worker_that_dies_of_the_signal_ends_its_siblings) {
  Run run;
  run.grown();
  run.shrink(9, 60);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGUSR1}); });
  cr_assert_float_eq(*run.machine.deadline(), run.now + 1, 1e-9);
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGKILL, 5));
}

Test(epochs, each_refusal_of_slurm_is_said_once) {
  Run run;
  Grow grow;
  grow.offers.resize(3);
  run.event([&] { run.machine.grow(run.now, grow); });
  run.event([&] {
    run.machine.allocated(
        run.now, {{"a", 0, "Invalid qos", {}}, {"b", 0, "Invalid qos", {}}, {"c", 0, "busy", {}}});
  });
  cr_assert_eq(std::count(run.said.begin(), run.said.end(),
                          "GPUs were offered, but Slurm refused them: Invalid qos"),
               1);
  cr_assert(run.has_said("busy"));
}

Test(epochs, sizes_leave_workers_without_a_part) {
  EpochMachine::Settings settings;
  settings.sizes = {2, 4};
  Run run(settings);
  run.grow(9, 3);
  run.hello(1, 3);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 4u);
}

Test(epochs, term_ends_the_run_with_its_companions) {
  Run run;
  run.grown();
  run.event([&] { run.machine.signalled(run.now, SIGTERM); });
  cr_assert(run.signalled(SIGTERM, 6));
  run.leave(1, 4, {0, SIGTERM});
  run.leave(0, 2, {0, SIGTERM});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGTERM);
  cr_assert_eq(run.releases, Jobs{9});
}

Test(epochs, other_signals_only_reach_the_workers) {
  Run run;
  run.event([&] { run.machine.signalled(run.now, SIGUSR2); });
  cr_assert(run.signalled(SIGUSR2, 2));
  cr_assert_eq(run.state(), JobState::active);
}

Test(epochs, a_basic_worker_s_shim_that_is_killed_ends_the_run) {
  Run run;
  run.event([&] { run.machine.lost(run.now, {0, 0}); });
  run.tick(run.now);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 128 + SIGKILL);
}

Test(epochs, an_srun_that_cannot_start_ends_the_run_with_its_code) {
  EpochMachine machine(
      [] {
        EpochMachine::Settings settings;
        settings.job = job;
        return settings;
      }(),
      {worker_node(0, job, "node1", 2)});
  machine.start(1);
  machine.step_ended(2, job, {2, 0});
  const auto actions = machine.take();
  cr_assert_eq(std::get<action::Finish>(actions.back()).code, 2);
}
