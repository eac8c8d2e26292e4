// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/epoch_machine.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fmt/format.h>

#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

EpochMachine::EpochMachine(Settings settings, std::vector<Place> basic)
    : settings_(std::move(settings)), basic_(std::move(basic)) {
  for (const Place& place : basic_) next_place_ = std::max(next_place_, place.id + 1);
}

void EpochMachine::start(double now) {
  now_ = now;
  act(action::StartStep{settings_.job, basic_});
  set_state(JobState::allocated);
}

void EpochMachine::hello(double now, WorkerId id, const std::string& host, int port, JobId step) {
  now_ = now;
  Companion* companion = companion_of(id.place);
  if (companion == nullptr && !is_basic(id.place)) return;  // it was let go meanwhile
  workers_[id] = {host, port, step, true, true, false, false};
  if (companion != nullptr && !companion->up) {
    companion->up = true;
    for (const Place& place : companion->places)
      for (int local = 0; local < place.workers; ++local)
        companion->up = companion->up && workers_[{place.id, local}].present;
    companion->joins_by = now + settings_.listen_timeout_s;
  }
  advance(now);
}

void EpochMachine::listens(double now, WorkerId id) {
  now_ = now;
  Worker& worker = workers_[id];
  if (!worker.running) return;
  worker.listens = true;
  tell_no_growth();
  advance(now);
}

void EpochMachine::exited(double now, WorkerId id, Exit exit) {
  now_ = now;
  Worker& worker = workers_[id];
  if (!worker.running) return;
  worker.running = worker.ready = worker.listens = false;
  Companion* companion = companion_of(id.place);
  switch (phase_) {
    case Phase::leaving: {
      const bool clean =
          exit.status() == 0 || exit.signal == SIGKILL || exit.signal == settings_.restart_signal ||
          exit.code == 128 + settings_.restart_signal ||
          (companion != nullptr && companion->dropping && exit.status() == 128 + SIGTERM);
      if (!clean && !told_of_bad_exit_) {
        told_of_bad_exit_ = true;
        say(fmt::format(
            "a worker on {} ended with {} after the restart signal; the next epoch resumes from the last "
            "checkpoint",
            worker.host, exit.status()));
        if (leaving_to_grow_)
          pause_growth(
              now, fmt::format("a worker ended with {} after the restart signal", exit.status()));
      }
      // Who died of the signal, or of another, never answers its siblings: they need not wait for
      // the whole grace.
      const bool died = (exit.signal != 0 && exit.signal != SIGKILL && exit.signal != SIGTERM) ||
                        exit.code == 128 + settings_.restart_signal;
      if (died && !running().empty())
        leave_by_ = std::min(leave_by_.value_or(now), now + settings_.siblings_s);
      if (companion != nullptr) drop_if_left(companion->job);
      break;
    }
    case Phase::running:
    case Phase::failing:
      if (!code_is_final_) code_ = std::max(code_, exit.status());
      if (exit.status() != 0) fail(now, id, exit);
      break;
    default:
      if (!code_is_final_) code_ = std::max(code_, exit.status());
  }
  advance(now);
}

void EpochMachine::fail(double now, WorkerId id, Exit exit) {
  Companion* companion = companion_of(id.place);
  // Nobody here sends KILL to a running epoch: Slurm or the kernel took the worker.
  if (companion != nullptr && exit.signal == SIGKILL)
    return lose(now, companion->job, "a worker of it was killed");
  if (phase_ == Phase::failing) return;
  first_failed_ = id;
  first_exit_ = exit;
  note("worker-failed",
       Json::object({{"place", id.place}, {"local_rank", id.local}, {"status", exit.status()}}));
  if (!settings_.kill_on_bad_exit && companions_.empty()) return;
  phase_ = Phase::failing;
  decide_by_ = now + (companions_.empty() ? 0 : settings_.blame_s);
}

