// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/held_companions.h"

#include <criterion/criterion.h>

#include "support/worker_nodes.h"

using namespace swell::launcher;

static HeldCompanions held() { return HeldCompanions({worker_node(3, 5, "node1", 2)}); }

Test(held_companions, each_node_gets_an_id_that_is_not_used_again) {
  HeldCompanions companions = held();
  cr_assert_eq(companions.add(9, {worker_node(0, 0, "node2", 4)}).nodes[0].id, 4);
  companions.release(9);
  const HeldCompanion& next = companions.add(10, {worker_node(0, 0, "node2", 4)});
  cr_assert_eq(next.nodes[0].id, 5);
  cr_assert_eq(next.nodes[0].job, 10);
  cr_assert_null(companions.of_node(4));
  cr_assert_eq(companions.of_node(5)->job, 10);
  cr_assert(companions.is_basic(3));
  cr_assert_not(companions.is_basic(5));
  cr_assert_eq(companions.basic_gpus(), 2);
}

Test(held_companions, only_nodes_of_companions_that_are_up_and_stay_are_usable) {
  HeldCompanions companions = held();
  companions.add(9, {worker_node(0, 0, "node2", 4)}).up = true;
  companions.add(10, {worker_node(0, 0, "node3", 4)});
  cr_assert_eq(companions.nodes().size(), 3u);
  cr_assert_eq(companions.usable().size(), 2u);
  companions.find(9)->reclaimed = true;
  cr_assert_eq(companions.usable().size(), 1u);
  cr_assert_eq(companions.usable()[0].name, "node1");
}

Test(held_companions, a_released_companion_is_known_until_slurm_has_ended_it) {
  HeldCompanions companions = held();
  companions.add(9, {worker_node(0, 0, "node2", 4)}).reason = "needed";
  companions.release(9);
  cr_assert(companions.jobs().empty());
  cr_assert_null(companions.find(9));
  cr_assert(companions.is_releasing(9));
  cr_assert_eq(companions.released(9)->reason, "needed");
  cr_assert_not(companions.is_releasing(9));
  cr_assert_not(companions.released(9).has_value());
}
