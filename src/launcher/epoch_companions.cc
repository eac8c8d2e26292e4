// SPDX-License-Identifier: GPL-2.0-or-later
// Of the epoch machine: companions come and go, and what it knows of places and workers.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "launcher/epoch_machine.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

void EpochMachine::grow(double, const control::Grow& grow) {
  const std::string& pause = growth_.pause_reason();
  if (is<Over>() || is<Ending>() || is_failing() || !pause.empty()) {
    const std::string why = pause.empty() ? "the job is ending" : pause;
    control::GrowDone done;
    for (const control::Offer& offer : grow.offers) done.results.push_back({offer.nonce, 0, why});
    return act(action::Tell{std::move(done)});
  }
  ++allocating_;
  act(action::Allocate{grow});
  if (is<Running>()) set_state(JobState::warming);
}

void EpochMachine::allocated(double now, const std::vector<Granted>& results) {
  allocating_ = std::max(0, allocating_ - 1);
  control::GrowDone done;
  for (const Granted& result : results)
    done.results.push_back({result.nonce, result.job, result.reason});
  act(action::Tell{std::move(done)});
  for (const Granted& result : results) {
    if (result.job == 0) {
      note("companion-refused", Json::object({{"reason", result.reason}}));
      if (growth_.is_new_refusal(result.reason))
        say("GPUs were offered, but Slurm refused them: " + result.reason);
      continue;
    }
    Companion made;
    made.job = result.job;
    made.up_by = now + settings_.warm_timeout_s;
    made.places = result.places;
    for (Place& place : made.places) {
      place.id = next_place_++;
      place.job = result.job;
    }
    companions_.push_back(made);
    note("companion-allocated", Json::object({{"companion", result.job}}));
    if (is<Over>() || is<Ending>()) give_up(now, companions_.back(), "the job is ending");
    else act(action::StartStep{made.job, made.places});
  }
  if (!is_warming() && state_ == JobState::warming) set_state(JobState::active);
}

/// Whether GPUs that were offered are on the way.
bool EpochMachine::is_warming() const {
  return allocating_ > 0 || std::any_of(companions_.begin(), companions_.end(),
                                        [](const Companion& each) { return !each.up; });
}

void EpochMachine::shrink(double now, const control::Shrink& shrink) {
  bool running_ones = false;
  for (const JobId job : shrink.companions) {
    Companion* found = companion(job);
    if (found == nullptr) {
      if (!releasing_.contains(job))
        act(action::Tell{control::Released{job, "this agent does not hold it"}});
      continue;
    }
    const double by = now + std::min(settings_.restart_timeout_s,
                                     std::max(0.0, shrink.deadline_s - settings_.margin_s));
    found->leave_by = found->dropping ? std::min(found->leave_by, by) : by;
    if (!found->dropping) {
      say(fmt::format("giving back {} (job {}): {}", describe(found->places), job, shrink.reason));
      give_up(now, *found, shrink.reason);
    }
    running_ones = running_ones || companion(job) != nullptr;  // it still has workers that run
  }
  if (running_ones) {
    const double by = now + std::min(settings_.restart_timeout_s,
                                     std::max(0.0, shrink.deadline_s - settings_.margin_s));
    if (Ending* ending = in<Ending>()) ending->kill_at = std::min(ending->kill_at.value_or(by), by);
    else if (is<Switching>()) make_way(by);
    else if (!is<Over>() && !is_live()) begin_leaving(now, JobState::draining, by);
  }
  advance(now);
}

void EpochMachine::give_up(double, Companion& companion, const std::string& reason) {
  companion.dropping = true;
  companion.reason = reason;
  drop_if_left(companion.job);
}

void EpochMachine::lose(double now, JobId job, const std::string& why) {
  Companion* found = companion(job);
  if (found == nullptr || found->dropping) return;
  const bool took_part =
      trains_on(found->places) ||
      (is_failing() && companion_of(in<Running>()->failure->worker.place) == found);
  const std::vector<Place> places = found->places;
  note("companion-lost", Json::object({{"companion", job}, {"reason", why}}));
  say(fmt::format("lost job {} ({}): {}", job, describe(places), why));
  // Its other workers may still run; they are killed with the rest of the epoch.
  give_up(now, *found, why);
  bool in_epoch = took_part;
  for (const Seat& seat : layout_.seats)
    for (const Place& place : places) in_epoch = in_epoch || seat.worker.place == place.id;
  if (!in_epoch || !is<Running>()) return;
  restarts_.push_back(now);
  while (!restarts_.empty() && restarts_.front() < now - settings_.restart_window_s)
    restarts_.pop_front();
  if (static_cast<int>(restarts_.size()) > settings_.max_restarts) {
    const std::string count = fmt::format("{} losses of lent GPUs within {:.0f} s",
                                          restarts_.size(), settings_.restart_window_s);
    restarts_.clear();
    return fall_back(now, count);
  }
  phase_ = Leaving{now + settings_.end_timeout_s, now, false, false};
  kill_running(now);
  set_state(JobState::draining);
}

/// On over the basic demand alone, from the last checkpoint.
void EpochMachine::fall_back(double now, const std::string& why) {
  pause_growth(now, why);
  say(why + ": on with the job's own GPUs, from the last checkpoint");
  for (const JobId job : companions())
    if (Companion* each = companion(job); each != nullptr && !each->dropping)
      give_up(now, *each, why);
  phase_ = Leaving{now, now, false, false};
  code_ = 0;
  set_state(JobState::draining);
  kill_running(now);
}