void EpochMachine::lost(double now, WorkerId id) {
  now_ = now;
  Worker& worker = workers_[id];
  const bool ran = std::exchange(worker.running, false);
  worker.present = worker.ready = worker.listens = false;
  if (phase_ == Phase::over) return;
  if (Companion* companion = companion_of(id.place)) {
    if (companion->dropping) drop_if_left(companion->job);
    else if (phase_ != Phase::ending) lose(now, companion->job, "a worker's connection was lost");
  } else if (phase_ == Phase::running || phase_ == Phase::failing) {
    code_ = std::max(code_, 128 + SIGKILL);
    if (ran || phase_ == Phase::running) fail(now, id, {0, SIGKILL});
  } else if (phase_ != Phase::ending) {
    code_ = std::max(code_, 128 + SIGKILL);
    end(now, SIGTERM, now + settings_.end_timeout_s);
  }
  advance(now);
}

void EpochMachine::notice(double now, WorkerId id, int signal) {
  now_ = now;
  if (phase_ == Phase::over || phase_ == Phase::ending) return;
  if (Companion* companion = companion_of(id.place)) {
    if (companion->dropping ||
        (signal != SIGTERM && signal != SIGUSR1 && signal != settings_.restart_signal))
      return;
    give_up(now, *companion, fmt::format("Slurm sent it {}", signal_name(signal)));
    if (phase_ == Phase::running || phase_ == Phase::failing)
      begin_leaving(now, JobState::draining, now + settings_.restart_timeout_s);
    return advance(now);
  }
  // Every worker of the basic step reports it; the workers elsewhere need to hear of it once.
  const auto last = forwarded_.find(signal);
  if (last != forwarded_.end() && now - last->second < 2) return;
  forwarded_[signal] = now;
  note("signal-from-slurm", Json::object({{"signal", signal_name(signal)}}));
  std::vector<WorkerId> others;
  for (const WorkerId worker : running())
    if (companion_of(worker.place) != nullptr) others.push_back(worker);
  if (!others.empty()) act(action::SignalWorkers{std::move(others), signal});
  if (signal == SIGTERM) end(now, 0, std::nullopt);
}

void EpochMachine::step_ended(double now, JobId job, Exit exit) {
  now_ = now;
  if (phase_ == Phase::over) return;
  if (job == settings_.job) {
    // Its shims stay until they are let go: srun could not start them, or was ended.
    if (code_ == 0) code_ = exit.status() != 0 ? exit.status() : 1;
    return finish();
  }
  if (const Companion* found = companion(job);
      found != nullptr && !found->dropping && phase_ != Phase::ending)
    lose(now, job, "its step ended");
  advance(now);
}

void EpochMachine::signalled(double now, int signal) {
  now_ = now;
  if (phase_ == Phase::over) return;
  note("signal-from-user", Json::object({{"signal", signal_name(signal)}}));
  const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  if (!ends) {
    if (auto workers = running(); !workers.empty())
      act(action::SignalWorkers{std::move(workers), signal});
    return;
  }
  const bool again = phase_ == Phase::ending && kill_at_.has_value() && signal == SIGINT;
  if (running().empty() && code_ == 0) code_ = 128 + signal;
  end(now, again ? SIGKILL : signal, now + settings_.end_timeout_s);
  advance(now);
}

void EpochMachine::end(double now, int signal, std::optional<double> kill_at) {
  phase_ = Phase::ending;
  leave_by_.reset();
  decide_by_.reset();
  gather_by_.reset();
  kill_at_ = kill_at;
  if (auto workers = running(); signal != 0 && !workers.empty())
    act(action::SignalWorkers{std::move(workers), signal});
  advance(now);
}

