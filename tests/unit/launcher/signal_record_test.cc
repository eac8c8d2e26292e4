// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/signal_record.h"

#include <criterion/criterion.h>
#include <csignal>

using namespace swell::launcher;

static SignalRecord record() { return SignalRecord({SIGUSR1, 30, 3}); }

Test(signal_record, a_signal_that_several_workers_report_at_once_was_sent_once) {
  SignalRecord signals = record();
  cr_assert(signals.sent(100, SIGUSR2));
  cr_assert_not(signals.sent(101.9, SIGUSR2));
  cr_assert(signals.sent(101.9, SIGINT), "another one");
  cr_assert(signals.sent(102, SIGUSR2));
}

Test(signal_record,
     a_death_by_the_signal_or_an_error_soon_after_one_that_ends_programs_is_its_effect) {
  SignalRecord signals = record();
  signals.sent(100, SIGUSR2);
  cr_assert_eq(signals.cause_of({0, SIGUSR2}, 130), SIGUSR2);
  cr_assert_eq(signals.cause_of({128 + SIGUSR2, 0}, 110), SIGUSR2);
  cr_assert_eq(signals.cause_of({1, 0}, 110), 0, "USR2 ends no program");
  cr_assert_eq(signals.cause_of({0, SIGUSR2}, 131), 0, "too long ago");
  signals.sent(100, SIGINT);
  cr_assert_eq(signals.cause_of({1, 0}, 110), SIGINT);
  cr_assert_eq(signals.cause_of({0, 0}, 110), 0);
  cr_assert_eq(signals.cause_of({3, 0}, 110), 0, "it left for a resize");
}

Test(signal_record, signals_are_found_by_the_time_they_were_sent) {
  SignalRecord signals = record();
  signals.sent(100, SIGINT);
  signals.sent(104, SIGHUP);
  cr_assert(signals.sent_since(104) == std::vector<int>({SIGHUP}));
  cr_assert_eq(signals.sent_since(100).size(), 2u);
  cr_assert(signals.sent_within(5, 105) == std::vector<int>({SIGHUP}));
}

Test(signal_record, a_missed_signal_is_passed_on_once_and_counts_as_sent_then) {
  SignalRecord signals = record();
  signals.miss(SIGUSR1);  // asks workers to leave: those that start have no need to
  signals.miss(SIGTERM);  // ends the run
  cr_assert_not(signals.has_missed());
  signals.miss(SIGINT);
  signals.miss(SIGINT);
  cr_assert(signals.pass_missed(200) == std::set<int>({SIGINT}));
  cr_assert_not(signals.has_missed());
  cr_assert_eq(signals.cause_of({1, 0}, 210), SIGINT);
  signals.miss(SIGINT);
  signals.forget_missed();
  cr_assert(signals.pass_missed(210).empty());
}
