// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/worker_table.h"

#include <criterion/criterion.h>

#include "support/worker_nodes.h"

using namespace swell::launcher;

static WorkerState running_program(int listens, double since = 0) {
  WorkerState worker;
  worker.running = true;
  worker.listens = listens;
  worker.listens_since = since;
  return worker;
}

Test(worker_table, programs_of_another_generation_run_but_do_not_train) {
  WorkerTable workers;
  const std::vector<WorkerNode> nodes = {worker_node(1, 9, "node2", 2)};
  cr_assert_not(workers.run_on(nodes));
  workers.others()[{4, {1, 0}}] = 10;
  cr_assert(workers.run_on(nodes));
  cr_assert_not(workers.train_on(nodes));
  workers[{1, 1}] = running_program(-1);
  cr_assert(workers.train_on(nodes));
  cr_assert(workers.running() == std::vector<WorkerId>({{1, 1}}));
  workers.forget(nodes);
  cr_assert_not(workers.train_on(nodes));
  cr_assert_null(workers.find({1, 1}));
}

Test(worker_table, a_program_of_an_earlier_generation_that_listened_is_deaf_in_this_one) {
  WorkerTable workers;
  workers[{0, 0}] = running_program(3);
  workers[{0, 1}] = running_program(2);
  workers[{0, 2}].listens = 2;  // nothing runs there
  cr_assert_eq(workers.deaf(3), 1u);
  cr_assert_eq(workers.deaf(2), 1u);
  cr_assert_eq(workers.deaf(1), 2u);
}

Test(worker_table, the_time_to_leave_counts_from_the_later_of_request_and_handler) {
  WorkerTable workers;
  workers[{0, 0}] = running_program(3, 100);
  cr_assert(workers.one_listened(30, 3, 90, 130));
  cr_assert_not(workers.one_listened(30, 3, 90, 129));
  cr_assert_not(workers.one_listened(30, 3, 110, 130));
  cr_assert_not(workers.one_listened(30, 4, 90, 130), "it handles no signal in that generation");
}
