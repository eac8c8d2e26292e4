// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/layout.h"

#include <criterion/criterion.h>

#include "launcher/shape.h"

using namespace swell;
using namespace swell::launcher;

namespace {

Place place(int id, int workers, int gpus) {
  Place made;
  made.id = id;
  made.workers = workers;
  made.gpus = gpus;
  return made;
}

NodeShare share(const char* node, int gpus, int cpus = 32) {
  NodeShare made;
  made.node = node;
  made.gpus = gpus;
  made.cpus = cpus;
  made.memory_mib = 1000 * cpus;
  return made;
}

std::string value(const Environment& environment, const std::string& name) {
  for (const auto& [key, text] : environment)
    if (key == name) return text;
  return "";
}

}  // namespace

Test(layout, ranks_have_no_gaps_over_nodes_with_different_counts) {
  const Layout layout = lay_out({place(3, 4, 4), place(5, 2, 2), place(9, 8, 8)}, 1, 14);
  cr_assert_eq(layout.seats.size(), 14u);
  cr_assert_eq(layout.groups, 3);
  for (int rank = 0; rank < 14; ++rank)
    cr_assert_eq(layout.seats[static_cast<std::size_t>(rank)].rank, rank);
  cr_assert_eq(layout.seats[4].group, 1);
  cr_assert_eq(layout.seats[4].worker.place, 5);
  cr_assert_eq(layout.seats[4].worker.local, 0);
  cr_assert_eq(layout.seats[5].local_world, 2);
  const Environment environment = torch_environment(layout, layout.seats[5], "10.0.0.1", 29500);
  cr_assert_eq(value(environment, "RANK"), std::string("5"));
  cr_assert_eq(value(environment, "LOCAL_RANK"), std::string("1"));
  cr_assert_eq(value(environment, "WORLD_SIZE"), std::string("14"));
  cr_assert_eq(value(environment, "LOCAL_WORLD_SIZE"), std::string("2"));
  cr_assert_eq(value(environment, "NODE_RANK"), std::string("1"));
  cr_assert_eq(value(environment, "GROUP_WORLD_SIZE"), std::string("3"));
  cr_assert_eq(value(environment, "MASTER_ADDR"), std::string("10.0.0.1"));
  cr_assert_eq(value(environment, "MASTER_PORT"), std::string("29500"));
}

Test(layout, the_last_places_go_without_when_fewer_are_allowed) {
  const Layout layout = lay_out({place(0, 4, 4), place(1, 8, 8), place(2, 4, 4)}, 1, 8);
  cr_assert_eq(layout.seats.size(), 8u);
  cr_assert_eq(layout.groups, 2);
  cr_assert_eq(layout.seats[7].local_world, 4);
  // Workers of two GPUs each.
  cr_assert_eq(lay_out({place(0, 2, 4), place(1, 4, 8)}, 2, 8).seats.size(), 4u);
}

Test(layout, sizes_allow_the_largest_that_is_there_and_never_less_than_basic) {
  cr_assert_eq(allowed_gpus(13, 4, {}), 13);
  cr_assert_eq(allowed_gpus(13, 4, {4, 8, 16}), 8);
  cr_assert_eq(allowed_gpus(16, 4, {4, 8, 16}), 16);
  cr_assert_eq(allowed_gpus(6, 4, {8, 16}), 4);
}

Test(shape, one_worker_a_gpu_by_default) {
  const auto shape = shape_of(7, {}, {share("n1", 4), share("n2", 2, 8)});
  cr_assert(shape.ok());
  cr_assert_eq(shape->workers, 6);
  cr_assert_eq(shape->gpus_per_worker, 1);
  cr_assert_eq(shape->cpus_per_worker, 4);
  cr_assert_eq(shape->memory_mib_per_worker, 4000);
  cr_assert_eq(shape->places[1].workers, 2);
}

Test(shape, fewer_workers_share_the_gpus_evenly_or_not_at_all) {
  Options options;
  options.ntasks = 2;
  const auto shape = shape_of(7, options, {share("n1", 4), share("n2", 4)});
  cr_assert(shape.ok());
  cr_assert_eq(shape->gpus_per_worker, 4);
  cr_assert_eq(shape->places[0].workers, 1);
  options.ntasks = 3;
  cr_assert_not(shape_of(7, options, {share("n1", 4)}).ok());
  options.ntasks = 2;
  cr_assert_not(shape_of(7, options, {share("n1", 3), share("n2", 1)}).ok());
  options.ntasks.reset();
  options.nodes = 1;
  cr_assert_neq(
      shape_of(7, options, {share("n1", 4), share("n2", 4)}).error().message().find("all 2 nodes"),
      std::string::npos);
}

Test(shape, a_job_without_gpus_has_no_elastic_shape) {
  cr_assert_not(shape_of(7, {}, {share("n1", 0)}).ok());
}

Test(shape, workers_share_what_cpus_there_are) {
  const auto shape = shape_of(7, {}, {share("n1", 4, 16), share("n2", 4, 1)});
  cr_assert(shape.ok());
  cr_assert(shape->shares_cpus);
  cr_assert_eq(shape->cpus_per_worker, 1);
  cr_assert_not(shape_of(7, {}, {share("n1", 4, 16)})->shares_cpus);
  Options options;
  options.cpus_per_task = 2;
  cr_assert_neq(shape_of(7, options, {share("n1", 4, 1)})
                    .error()
                    .message()
                    .find("--cpus-per-task=2: the job has 1 CPUs"),
                std::string::npos);
}
