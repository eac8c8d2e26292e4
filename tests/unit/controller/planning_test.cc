// SPDX-License-Identifier: GPL-2.0-or-later
// What still holds of a decision that was made of an older view.
#include <criterion/criterion.h>

#include "controller/planning.h"

using namespace swell;
using namespace swell::controller;

Test(planning, a_decision_that_came_late_is_held_against_what_is_there_now) {
  policy::ClusterView then;
  then.nodes.resize(2);
  then.nodes[0].name = "node1";
  then.nodes[1].name = "node2";
  for (policy::NodeView& node : then.nodes) node.free = node.total = {8, 64, 1000};
  policy::ElasticJobView job;
  job.id = 10;
  job.may_grow = true;
  then.jobs = {job};
  policy::PendingDemand waiting;
  waiting.id = 30;
  then.queue = {waiting};
  Decided decided;
  decided.view = then;
  decided.decisions.grants = {{10, 1, {4, 4, 100}}};
  decided.decisions.reclaims = {{11, 20, 30}};
  decided.decisions.plans = {{10, {}}};
  policy::Decisions good = still_good(decided, then);
  cr_assert_eq(good.grants.size(), 1u);
  cr_assert_eq(good.reclaims.size(), 1u);
  cr_assert_eq(good.plans.size(), 1u);

  policy::ClusterView moved = then;  // node1 is gone: node2 has another number
  moved.nodes.erase(moved.nodes.begin());
  cr_assert_eq(still_good(decided, moved).grants.front().node, 0);
  policy::ClusterView full = then;
  full.nodes[1].free.gpus = 3;
  good = still_good(decided, full);
  cr_assert(good.grants.empty() && good.plans.empty());
  policy::ClusterView served = then;
  served.queue.clear();
  cr_assert(still_good(decided, served).reclaims.empty());
  policy::ClusterView changed = then;
  changed.jobs[0].companions.push_back({});
  cr_assert(still_good(decided, changed).grants.empty());
}

Test(planning, a_late_plan_for_the_same_gpus_is_for_who_still_has_them_and_may_change) {
  policy::ClusterView then;
  policy::ElasticJobView job;
  job.id = 10;
  job.may_replan = true;
  job.companions.resize(1);
  then.jobs = {job};
  Decided decided;
  decided.view = then;
  decided.decisions.plans = {{10, {}}};
  cr_assert_eq(still_good(decided, then).plans.size(), 1u);
  policy::ClusterView busy = then;
  busy.jobs[0].may_replan = false;
  cr_assert(still_good(decided, busy).plans.empty());
  policy::ClusterView fewer = then;
  fewer.jobs[0].companions[0].leaving = true;
  cr_assert(still_good(decided, fewer).plans.empty());
}
