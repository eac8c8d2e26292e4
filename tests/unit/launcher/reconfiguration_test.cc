// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/reconfiguration.h"

#include <criterion/criterion.h>

using namespace swell::launcher;

static SwitchOutcome failed_in(SwitchPhase phase) {
  SwitchOutcome outcome;
  outcome.phase = phase;
  return outcome;
}

Test(reconfiguration, a_switch_is_prepared_once_the_old_programs_are_being_stopped) {
  SwitchProgress progress;
  cr_assert(progress.enter(1, SwitchPhase::prepare));
  cr_assert_not(progress.is_prepared());
  cr_assert(progress.enter(2, SwitchPhase::quiesce));
  cr_assert(progress.enter(3, SwitchPhase::move));
  cr_assert_eq(progress.prepared_at(), 2);
  cr_assert_not(progress.is_committing());
}

Test(reconfiguration, a_commit_is_news_once_whatever_is_heard_after_it) {
  SwitchProgress progress;
  cr_assert(progress.enter(1, SwitchPhase::commit));
  cr_assert(progress.enter(2, SwitchPhase::quiesce), "it was on its way");
  cr_assert_not(progress.enter(3, SwitchPhase::commit));
  cr_assert(progress.is_committing());
  cr_assert_eq(progress.prepared_at(), 1);
}

Test(reconfiguration, the_first_cause_of_a_cancelled_switch_holds) {
  SwitchProgress progress;
  cr_assert(progress.call_off(CallOffCause::gpus_reclaimed, "GPUs go back"));
  cr_assert_not(progress.call_off(CallOffCause::too_slow, "it took too long"));
  cr_assert_str_eq(progress.called_off()->why.c_str(), "GPUs go back");
}

Test(reconfiguration, only_a_cause_of_its_own_speaks_against_the_next_growth) {
  for (const auto cause :
       {CallOffCause::next_ended, CallOffCause::too_slow, CallOffCause::growth_limit})
    cr_assert(CalledOff({cause, ""}).blames_growth());
  for (const auto cause : {CallOffCause::worker_ended, CallOffCause::gpus_reclaimed})
    cr_assert_not(CalledOff({cause, ""}).blames_growth());
}

Test(reconfiguration, the_end_of_a_switch_says_what_can_go_on) {
  const auto end = [](const SwitchProgress& one, const SwitchOutcome& outcome,
                      Purpose purpose = Purpose::grow,
                      bool all_listen = true) { return one.end(outcome, purpose, all_listen); };
  SwitchProgress progress;
  SwitchOutcome small = failed_in(SwitchPhase::prepare);
  small.lacks_room = true;
  cr_assert_eq(end(progress, small), SwitchEnd::lacks_room);
  cr_assert_eq(end(progress, small, Purpose::replan), SwitchEnd::trains_on);
  cr_assert_eq(end(progress, small, Purpose::grow, false), SwitchEnd::trains_on);
  progress.enter(1, SwitchPhase::quiesce);
  SwitchOutcome silent = failed_in(SwitchPhase::quiesce);
  cr_assert_eq(end(progress, silent), SwitchEnd::trains_on);
  silent.is_silent = true;
  cr_assert_eq(end(progress, silent), SwitchEnd::silent);
  progress.enter(2, SwitchPhase::secure);
  cr_assert_eq(end(progress, failed_in(SwitchPhase::secure)), SwitchEnd::trains_on);
  progress.enter(3, SwitchPhase::move);
  cr_assert_eq(end(progress, failed_in(SwitchPhase::move)), SwitchEnd::state_released);
  cr_assert(progress.let_go());
  cr_assert_not(progress.let_go());
  cr_assert_eq(end(progress, failed_in(SwitchPhase::move)), SwitchEnd::lent_left);
  SwitchOutcome done;
  done.committed = true;
  cr_assert_eq(end(progress, done), SwitchEnd::committed);
}

Test(reconfiguration, programs_that_do_not_stop_in_time_are_silent_though_it_was_cancelled) {
  for (const auto cause : {CallOffCause::too_slow, CallOffCause::growth_limit}) {
    SwitchProgress progress;
    progress.enter(1, SwitchPhase::quiesce);
    progress.call_off(cause, "it took too long");
    cr_assert_eq(progress.end(failed_in(SwitchPhase::quiesce), Purpose::give_back, true),
                 cause == CallOffCause::too_slow ? SwitchEnd::silent : SwitchEnd::trains_on);
  }
}

Test(reconfiguration, the_texts_of_a_cancelled_switch_name_its_phase) {
  SwitchOutcome outcome = failed_in(SwitchPhase::quiesce);
  outcome.called_off_for("GPUs go back");
  cr_assert_str_eq(outcome.brief.c_str(), "called off in quiesce: GPUs go back");
  cr_assert_str_eq(outcome.summary.c_str(), "the switch was called off: GPUs go back");
  cr_assert_str_empty(SwitchOutcome().phase_text());
}
