// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: handles events of workers, of Slurm and of the user.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "launcher/generation_machine.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

void GenerationMachine::on(double now, const event::Hello& hello) {
  const WorkerId id = hello.worker;
  HeldCompanion* companion = run_.companions.of_node(id.node);
  if (companion == nullptr && !run_.companions.is_basic(id.node))
    return;  // its companion was released meanwhile
  WorkerState& worker = run_.workers[id];
  worker.host = hello.host;
  worker.port = hello.port;
  worker.step = hello.step;
  worker.present = worker.ready = true;
  if (!hello.one_program.empty() && settings_.live) {
    settings_.live = false;
    const std::vector<WorkerNode>& nodes =
        companion != nullptr ? companion->nodes : run_.companions.basic();
    const auto known = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const WorkerNode& node) { return node.id == id.node; });
    switched_ = fmt::format("{}: {}; the job is resized by restarts",
                            known != nodes.end() ? known->name : hello.host, hello.one_program);
    out_.say("live mode: " + switched_);
    out_.add(action::Tell{status()});
  }
  if (companion != nullptr && !companion->up) {
    companion->started = companion->up = true;
    for (const WorkerNode& node : companion->nodes)
      for (int local = 0; local < node.workers; ++local)
        companion->up = companion->up && run_.workers[{node.id, local}].present;
    companion->joins_by = growth_.joins_by(now);
    if (companion->up) companion->waits_until = now + settings_.stragglers_s;
  }
  // A deferred Exited of its last program will clear `ready`: WorkerReady sets it again after it.
  if (LiveSwitch* one = in<LiveSwitch>()) one->deferred().add(WorkerReady{id});
  advance(now);
}

void GenerationMachine::on(double now, const event::Listens& listens) {
  const WorkerId id = listens.worker;
  const int generation = listens.generation.value_or(run_.generation);
  WorkerState& worker = run_.workers[id];
  if (!worker.running && !run_.workers.others().contains({generation, id})) return;
  if (generation > worker.listens) {
    worker.listens = generation;
    worker.listens_since = now;
  }
  tell_no_growth();
  advance(now);
}

