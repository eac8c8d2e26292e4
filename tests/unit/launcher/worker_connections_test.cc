// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/worker_connections.h"

#include <criterion/criterion.h>

using namespace swell::launcher;

namespace {

/// Node 0 is the job's own, 5; node 1 is companion 7's.
WorkerConnections two_nodes() {
  WorkerConnections workers;
  workers.add_nodes({{.id = 0, .job = 5, .name = "a"}, {.id = 1, .job = 7, .name = "b"}});
  return workers;
}

}  // namespace

Test(worker_connections, a_connection_and_its_worker_find_each_other) {
  WorkerConnections workers = two_nodes();
  cr_assert(workers.knows(1) && !workers.knows(2));
  cr_assert_not(workers.connect({1, 0}, 40, 3).has_value());
  cr_assert((workers.worker(40) == WorkerId{1, 0}));
  cr_assert(workers.connection({1, 0}) == 40);
  cr_assert((workers.disconnect(40) == WorkerId{1, 0}));
  cr_assert_not(workers.worker(40).has_value());
  cr_assert_not(workers.connection({1, 0}).has_value());
  cr_assert_not(workers.disconnect(40).has_value());
}

Test(worker_connections, a_step_that_was_launched_again_replaces_its_worker) {
  WorkerConnections workers = two_nodes();
  workers.connect({0, 0}, 40, 3);
  cr_assert_not(workers.is_taken({0, 0}, 40, 3), "the same connection");
  cr_assert(workers.is_taken({0, 0}, 41, 3), "another task of that step");
  cr_assert_not(workers.is_taken({0, 0}, 41, 4), "another step");
  cr_assert_not(workers.is_taken({0, 1}, 41, 3), "another worker");
  cr_assert(workers.connect({0, 0}, 41, 4) == 40);
  cr_assert_not(workers.worker(40).has_value(), "its end says nothing of the worker");
  cr_assert(workers.connection({0, 0}) == 41);
}

Test(worker_connections, those_of_one_allocation_are_let_go_together) {
  WorkerConnections workers = two_nodes();
  workers.connect({0, 0}, 40, 3);
  workers.connect({1, 0}, 41, 3);
  workers.connect({1, 1}, 42, 3);
  const auto gone = workers.disconnect_job(7);
  cr_assert_eq(gone.size(), 2u);
  cr_assert_not(workers.worker(41).has_value());
  cr_assert(workers.connection({0, 0}) == 40);
  cr_assert_eq(workers.disconnect_all().size(), 1u);
  cr_assert_not(workers.worker(40).has_value());
  cr_assert(workers.knows(1), "what they were is still known");
}