void EpochMachine::advance(double now) {
  if (phase_ == Phase::leaving && running().empty()) {
    for (const JobId job : companions()) drop_if_left(job);
    phase_ = Phase::gathering;
    leave_by_.reset();
    gather_by_ = now + settings_.warm_timeout_s;
  }
  if (phase_ == Phase::gathering) {
    Layout layout = next_layout();
    const bool all =
        std::all_of(layout.seats.begin(), layout.seats.end(), [this](const Seat& seat) {
          const auto found = workers_.find(seat.worker);
          return found != workers_.end() && found->second.ready;
        });
    if (all) start_epoch(now, std::move(layout));
  }
  if (phase_ == Phase::running || phase_ == Phase::failing) {
    const bool done = running().empty();
    if (done && !companions_.empty() && phase_ == Phase::failing)
      return;  // the blame is still open
    if (done) return finish();
  }
  if (phase_ == Phase::running && running().size() == layout_.seats.size() && joiners_wait()) {
    set_state(JobState::ready);
    const int before = static_cast<int>(layout_.seats.size()),
              after = static_cast<int>(next_layout().seats.size());
    std::vector<Place> lent;
    for (const Companion& each : companions_)
      if (each.up && !runs_anything(each.places))
        lent.insert(lent.end(), each.places.begin(), each.places.end());
    say(fmt::format("growing from {} to {} workers ({} lent)", before, after, describe(lent)));
    begin_leaving(now, JobState::switching, now + settings_.restart_timeout_s);
    leaving_to_grow_ = true;
  }
  if (phase_ == Phase::ending && running().empty()) finish();
}

void EpochMachine::start_epoch(double now, Layout layout) {
  layout_ = std::move(layout);
  ++epoch_;
  phase_ = Phase::running;
  gather_by_.reset();
  first_failed_.reset();
  told_of_bad_exit_ = leaving_to_grow_ = false;
  epoch_since_ = now;
  code_ = 0;
  const Worker& master = workers_[layout_.seats.front().worker];
  int basic_workers = 0;
  for (const Place& place : basic_) basic_workers += place.workers;
  RunFacts facts;
  facts.job = settings_.job;
  facts.places = usable();
  facts.master_address = master.host;
  facts.master_port = master.port;
  facts.step = master.step;
  facts.gpus_per_worker = settings_.gpus_per_worker;
  facts.tells_gpus = settings_.tells_gpus;
  facts.restarts = static_cast<int>(restarts_.size());
  facts.max_restarts = settings_.max_restarts;
  action::StartWorkers start{epoch_, {}};
  for (const Seat& seat : layout_.seats) {
    Environment environment = run_environment(layout_, seat, facts);
    environment.emplace_back("SWELL_EPOCH", std::to_string(epoch_));
    environment.emplace_back("SWELL_JOB_ID", std::to_string(settings_.job));
    environment.emplace_back("SWELL_BASIC_WORKERS", std::to_string(basic_workers));
    environment.emplace_back("SWELL_RESTART_SIGNAL", signal_name(settings_.restart_signal));
    start.workers.emplace_back(seat.worker, std::move(environment));
    Worker& worker = workers_[seat.worker];
    worker.running = true;
    worker.ready = worker.listens = false;
  }
  act(std::move(start));
  stopped_s_ = stopped_since_ ? now - *stopped_since_ : 0;
  if (stopped_since_)
    say(fmt::format("{} workers started (epoch {}), {:.2f} s after the others were asked to leave",
                    layout_.seats.size(), epoch_, stopped_s_));
  stopped_since_.reset();
  note("epoch-started", Json::object({{"stopped_s", stopped_s_}}));
  const bool warming =
      allocating_ > 0 || std::any_of(companions_.begin(), companions_.end(),
                                     [](const Companion& each) { return !each.up; });
  set_state(warming ? JobState::warming : JobState::active);
}

void EpochMachine::begin_leaving(double now, JobState state, double by) {
  by = std::max(by, now);
  leave_by_ = leave_by_ ? std::min(*leave_by_, by) : by;
  if (phase_ == Phase::leaving) return;
  phase_ = Phase::leaving;
  decide_by_.reset();
  stopped_since_ = now;
  if (auto workers = running(); !workers.empty()) {
    note("signalled",
         Json::object({{"signal", signal_name(settings_.restart_signal)}, {"within_s", by - now}}));
    act(action::SignalWorkers{std::move(workers), settings_.restart_signal});
  }
  set_state(state);
}

void EpochMachine::kill_running(double now) {
  auto workers = running();
  if (workers.empty()) return;
  note("killed", Json::object({{"count", workers.size()}}));
  act(action::SignalWorkers{std::move(workers), SIGKILL});
  leave_by_ = now + settings_.end_timeout_s;
}