void GenerationMachine::on(double now, const event::Exited& exited) {
  const WorkerId id = exited.worker;
  const Exit exit = exited.exit;
  const int generation = exited.generation.value_or(run_.generation);
  // The worker was released for a switch that may have failed since.
  const bool is_gone = generation == run_.generation &&
                       (was_let_go(id) || run_.workers.others().contains({generation, id}));
  if (LiveSwitch* one = in<LiveSwitch>(); one != nullptr && exit.status() != 0)
    one->failures().add(exit);
  if (!is_gone &&
      defers(event::Exited{id, exit, generation}, generation != run_.generation,
             generation != run_.generation ? CallOffCause::next_ended : CallOffCause::worker_ended))
    return;
  if (generation != run_.generation || is_gone) {
    run_.workers.others().erase({generation, id});
    if (HeldCompanion* its = run_.companions.of_node(id.node); its != nullptr && its->reclaimed)
      release_if_left(its->job);
    return advance(now);
  }
  WorkerState& worker = run_.workers[id];
  if (!worker.running) return;
  worker.running = worker.ready = false;
  worker.ended_well = exit.status() == 0;
  HeldCompanion* companion = run_.companions.of_node(id.node);
  if (const Running* late = in<Running>();
      late != nullptr && !late->failure && late->late_until && now < *late->late_until)
    leave_late(now);
  // The worker was leaving for Swell when Slurm sent it another signal.
  if (is<Restart>() && !signals_.is_restart(exit) && run_.companions.is_basic(id.node) &&
      ends_for_signal(exit, now))
    return advance(now);
  // If a program fails after a user's signal, the error is its own, as under srun.
  if (Restart* asked = in<Restart>(); asked != nullptr && asked->may_return() &&
                                      asked->what().purpose != Purpose::grow &&
                                      exit.status() != 0 && !signals_.is_leave(exit)) {
    return_to_running();
    set_state(JobState::active);
  }
  if (Restart* restart = in<Restart>()) {
    const bool of_signal = signals_.is_restart(exit);
    const bool clean =
        exit.status() == 0 || signals_.is_leave(exit) || exit.signal == SIGKILL || of_signal ||
        (companion != nullptr && companion->reclaimed && exit.status() == 128 + SIGTERM);
    const bool grows = restart->what().purpose == Purpose::grow;
    restart->left(exit, {clean, of_signal});
    if (run_.workers.running().empty() && !restart->is_forced())
      pace_.left(now - restart->what().since);
    if (of_signal && grows && growth_.pause_reason().empty())
      pause_growth(now,
                   fmt::format("a worker died of {}, by which it was asked to leave",
                               signal_name(settings_.restart_signal)),
                   true);
    if (!clean && restart->tells_of_bad_exit()) {
      out_.say(fmt::format(
          "a worker on {} ended with {} after the restart signal; the next generation resumes from the "
          "last checkpoint",
          worker.host, exit.status()));
      if (grows)
        pause_growth(now,
                     fmt::format("a worker ended with {} after the restart signal", exit.status()));
    }
    // A worker killed by this or another signal never answers its siblings: they need not
    // wait for the whole grace.
    const bool died =
        (exit.signal != 0 && exit.signal != SIGKILL && exit.signal != SIGTERM) || of_signal;
    if (died && !run_.workers.running().empty()) restart->shorten(now + settings_.siblings_s);
    if (companion != nullptr) release_if_left(companion->job);
  } else {
    const Ending* ending = in<Ending>();
    const bool goes_back = companion != nullptr && companion->reclaimed;
    if (ending == nullptr || (!ending->code_is_final && !goes_back))
      code_ = std::max(code_, exit.status());
    if (is<Running>() && exit.status() != 0 && !signals_.is_leave(exit)) fail(now, id, exit);
    else if (is<Running>() && goes_back && companion->ends_early && run_.basic_train())
      lose(now, companion->job, "its program left");
    if (companion = run_.companions.of_node(id.node); companion != nullptr) {
      const double by = companion->leave_by;
      if (release_if_left(companion->job) && is_live() && !run_.all_train())
        ends_with_others(now, by);
    }
  }
  advance(now);
}

/// Handles workers that ended by themselves, whose GPUs went back. At the training's end the others
/// end, too; those that still train at `ask_at` are asked to leave, in time for other GPUs.
void GenerationMachine::ends_with_others(double now, double by) {
  Running& running = *in<Running>();
  by = std::min(by, run_.drain_by().value_or(by));
  const double ask_at = std::max(now, by - settings_.restart_timeout_s / 2);
  if (running.ask_at && *running.ask_at <= ask_at && running.leave_by <= by) return;
  running.ask_at = std::min(ask_at, running.ask_at.value_or(ask_at));
  running.leave_by = std::max(by, *running.ask_at);
}

void GenerationMachine::fail(double now, WorkerId id, Exit exit) {
  HeldCompanion* companion = run_.companions.of_node(id.node);
  // Swell sends no KILL to a running generation: Slurm or the kernel killed the worker. If GPUs go
  // back, Slurm's TERM may be the cause of any error that no signal to the whole job explains.
  if (companion != nullptr &&
      (exit.signal == SIGKILL || (companion->reclaimed && signals_.cause_of(exit, now) == 0)))
    return lose(now, companion->job,
                exit.signal == SIGKILL
                    ? "a worker of it was killed"
                    : fmt::format("a worker of it ended with {}", exit.status()));
  if (is_failing()) {  // the first report counts
    in<Running>()->failure->on_lent = in<Running>()->failure->on_lent || companion != nullptr;
    return;
  }
  out_.note(
      "worker-failed",
      Json::object({{"node_id", id.node}, {"local_rank", id.local}, {"status", exit.status()}}));
  if (!settings_.kill_on_bad_exit && run_.companions.held().empty() && settings_.recover_s <= 0)
    return;
  in<Running>()->failure = Failure{id, exit, companion != nullptr,
                                   now + (run_.companions.held().empty() ? 0 : settings_.blame_s)};
}