void EpochMachine::pause_growth(double now, const std::string& why, bool for_good) {
  for_good = growth_.pause(now, why, for_good);
  note("growth-paused", Json::object({{"reason", why}, {"for_good", for_good}}));
  tell_no_growth();
}

std::string EpochMachine::no_growth() const {
  Growth::Run run;
  run.has_started = epoch_ >= 0;
  run.is_running = is<Running>() && !is_failing();
  run.workers = layout_.seats.size();
  if (!is_live())
    for (const auto& [id, worker] : workers_)
      run.deaf += worker.running && worker.listens != epoch_;
  run.awaits_runtime = is<Running>() && in<Running>()->awaits_runtime;
  run.signal = signal_name(settings_.restart_signal);
  return growth_.reason_against(run);
}

void EpochMachine::tell_no_growth() {
  std::string why = no_growth();
  if (growth_.is_news(why)) act(action::Tell{status()});
  growth_.told(std::move(why));
}

bool EpochMachine::takes_part(const Companion& companion) const {
  return std::any_of(layout_.seats.begin(), layout_.seats.end(), [&](const Seat& seat) {
    return std::any_of(companion.places.begin(), companion.places.end(),
                       [&](const Place& place) { return place.id == seat.worker.place; });
  });
}

bool EpochMachine::drop_if_left(JobId job) {
  const auto found = std::find_if(companions_.begin(), companions_.end(),
                                  [job](const Companion& c) { return c.job == job; });
  if (found == companions_.end() || !found->dropping || runs_anything(found->places)) return false;
  for (const Place& place : found->places)
    for (int local = 0; local < place.workers; ++local) workers_.erase({place.id, local});
  releasing_.emplace(job, *found);
  companions_.erase(found);
  act(action::Release{job});
  return true;
}

void EpochMachine::released(double, JobId job) {
  const auto found = releasing_.find(job);
  if (found == releasing_.end()) return;
  note("companion-released", Json::object({{"companion", job}, {"reason", found->second.reason}}));
  act(action::Tell{control::Released{job, found->second.reason}});
  releasing_.erase(found);
}

/// Whether a restart would add workers, and nobody who is still on the way is worth waiting for.
bool EpochMachine::joiners_wait() const {
  if (allocating_ > 0 || !no_growth().empty()) return false;
  for (const Companion& each : companions_)
    if (!each.up && !each.dropping) return false;
  return next_layout().seats.size() > layout_.seats.size();
}

EpochMachine::Companion* EpochMachine::companion(JobId job) {
  for (Companion& each : companions_)
    if (each.job == job) return &each;
  return nullptr;
}

EpochMachine::Companion* EpochMachine::companion_of(int place_id) {
  for (Companion& each : companions_)
    for (const Place& place : each.places)
      if (place.id == place_id) return &each;
  return nullptr;
}

bool EpochMachine::is_basic(int place) const {
  return std::any_of(basic_.begin(), basic_.end(),
                     [place](const Place& each) { return each.id == place; });
}

/// Whether programs of the epoch that trains run there.
bool EpochMachine::trains_on(const std::vector<Place>& places) const {
  for (const auto& [id, worker] : workers_)
    for (const Place& place : places)
      if (id.place == place.id && worker.running) return true;
  return false;
}

bool EpochMachine::runs_anything(const std::vector<Place>& places) const {
  if (trains_on(places)) return true;
  for (const auto& [program, by] : others_)
    for (const Place& place : places)
      if (program.second.place == place.id) return true;
  return false;
}

std::vector<WorkerId> EpochMachine::running() const {
  std::vector<WorkerId> found;
  for (const auto& [id, worker] : workers_)
    if (worker.running) found.push_back(id);
  return found;
}

std::vector<Place> EpochMachine::usable() const {
  std::vector<Place> places = basic_;
  for (const Companion& each : companions_)
    if (each.up && !each.dropping)
      places.insert(places.end(), each.places.begin(), each.places.end());
  return places;
}

Layout EpochMachine::next_layout() const {
  int basic = 0, there = 0;
  for (const Place& place : basic_) basic += place.gpus;
  const std::vector<Place> places = usable();
  for (const Place& place : places) there += place.gpus;
  return lay_out(places, settings_.gpus_per_worker, allowed_gpus(there, basic, settings_.sizes));
}

control::Status EpochMachine::status() const {
  control::Status status;
  status.state = state_;
  status.epoch = std::max(0, epoch_);
  status.workers = static_cast<int>(layout_.seats.size());
  status.stopped_s = stopped_s_;
  status.no_growth = no_growth();
  status.switched = switched_;
  return status;
}

std::vector<JobId> EpochMachine::companions() const {
  std::vector<JobId> jobs;
  for (const Companion& each : companions_) jobs.push_back(each.job);
  return jobs;
}

void EpochMachine::set_state(JobState state) {
  state_ = state;
  growth_.told(no_growth());
  act(action::Tell{status()});
}

void EpochMachine::say(std::string line) { act(action::Say{std::move(line)}); }

void EpochMachine::note(const std::string& event, Json details) {
  details.set("epoch", std::max(0, epoch_));
  details.set("workers", static_cast<int>(layout_.seats.size()));
  Json gpus = Json::array();
  std::vector<Place> places = basic_;
  for (const Companion& each : companions_)
    places.insert(places.end(), each.places.begin(), each.places.end());
  for (const Place& place : places)
    gpus.append(Json::object({{"job", place.job}, {"node", place.node}, {"gpus", place.gpu_list}}));
  details.set("gpus", gpus);
  act(action::Note{event, std::move(details)});
}

std::vector<action::Any> EpochMachine::take() { return std::exchange(actions_, {}); }

}  // namespace swell::launcher
