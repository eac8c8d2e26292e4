// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/queue.h"

#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim;

namespace {

/// Nodes of 8 GPUs, of which jobs that run hold some until their limits.
struct Site {
  explicit Site(int nodes) : cluster(support::h100_nodes(nodes)), ledger(cluster) {}
  void run(policy::JobId id, int node, int gpus, double until_s) {
    ledger.take({node, lowest(ledger.free(node), gpus)}, {id, 0});
    releases.push_back({until_s, node, gpus});
  }
  void lend(int node, int gpus) {
    ledger.take({node, lowest(ledger.free(node), gpus)}, {99, 1000});
  }
  std::vector<Start> plan(const std::vector<PendingJob>& queue, bool backfill = true) const {
    return BaseScheduler{backfill}.plan(queue, ledger, releases, cluster, 0);
  }
  cluster::Cluster cluster;
  Ledger ledger;
  std::vector<Release> releases;
};

PendingJob job(policy::JobId id, int gpus, double limit_s, int nodes = 1) {
  return {id, {nodes, gpus / nodes}, static_cast<double>(id), limit_s};
}

}  // namespace

Test(queue, starts_jobs_in_order_while_there_is_room) {
  Site site(1);
  const auto starts = site.plan({job(1, 4, 10), job(2, 4, 10), job(3, 1, 10)});
  cr_assert_eq(starts.size(), 2u);
  cr_assert_eq(starts[0].id, 1u);
  cr_assert_eq(starts[1].id, 2u);
}

Test(queue, backfills_what_ends_before_the_head_can_start) {
  Site site(1);
  site.run(10, 0, 4, 100);
  // The head waits for the whole node at 100 s; 2 would end in time, 3 would not.
  const auto starts = site.plan({job(1, 8, 50), job(3, 2, 101), job(2, 2, 99)});
  cr_assert_eq(starts.size(), 1u);
  cr_assert_eq(starts[0].id, 2u);
}

Test(queue, backfills_long_jobs_on_what_the_head_leaves_free) {
  Site site(2);
  site.run(10, 0, 4, 100);
  site.run(11, 1, 6, 300);
  const auto starts = site.plan({job(1, 8, 50), job(2, 2, 1000)});
  cr_assert_eq(starts.size(), 1u, "node 0 is the head's from 100 s on, node 1 is not");
  cr_assert_eq(starts[0].nodes.front(), 1);
}

Test(queue, nothing_passes_the_head_without_backfill) {
  Site site(1);
  site.run(10, 0, 4, 100);
  cr_assert(site.plan({job(1, 8, 50), job(2, 2, 10)}, false).empty());
}

Test(queue, every_planned_job_keeps_its_place_and_not_only_the_head) {
  Site site(1);
  site.run(10, 0, 8, 100);
  // At 100 s the head takes 4 GPUs and the second the others: 3, which would fit beside the head
  // alone, waits.
  Site later(1);
  later.run(10, 0, 4, 100);
  const auto starts = later.plan({job(1, 8, 50), job(2, 8, 50), job(3, 4, 120)});
  cr_assert(starts.empty());
  cr_assert(site.plan({job(1, 4, 50), job(2, 4, 50), job(3, 1, 10)}).empty());
}

Test(queue, a_gang_gets_all_its_nodes_or_none) {
  Site site(3);
  site.run(10, 1, 1, 100);
  const auto starts = site.plan({job(1, 16, 10, 2)});
  cr_assert_eq(starts.size(), 1u);
  cr_assert_eq(starts[0].nodes, (std::vector<int>{0, 2}));
  site.run(11, 2, 1, 100);
  cr_assert(site.plan({job(1, 16, 10, 2)}).empty());
}

Test(queue, lent_gpus_count_as_free_and_idle_ones_are_taken_first) {
  Site site(2);
  site.lend(0, 8);
  auto starts = site.plan({job(1, 8, 10)});
  cr_assert_eq(starts.size(), 1u);
  cr_assert_eq(starts[0].nodes.front(), 1);
  cr_assert(starts[0].idle);
  starts = site.plan({job(1, 8, 10), job(2, 4, 10)});
  cr_assert_eq(starts.size(), 2u);
  cr_assert_eq(starts[1].nodes.front(), 0);
  cr_assert_not(starts[1].idle, "a companion has to leave first");
}

Test(queue, the_fullest_node_that_fits_is_taken) {
  Site site(2);
  site.run(10, 1, 6, 100);
  cr_assert_eq(site.plan({job(1, 2, 10)})[0].nodes.front(), 1);
}

Test(queue, shortest_first_goes_by_time_limit) {
  const auto sjf = make_queue_order("sjf");
  cr_assert((*sjf)->before(job(2, 1, 10), job(1, 1, 20)));
  const auto fifo = make_queue_order("fifo");
  cr_assert((*fifo)->before(job(1, 1, 20), job(2, 1, 10)));
  cr_assert_not(make_queue_order("lifo").ok());
}

Test(ledger, a_gpu_is_never_in_two_allocations) {
  Site site(1);
  site.ledger.take({0, 0b11}, {1, 0});
  bool refused = false;
  try {
    site.ledger.take({0, 0b110}, {2, 0});
  } catch (const Broken&) { refused = true; }
  cr_assert(refused);
  try {
    refused = false;
    site.ledger.give_back({0, 0b11}, {2, 0});
  } catch (const Broken&) { refused = true; }
  cr_assert(refused);
}

Test(queue, jobs_get_gpus_of_the_type_that_they_ask_for) {
  Site site(1);
  site.cluster = cluster::preset("1x8-h100+1x8-l20").value();
  site.ledger = Ledger(site.cluster);
  PendingJob on_l20 = job(1, 4, 10), also = job(2, 8, 10), on_h100 = job(3, 8, 10);
  on_l20.gpu_type = also.gpu_type = 1;
  const auto starts = site.plan({on_l20, also, on_h100});
  cr_assert_eq(starts.size(), 2u);
  cr_assert_eq(starts[0].nodes.front(), 1);
  cr_assert_eq(starts[1].id, 3u, "it waits for no GPU of the other type");
  cr_assert_eq(starts[1].nodes.front(), 0);
}
