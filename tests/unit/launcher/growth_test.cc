// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/growth.h"

#include <criterion/criterion.h>

using namespace swell::launcher;

namespace {

Growth::Run running(std::size_t deaf) {
  return {.has_started = true, .is_running = true, .workers = 4, .deaf = deaf, .signal = "USR1"};
}

}  // namespace

Test(growth, each_pause_is_twice_as_long_and_the_last_has_no_end) {
  Growth growth({.growth_pause_s = 100, .max_pauses = 2});
  cr_assert_not(growth.pause(0, "first", false));
  cr_assert_float_eq(growth.resumes_at().value(), 100, 1e-9);
  cr_assert_not(growth.resume_if_due(99));
  cr_assert(growth.resume_if_due(100));
  cr_assert_not(growth.pause(100, "second", false));
  cr_assert_float_eq(growth.resumes_at().value(), 300, 1e-9);
  cr_assert(growth.pause(300, "third", false));
  cr_assert_not(growth.resumes_at().has_value());
  cr_assert_not(growth.resume_if_due(1e12));
}

Test(growth, a_pause_s_reason_comes_before_deaf_workers) {
  Growth growth({});
  cr_assert_eq(growth.reason_against(running(1)),
               std::string("1 of 4 workers has no handler for USR1 yet"));
  growth.pause(0, "it failed", false);
  cr_assert_eq(growth.reason_against(running(1)), std::string("it failed"));
  growth.resume_if_due(1e6);
  cr_assert_eq(growth.reason_against(running(0)), std::string());
}

Test(growth, a_program_may_decline_and_take_it_back) {
  Growth growth({});
  cr_assert(growth.declined("it cannot save"));
  cr_assert_not(growth.declined("it cannot save"));
  cr_assert_eq(growth.reason_against(running(0)), std::string("it cannot save"));
  growth.pause(0, "it failed", false);
  cr_assert_eq(growth.reason_against(running(0)), std::string("it failed"));
  growth.resume_if_due(1e6);
  cr_assert(growth.declined(""));
  cr_assert_eq(growth.reason_against(running(0)), std::string());
}

Test(growth, a_run_that_has_not_started_takes_no_gpus) {
  Growth growth({});
  cr_assert_eq(growth.reason_against({}), std::string("its workers have not started yet"));
  cr_assert_eq(growth.reason_against({.may_start_large = true}), std::string());
}

Test(growth, the_controller_hears_that_there_is_a_reason_and_not_each_count) {
  Growth growth({});
  cr_assert_not(growth.is_news(""));
  cr_assert(growth.is_news("3 of 4 workers"));
  growth.told("3 of 4 workers");
  cr_assert_not(growth.is_news("2 of 4 workers"));
  growth.pause(0, "it failed", false);
  cr_assert(growth.is_news("it failed"));
  growth.told("it failed");
  cr_assert(growth.is_news(""));
}

Test(growth, a_refusal_is_new_once) {
  Growth growth({});
  cr_assert(growth.is_new_refusal("busy"));
  cr_assert_not(growth.is_new_refusal("busy"));
  cr_assert(growth.is_new_refusal("Invalid qos"));
}