void EpochMachine::tick(double now) {
  now_ = now;
  if (gather_by_ && now >= *gather_by_) {
    // A shim that said nothing for so long after its program left will not come back.
    gather_by_ = now + settings_.warm_timeout_s;
    const Layout layout = next_layout();
    for (const Seat& seat : layout.seats) {
      if (workers_[seat.worker].ready) continue;
      if (Companion* found = companion_of(seat.worker.place))
        lose(now, found->job, "its workers did not come back");
      else if (code_ == 0) code_ = 1;
    }
    if (code_ != 0) end(now, SIGTERM, now + settings_.end_timeout_s);
  }
  for (const JobId job : companions())
    if (Companion* found = companion(job);
        found != nullptr && !found->up && !found->dropping && now >= found->up_by) {
      say(fmt::format("job {} did not start its step within {:.0f} s; going on without it", job,
                      settings_.warm_timeout_s));
      give_up(now, *found, "its step did not come up");
    } else if (found != nullptr && found->up && !found->dropping && !takes_part(*found) &&
               now >= found->joins_by && !no_growth().empty()) {
      const std::string why = no_growth();
      say(fmt::format("giving back {} (job {}): {}", describe(found->places), job, why));
      give_up(now, *found, why);
    }
  if (!pause_reason_.empty() && now >= pause_until_) {
    pause_reason_.clear();
    tell_no_growth();
  }
  if (leave_by_ && now >= *leave_by_) {
    say(fmt::format(
        "{} workers did not leave in time: killed; they resume from their last checkpoint",
        running().size()));
    // Who had all the time that the job asked for would not leave the next time either.
    if (stopped_since_ && now - *stopped_since_ >= settings_.restart_timeout_s)
      pause_growth(now,
                   fmt::format("workers did not leave within {:g} s of the restart signal",
                               settings_.restart_timeout_s),
                   true);
    kill_running(now);
  }
  if (decide_by_ && now >= *decide_by_) {
    decide_by_.reset();
    const bool on_lent = first_failed_ && companion_of(first_failed_->place) != nullptr;
    const bool grown = std::any_of(companions_.begin(), companions_.end(),
                                   [this](const Companion& each) { return takes_part(each); });
    // A worker that was killed says nothing of the program.
    if (on_lent ||
        (grown && first_exit_.signal != SIGKILL && now - epoch_since_ < settings_.blame_growth_s)) {
      fall_back(now, fmt::format("the program failed with {} over {} workers", code_,
                                 layout_.seats.size()));
    } else {
      code_is_final_ = true;
      end(now, settings_.kill_on_bad_exit ? SIGTERM : 0,
          settings_.kill_on_bad_exit ? std::optional(now + settings_.end_timeout_s) : std::nullopt);
    }
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    if (auto workers = running(); !workers.empty())
      act(action::SignalWorkers{std::move(workers), SIGKILL});
  }
  advance(now);
}

std::optional<double> EpochMachine::deadline() const {
  std::optional<double> next;
  const auto earliest = [&next](const std::optional<double>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  for (const auto& time : {gather_by_, leave_by_, decide_by_, kill_at_}) earliest(time);
  for (const Companion& each : companions_)
    if (!each.dropping && (!each.up || (!takes_part(each) && !no_growth().empty())))
      earliest(each.up ? each.joins_by : each.up_by);
  if (!pause_reason_.empty() && std::isfinite(pause_until_) && phase_ != Phase::over)
    earliest(pause_until_);
  return next;
}

void EpochMachine::finish() {
  if (phase_ == Phase::over) return;
  phase_ = Phase::over;
  leave_by_.reset();
  decide_by_.reset();
  kill_at_.reset();
  gather_by_.reset();
  for (Companion& each : companions_) {
    each.reason = "the program has ended";
    act(action::Release{each.job});
    releasing_.emplace(each.job, each);
  }
  companions_.clear();
  note("finished", Json::object({{"code", code_}}));
  act(action::Finish{std::clamp(code_, 0, 255)});
}

}  // namespace swell::launcher
