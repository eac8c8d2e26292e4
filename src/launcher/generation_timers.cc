// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: its timers. Each says in one place when it is due and what is
// done.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <fmt/format.h>

#include "launcher/generation_machine.h"

namespace swell::launcher {

namespace {

using Due = std::optional<double>;

void earliest(Due& first, const Due& time) {
  if (time && (!first || *time < *first)) first = time;
}

}  // namespace

const GenerationMachine::Timers& GenerationMachine::timers() {
  static const Timers timers = {
      // Shims of the next generation did not come back.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Gathering>() ? self.in<Gathering>()->by : std::nullopt;
       },
       [](GenerationMachine& self, double now) { self.gathering_is_late(now); }},
      // Slurm has not requeued the job.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Gathering>() ? self.in<Gathering>()->requeued_by : std::nullopt;
       },
       [](GenerationMachine& self, double now) {
         self.stay(now, "the job was not requeued in time");
       }},
      // The first generation has waited for lent GPUs: advance() starts it.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Gathering>() ? self.in<Gathering>()->begins_by : std::nullopt;
       },
       [](GenerationMachine&, double) {}},
      // A companion's step did not come up, or the companion could not join.
      {[](const GenerationMachine& self) -> Due {
         Due first;
         for (const HeldCompanion& each : self.run_.companions.held())
           if (!each.reclaimed && (!each.up || !self.why_useless(each).empty()))
             earliest(first, each.up ? each.joins_by : each.up_by);
         return first;
       },
       [](GenerationMachine& self, double now) { self.companions_are_late(now); }},
      // Companions that are up have waited for others that are not.
      {[](const GenerationMachine& self) -> Due {
         Due first;
         if (self.run_.waits_for_stragglers())
           for (const HeldCompanion& each : self.run_.companions.held())
             earliest(first, each.waits_until);
         return first;
       },
       [](GenerationMachine& self, double now) {
         for (HeldCompanion& each : self.run_.companions.held())
           if (each.waits_until && now >= *each.waits_until) each.waits_until.reset();
       }},
      // A growth took longer than the owner allows.
      {[](const GenerationMachine& self) { return self.growth_limit(); },
       [](GenerationMachine& self, double now) { self.keep_growth_limit(now); }},
      // A pause of growth ends.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Over>() ? std::nullopt : self.growth_.resumes_at();
       },
       [](GenerationMachine& self, double now) {
         if (self.growth_.resume_if_due(now)) self.tell_no_growth();
       }},
      // Workers did not leave.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Restart>() ? Due(self.in<Restart>()->deadline()) : std::nullopt;
       },
       [](GenerationMachine& self, double now) { self.leaving_is_late(now); }},
      // Workers that might have left late stay.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Running>() ? self.in<Running>()->late_until : std::nullopt;
       },
       [](GenerationMachine& self, double) {
         self.in<Running>()->late_until.reset();
         self.out_.add(
             action::SignalWorkers{self.run_.workers.running(), control::WorkerSignal::kStay});
       }},
      // The job itself is about to end.
      {[](const GenerationMachine& self) { return self.leaves_at(); },
       [](GenerationMachine& self, double now) {
         self.leave_before_end(
             now, fmt::format("the job ends in {:.0f} s", *self.limit_.ends_at - now), true);
       }},
      // No later event has explained a failure.
      {[](const GenerationMachine& self) -> Due {
         return self.is_failing() ? Due(self.in<Running>()->failure->decide_by) : std::nullopt;
       },
       [](GenerationMachine& self, double now) { self.decide(now); }},
      // Programs that could not begin did not leave.
      {[](const GenerationMachine& self) -> Due {
         const Running* one = self.in<Running>();
         return one != nullptr && !one->failure && !one->not_begun.empty() ? Due(one->not_begun_by)
                                                                           : std::nullopt;
       },
       [](GenerationMachine& self, double now) { self.begin_otherwise(now); }},
      // A program that was started again after a failure is not ready.
      {[](const GenerationMachine& self) { return self.holds_until(); },
       [](GenerationMachine& self, double now) { self.give_up_recovery(now); }},
      // Programs that do not say that they are ready are sent the signals that others missed.
      {[](const GenerationMachine& self) { return self.passes_missed_at(); },
       [](GenerationMachine& self, double now) { self.pass_missed(now); }},
      // The training makes no step any more.
      {[](const GenerationMachine& self) { return self.hangs_at(); },
       [](GenerationMachine& self, double now) { self.restart_hung(now); }},
      // The programs have had time to end for a user's signal that spoiled a switch.
      {[](const GenerationMachine& self) -> Due {
         const Running* one = self.in<Running>();
         return one != nullptr && !one->failure ? one->settles_at : std::nullopt;
       },
       [](GenerationMachine& self, double now) {
         self.in<Running>()->settles_at.reset();
         if (!self.is_live() && self.run_.all_train())
           self.reclaim_by_leaving(now, "no other switch is tried");
       }},
      // The coordinator did not say at which step workers leave: each is asked by itself.
      {[](const GenerationMachine& self) { return self.leaving_.deadline(); },
       [](GenerationMachine& self, double now) {
         self.leaving_.give_up();
         self.advance(now);
       }},
      // No shim has said that Slurm sent a signal for which a switch failed.
      {[](const GenerationMachine& self) -> Due {
         const LiveSwitch* one = self.in<LiveSwitch>();
         return one != nullptr ? one->failures().judged_at() : std::nullopt;
       },
       [](GenerationMachine& self, double now) {
         const LiveSwitch& one = *self.in<LiveSwitch>();
         self.on(now, event::Switched{one.order().what.to, one.failures().outcome()});
       }},
      // A live switch takes too long, or has not answered after it was called off.
      {[](const GenerationMachine& self) -> Due {
         const LiveSwitch* one = self.in<LiveSwitch>();
         return one != nullptr ? Due(one->late_at()) : std::nullopt;
       },
       [](GenerationMachine& self, double now) {
         LiveSwitch& one = *self.in<LiveSwitch>();
         if (const auto outcome = one.late(self.took_too_long()))
           self.on(now, event::Switched{one.order().what.to, *outcome});
       }},
      // A live program has not begun with Swell's runtime.
      {[](const GenerationMachine& self) -> Due {
         const Running* one = self.in<Running>();
         return one != nullptr && one->awaits_runtime ? Due(self.growth_.joins_by(one->since))
                                                      : std::nullopt;
       },
       [](GenerationMachine& self, double) {
         self.in<Running>()->awaits_runtime = false;
         self.tell_no_growth();
         self.out_.say(
             "live mode: the program has not begun with Swell's runtime; it is resized by restarts "
             "until it does");
       }},
      // Old programs still hold GPUs that go back, and there is no time for another switch.
      {[](const GenerationMachine& self) -> Due {
         const Due drain = self.is_live() ? self.run_.drain_by() : std::nullopt;
         return drain ? Due(*drain - self.settings_.min_live_s) : std::nullopt;
       },
       [](GenerationMachine& self, double now) {
         self.reclaim_by_leaving(now, "there is no time for another switch");
       }},
      // Programs of another generation than the one that trains are killed.
      {[](const GenerationMachine& self) -> Due {
         Due first;
         for (const auto& [program, by] : self.run_.workers.others())
           if (std::isfinite(by)) earliest(first, by);
         return first;
       },
       [](GenerationMachine& self, double now) {
         for (auto& [program, by] : self.run_.workers.others()) {
           if (now < by) continue;
           by = now + self.settings_.end_timeout_s;
           self.out_.add(action::SignalWorkers{{program.second}, SIGKILL, program.first});
         }
       }},
      // GPUs go back, and workers did not end with those that ended by themselves.
      {[](const GenerationMachine& self) -> Due {
         const Running* one = self.in<Running>();
         return one != nullptr && !one->failure ? one->ask_at : std::nullopt;
       },
       [](GenerationMachine& self, double now) {
         self.begin_restart(now, Purpose::give_back, self.in<Running>()->leave_by);
       }},
      // Workers did not end with the run.
      {[](const GenerationMachine& self) -> Due {
         return self.is<Ending>() ? self.in<Ending>()->kill_at : std::nullopt;
       },
       [](GenerationMachine& self, double) {
         self.in<Ending>()->kill_at.reset();
         if (auto workers = self.run_.workers.running(); !workers.empty())
           self.out_.add(action::SignalWorkers{std::move(workers), SIGKILL});
       }},
      // Workers did not end with the run, and their GPUs go back.
      {[](const GenerationMachine& self) -> Due {
         Due first;
         if (self.is<Ending>())
           for (const HeldCompanion& each : self.run_.companions.held())
             if (each.reclaimed && std::isfinite(each.leave_by)) earliest(first, each.leave_by);
         return first;
       },
       [](GenerationMachine& self, double now) {
         for (HeldCompanion& each : self.run_.companions.held())
           if (each.reclaimed && now >= each.leave_by) self.kill_there(now, each);
       }},
  };
  return timers;
}

