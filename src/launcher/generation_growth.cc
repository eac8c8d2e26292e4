// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: reasons against a growth, and its time limit.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/count_of.h"
#include "launcher/generation_machine.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

void GenerationMachine::pause_growth(double now, const std::string& why, bool for_good) {
  for_good = growth_.pause(now, why, for_good);
  out_.note("growth-paused", Json::object({{"reason", why}, {"for_good", for_good}}));
  tell_no_growth();
}

void GenerationMachine::on(double now, const event::GrowsNoMore& no_more) {
  if (!growth_.pause_reason().empty()) return;  // the run takes no GPUs now anyway
  out_.say(no_more.why + ": the job is lent no more GPUs");
  pause_growth(now, no_more.why, true);
}

std::string GenerationMachine::no_growth() const {
  if (is<Ending>()) return kEnds;
  Growth::Run run;
  run.has_started = run_.generation >= 0;
  run.may_start_large = settings_.live;
  run.is_running = is<Running>() && !is_failing();
  run.workers = run_.assignment.seats.size();
  // Several live workers can be told a step to leave at, also once they are resized by restarts.
  const bool are_told =
      is<Running>() && in<Running>()->has_begun && run_.assignment.seats.size() > 1;
  if (!is_live() && !are_told) run.deaf = run_.workers.deaf(run_.generation);
  run.has_ended_ones = is<Running>() && !is_failing() && !run_.all_train();
  run.awaits_runtime = is<Running>() && in<Running>()->awaits_runtime;
  run.signal = signal_name(settings_.restart_signal);
  return growth_.reason_against(run);
}

void GenerationMachine::on(double now, const event::TrainsAlone& alone) {
  const std::string& what = alone.what;
  const bool no_rank = alone.no_rank;
  if (is<Over>() || is<Ending>() || std::exchange(train_alone_, true)) return;
  const std::string why =
      no_rank
          ? fmt::format("{} was started without the variables that swellrun gives, such as RANK",
                        what)
          : fmt::format("the program starts workers of its own ({}), and so does swellrun", what);
  const std::string instead =
      no_rank
          ? "Leave out what takes them away (env -i, --cleanenv of a container), or pass them on"
          : "Write the training program alone: swellrun python SCRIPT [ARGUMENTS]";
  out_.note(no_rank ? "rank-missing" : "launcher-found",
            Json::object({{"what", what}, {"node_id", alone.worker.node}}));
  out_.say(fmt::format(
      "{}: {} {}. The job is lent no GPUs", why,
      run_.assignment.seats.size() > 1
          ? fmt::format(
                "each of the {} is a training by itself, and all of them write the same checkpoint.",
                count_of(run_.assignment.seats.size(), "worker"))
          : std::string("with more GPUs, each worker would be a training by itself."),
      instead));
  pause_growth(now, why, true);
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job); each != nullptr && !each->reclaimed)
      give_back(now, *each, why);
  advance(now);
}

void GenerationMachine::tell_no_growth() {
  std::string why = no_growth();
  if (growth_.is_news(why)) out_.add(action::Tell{status()});
  growth_.told(std::move(why));
}

/// Returns by when a companion of the newest offers must have become part of the training.
double GenerationMachine::grown_by() const {
  return settings_.grow_s > 0 ? offered_.since + settings_.grow_s : kNever;
}

std::string GenerationMachine::took_too_long() const {
  return fmt::format("the growth took longer than {:g} s (grow={:g})", settings_.grow_s,
                     settings_.grow_s);
}

/// Ends the growth of the GPUs that take part, since training runs on them.
void GenerationMachine::end_growth() {
  for (HeldCompanion& each : run_.companions.held())
    if (run_.takes_part(each)) each.grown_by = kNever;
}

/// Returns whether the companion has yet to become part of the training within a limited time. The
/// first generation is not a growth, even if the job's own workers come up after lent ones.
bool GenerationMachine::is_joining(const HeldCompanion& companion) const {
  return !companion.reclaimed && std::isfinite(companion.grown_by) &&
         (run_.has_begun() || !companion.up);
}

/// Returns when the first companion that is joining has had its time; nullopt: none is joining, or
/// the present phase decides.
std::optional<double> GenerationMachine::growth_limit() const {
  if (is<LiveSwitch>() || is<Ending>() || is<Over>() || is_failing() || is_ending_by_itself())
    return std::nullopt;
  std::optional<double> limit;
  for (const HeldCompanion& each : run_.companions.held())
    if (is_joining(each)) limit = std::min(limit.value_or(each.grown_by), each.grown_by);
  return limit;
}

/// Gives up a growth that has had its time: its GPUs go back, and programs that are not ready on
/// them are killed, and started again without them. Workers that were asked to leave for it keep
/// their time for that, and begin again on what the run had before.
void GenerationMachine::keep_growth_limit(double now) {
  const auto limit = growth_limit();
  if (!limit || now < *limit) return;
  bool is_late = false, runs_there = false;
  for (const JobId job : run_.companions.jobs()) {
    HeldCompanion* each = run_.companions.find(job);
    if (each == nullptr || !is_joining(*each) || now < each->grown_by) continue;
    if (const std::string useless = why_useless(*each); !useless.empty()) {
      give_back(now, *each, useless);
      continue;
    }
    is_late = true;
    runs_there = runs_there || run_.workers.train_on(each->nodes);
    out_.say(
        fmt::format("giving back {} (job {}): {}", describe(each->nodes), job, took_too_long()));
    reclaim(now, *each, took_too_long());
  }
  if (!is_late) return;
  pause_growth(now, took_too_long());
  if (!runs_there || !is<Running>()) return;
  out_.say(
      "the program is not ready there: it is started again as before, from the last checkpoint");
  if (recovery_) recovery_->by = now + settings_.recover_s;
  restart_killed(now, Purpose::give_back, now);
}

/// Handles workers that have not left for a growth or a user's signal. No job needs them to leave,
/// so GPUs of a growth go back, and no worker is killed for it: if none has left, they train on. If
/// some have, the others get more time: they may wait for those in a collective, or still write the
/// checkpoint.
void GenerationMachine::call_off_leaving(double now) {
  Restart& restart = *in<Restart>();
  const bool grows = restart.what().purpose == Purpose::grow;
  const std::string why =
      fmt::format("workers did not leave within {:g} s of {}", settings_.restart_timeout_s,
                  signal_name(settings_.restart_signal));
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job);
        grows && each != nullptr && !each->reclaimed && !run_.takes_part(*each))
      reclaim(now, *each, why);
  if (grows)
    out_.note("growth-called-off", Json::object({{"running", run_.workers.running().size()}}));
  const std::string no_more = grows ? "no more GPUs; " : "";
  if (run_.all_train()) {
    out_.say(fmt::format("{}: {}they train on", why, no_more));
    return_to_running();
    in<Running>()->late_until = now + settings_.late_s;
    progress_.rest(now);
    set_state(JobState::active);
  } else {
    out_.say(
        fmt::format("{} of {} {}, but the others have: {}in {:g} s those that are left "
                    "are killed, and all resume from their last checkpoint",
                    run_.workers.running().size(), run_.assignment.seats.size(), why, no_more,
                    settings_.late_s));
    restart.must_leave();
    restart.extend(now + settings_.late_s);
  }
  if (grows && growth_.pause_reason().empty()) pause_growth(now, why);
}

}  // namespace swell::launcher