void GenerationMachine::on(double now, const event::Lost& lost) {
  const WorkerId id = lost.worker;
  if (run_.companions.of_node(id.node) == nullptr && !run_.companions.is_basic(id.node))
    return;  // its companion was released before
  if (!was_let_go(id) && defers(lost, true)) return;
  std::erase_if(run_.workers.others(), [id](const auto& each) { return each.first.second == id; });
  WorkerState& worker = run_.workers[id];
  const bool ran = std::exchange(worker.running, false);
  worker.present = worker.ready = false;
  if (is<Over>()) return;
  if (HeldCompanion* companion = run_.companions.of_node(id.node)) {
    const JobId job = companion->job;
    if (!is<Ending>()) lose(now, job, "a worker's connection was lost");
    release_if_left(job);
  } else if (is<Running>()) {
    code_ = std::max(code_, 128 + SIGKILL);
    if (ran || !is_failing()) fail(now, id, {0, SIGKILL});
  } else if (Gathering* first = in<Gathering>(); first != nullptr && !run_.has_begun()) {
    // srun ends it if it cannot launch the others of the step, and all may be launched again.
    code_ = std::max(code_, 128 + SIGKILL);
    first->by = now + settings_.warm_timeout_s;
    first->up_since = first->begins_by = std::nullopt;
  } else if (!is<Ending>()) {
    code_ = std::max(code_, 128 + SIGKILL);
    end(now, SIGTERM, now + settings_.end_timeout_s);
  }
  advance(now);
}

void GenerationMachine::on(double now, const event::Notice& notice) {
  const WorkerId id = notice.worker;
  const int signal = notice.signal;
  if (is<Over>() || is<Ending>()) return;
  if (HeldCompanion* companion = run_.companions.of_node(id.node)) {
    if (signal != SIGTERM && signal != SIGUSR1 && signal != kQuietSignal &&
        signal != settings_.restart_signal)
      return;
    const std::string why = fmt::format("Slurm sent it {}", signal_name(signal));
    // Programs get it, too, and may have left before their shims report it: training has not ended.
    companion->ends_early = companion->ends_early || signal == SIGTERM ||
                            (signal == settings_.restart_signal && !is_live());
    const bool have_left = companion->ends_early && run_.basic_train();
    if (is_live() && run_.takes_part(*companion) &&
        (is_failing() || (have_left && !run_.all_train()))) {  // the signal explains it
      lose(now, companion->job, why);
      return advance(now);
    }
    if (companion->reclaimed) return;
    const double by = companion->leave_by = now + settings_.restart_timeout_s;
    reclaim(now, *companion, why);
    if (LiveSwitch* one = in<LiveSwitch>()) one->make_way(by);
    if (is<Running>() && !is_live() && have_left && !is_failing())
      begin_restart(now, Purpose::give_back, by);
    else if (is<Running>()) leave_for_reclaim(now, by);
    return advance(now);
  }
  if (!run_.companions.is_basic(id.node)) return;  // released before
  // Every worker of the basic step reports it; companions' workers must be sent it once.
  if (!signals_.sent(now, signal)) return;
  out_.note("signal-from-slurm", Json::object({{"signal", signal_name(signal)}}));
  std::vector<WorkerId> others = with_next(run_.workers.running());
  std::erase_if(
      others, [this](WorkerId worker) { return run_.companions.of_node(worker.node) == nullptr; });
  if (!others.empty()) out_.add(action::SignalWorkers{std::move(others), signal});
  misses(signal);
  if (signal == settings_.restart_signal && settings_.before_end_s)
    return leave_before_end(now, fmt::format("Slurm sent the job {}", signal_name(signal)), false);
  if (signal == settings_.restart_signal) return leave_and_return(now, false);
  if (signal != SIGTERM) return;
  cuts_short(signal);
  end(now, 0, std::nullopt);
}