void GenerationMachine::tick(double now) {
  timers().fire_due(*this, now);
  advance(now);
}

std::optional<double> GenerationMachine::deadline() const { return timers().deadline(*this); }

/// A shim that is silent for this time after its program left will not come back.
void GenerationMachine::gathering_is_late(double now) {
  in<Gathering>()->by = now + settings_.warm_timeout_s;
  const RankAssignment assignment = planner_.next(run_);
  std::string silent;
  for (const Seat& seat : assignment.seats) {
    if (run_.workers[seat.worker].ready) continue;
    if (HeldCompanion* found = run_.companions.of_node(seat.worker.node))
      lose(now, found->job, "its workers did not come back");
    else silent = run_.workers[seat.worker].host;
  }
  if (silent.empty() && code_ == 0) return;
  if (code_ == 0)
    out_.say(fmt::format("a worker of the job's own on {} has not come back within {:g} s", silent,
                         settings_.warm_timeout_s));
  code_ = std::max(code_, 1);
  end(now, SIGTERM, now + settings_.end_timeout_s);
}

void GenerationMachine::companions_are_late(double now) {
  for (const JobId job : run_.companions.jobs()) {
    HeldCompanion* found = run_.companions.find(job);
    if (found == nullptr) continue;
    if (!found->up && !found->reclaimed && now >= found->up_by) {
      out_.say(fmt::format("job {} did not start its step within {:.0f} s; going on without it",
                           job, settings_.warm_timeout_s));
      found->failed = true;
      reclaim(now, *found, "its step did not come up");
    } else if (found->up && now >= found->joins_by) {
      if (const std::string why = why_useless(*found); !why.empty()) give_back(now, *found, why);
    }
  }
}

}  // namespace swell::launcher
