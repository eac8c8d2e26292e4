// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/redeploy/pauses.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::redeploy;

namespace {

constexpr double kNow = 1e9;

}  // namespace

Test(pauses, nothing_is_expected_before_anything_was_measured) {
  cr_assert_not(expected_cost({}, {}, Measured::live, 1, kNow));
  cr_assert_not(expected_cost({}, {}, Measured::restart, 1, kNow));
}

Test(pauses, the_median_of_the_last_changes_of_that_way_is_expected) {
  Pauses pauses;
  for (const double pause_s : {90., 0.4, 0.5, 0.6, 20., 0.5})
    pauses.changed(Measured::live, {10 * pause_s, pause_s}, kNow);
  pauses.changed(Measured::restart, {0, 33}, kNow);
  cr_assert(*pauses.expected(Measured::live, kNow) == (Cost{5, 0.5}));
  cr_assert(*pauses.expected(Measured::restart, kNow) == (Cost{0, 33}));
  cr_assert(*pauses.last_way() == Measured::restart);
}

Test(pauses, the_time_from_start_to_first_step_counts_until_a_restart_was_measured) {
  Pauses pauses;
  cr_assert(pauses.started(12));
  cr_assert_not(pauses.started(12));
  cr_assert(*pauses.expected(Measured::restart, kNow) == (Cost{0, 12}));
  cr_assert(pauses.is_by_start(Measured::restart, kNow));
  cr_assert_not(pauses.expected(Measured::live, kNow), "a live switch does not wait for a start");
  pauses.changed(Measured::restart, {0, 20}, kNow);
  cr_assert(*pauses.expected(Measured::restart, kNow) == (Cost{0, 20}));
  cr_assert_not(pauses.is_by_start(Measured::restart, kNow));
}

Test(pauses, a_job_s_own_come_before_those_of_others) {
  Pauses own;
  ClusterPauses cluster;
  for (const int owner : {1, 2, 3}) cluster.changed(owner, Measured::live, {4, 2}, kNow);
  cr_assert(*expected_cost(own, cluster, Measured::live, 9, kNow) == (Cost{4, 2}));
  cr_assert_not(expected_cost(own, cluster, Measured::restart, 9, kNow));
  own.changed(Measured::live, {8, 1}, kNow);
  cr_assert(*expected_cost(own, cluster, Measured::live, 9, kNow) == (Cost{8, 1}));
}

Test(pauses, neither_one_owner_nor_two_decide_for_others) {
  ClusterPauses cluster;
  cluster.changed(1, Measured::live, {0, 9000}, kNow);
  cr_assert_not(cluster.expected(Measured::live, 9, kNow));
  cluster.changed(2, Measured::live, {0, 9000}, kNow);
  cr_assert_not(cluster.expected(Measured::live, 9, kNow));
  cluster.changed(3, Measured::live, {0, 1}, kNow);
  cr_assert_not(cluster.expected(Measured::live, 3, kNow), "the asking job's owner does not count");
  cluster.changed(4, Measured::live, {0, 1}, kNow);
  cr_assert(*cluster.expected(Measured::live, 9, kNow) == (Cost{0, 1}),
            "of two in the middle, the lower");
}

Test(pauses, each_owner_counts_once) {
  ClusterPauses cluster;
  cluster.changed(1, Measured::live, {0, 1}, kNow);
  cluster.changed(2, Measured::live, {0, 2}, kNow);
  for (int i = 0; i < 100; ++i) cluster.changed(3, Measured::live, {0, 900}, kNow);
  cr_assert(*cluster.expected(Measured::live, 9, kNow) == (Cost{0, 2}));
  for (int owner = 0; owner < 1000; ++owner) cluster.changed(owner, Measured::live, {0, 5}, kNow);
  cluster.changed(2000, Measured::restart, {0, 7}, kNow);
  cr_assert_eq(cluster.to_json().size(), ClusterPauses::kOwners + 1);
}

Test(pauses, older_ones_than_a_week_no_longer_count) {
  Pauses own;
  ClusterPauses cluster;
  const double later = kNow + Dated::kKept_s + 1;
  own.changed(Measured::live, {0, 90}, kNow);
  for (const int owner : {1, 2, 3}) cluster.changed(owner, Measured::live, {0, 80}, kNow);
  cr_assert(*expected_cost(own, cluster, Measured::live, 9, later - 2) == (Cost{0, 90}));
  cr_assert_not(expected_cost(own, cluster, Measured::live, 9, later));
  own.changed(Measured::live, {0, 1}, later);
  cr_assert(*expected_cost(own, cluster, Measured::live, 9, later) == (Cost{0, 1}),
            "the old one has no part in the median");
  own.changed(Measured::restart, {0, 30}, kNow);
  own.started(7);
  cr_assert_not(own.is_by_start(Measured::restart, kNow));
  cr_assert(own.is_by_start(Measured::restart, later));
}

Test(pauses, a_start_that_took_about_as_long_changes_nothing) {
  Pauses pauses;
  cr_assert(pauses.started(10));
  for (const double seconds : {10.5, 9.5, 10.0}) cr_assert_not(pauses.started(seconds));
  cr_assert(pauses.expected(Measured::restart, kNow)->pause_s == 10);
  cr_assert(pauses.started(12));
}

Test(pauses, a_measured_cost_stays_near_the_model) {
  const Cost model{20, 10};
  cr_assert(within_model({0, 0}, model) == (Cost{20 / kMostUnder, 10 / kMostUnder}));
  cr_assert(within_model({1e9, 1e9}, model) == (Cost{20 * kMostOver, 10 * kMostOver}));
  cr_assert(within_model({15, 30}, model) == (Cost{15, 30}));
}

Test(pauses, an_entry_without_a_time_is_too_old) {
  const auto read =
      Pauses::from_json(Json::parse(R"({"start_s":0,"live":[{"delay_s":0,"pause_s":5}]})").value());
  cr_assert(read.ok());
  cr_assert_not(read->expected(Measured::live, kNow));
  cr_assert_not(read->empty(), "it is saved again");
}

Test(pauses, are_read_as_they_were_written) {
  Pauses own;
  cr_assert(own.empty());
  own.started(3);
  own.changed(Measured::restart, {0, 33}, kNow);
  own.changed(Measured::live, {5, 0.5}, kNow);
  cr_assert(Pauses::from_json(own.to_json()).value() == own);
  ClusterPauses cluster;
  cluster.changed(1000, Measured::live, {5, 0.5}, kNow);
  cluster.changed(-1, Measured::restart, {0, 33}, kNow);
  cr_assert(ClusterPauses::from_json(cluster.to_json()).value() == cluster);
}

Test(pauses, damaged_ones_are_refused) {
  const auto reason = [](const char* text) {
    const auto read = Pauses::from_json(Json::parse(text).value());
    return read ? std::string() : read.error().message();
  };
  cr_assert_neq(reason("7").find("object"), std::string::npos);
  cr_assert_neq(reason(R"({"start_s":-1})").find("start_s"), std::string::npos);
  cr_assert_neq(reason(R"({"start_s":1,"live":[{"delay_s":0}]})").find("pause_s"),
                std::string::npos);
  cr_assert_neq(reason(R"({"start_s":1,"last_way":"slow"})").find("\"slow\""), std::string::npos);
  cr_assert_not(ClusterPauses::from_json(Json::object({})).ok());
}