void GenerationMachine::on(double now, const event::StepEnded& ended) {
  const JobId job = ended.job;
  const std::string& misfit = ended.misfit;
  if (is<Over>()) return;
  if (job == settings_.job) {
    // Its shims run until they are disconnected, so srun could not start them, or was ended.
    if (code_ == 0) code_ = ended.exit.status() != 0 ? ended.exit.status() : 1;
    return finish();
  }
  if (run_.companions.find(job) == nullptr) return advance(now);  // it was released before
  if (defers(ended, true)) return;
  if (HeldCompanion* found = run_.companions.find(job);
      found != nullptr && !found->reclaimed && !is<Ending>() && !misfit.empty()) {
    pause_growth(now, misfit, true);
    give_back(now, *found, misfit);
  } else if (found != nullptr && !found->reclaimed && !is<Ending>()) {
    lose(now, job, "its step ended");
  }
  advance(now);
}

/// Notes that a signal ends the run. Between two generations no program's exit code shows this:
/// none runs, or those that do leave as they were asked to.
void GenerationMachine::cuts_short(int signal) {
  if (run_.workers.running().empty() || is<Restart>()) code_ = std::max(code_, 128 + signal);
}

void GenerationMachine::on(double now, const event::Signalled& signalled) {
  const int signal = signalled.signal;
  if (is<Over>()) return;
  out_.note("signal-from-user", Json::object({{"signal", signal_name(signal)}}));
  const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  if (!ends) {
    if (signal == settings_.restart_signal && settings_.before_end_s)
      return leave_before_end(now, fmt::format("swellrun was sent {}", signal_name(signal)), true);
    if (signal == settings_.restart_signal) return leave_and_return(now, true);
    misses(signal);
    auto workers = with_next(run_.workers.running());
    if (workers.empty()) return;
    return out_.add(action::SignalWorkers{std::move(workers), signal});
  }
  const bool again = is<Ending>() && in<Ending>()->kill_at.has_value() && signal == SIGINT;
  cuts_short(signal);
  end(now, again ? SIGKILL : signal, now + settings_.end_timeout_s);
  advance(now);
}

/// Returns `workers` and, during a switch, those of the generation that it starts: a signal reaches
/// the programs of both.
std::vector<WorkerId> GenerationMachine::with_next(std::vector<WorkerId> workers) const {
  if (const LiveSwitch* one = in<LiveSwitch>()) one->add_next(workers);
  return workers;
}

/// Keeps a signal for the next programs if no program of this generation answers it: all have left,
/// or they are leaving, and an exit with 0 does not tell for which signal.
void GenerationMachine::misses(int signal) {
  if (!run_.has_begun()) return;
  if (is<Gathering>() || (is<Restart>() && is_end_signal(signal))) signals_.miss(signal);
}

/// Returns the time at which the programs of this generation are sent the signals that earlier
/// programs missed, even if they have not said that they are ready.
std::optional<double> GenerationMachine::passes_missed_at() const {
  const Running* running = in<Running>();
  if (!signals_.has_missed() || running == nullptr || running->failure) return std::nullopt;
  return running->since + settings_.end_timeout_s;
}

void GenerationMachine::pass_missed(double now) {
  for (const int signal : signals_.pass_missed(now)) {
    out_.note("signal-passed-on", Json::object({{"signal", signal_name(signal)}}));
    if (auto workers = run_.workers.running(); !workers.empty())
      out_.add(action::SignalWorkers{std::move(workers), signal});
  }
}

}  // namespace swell::launcher
