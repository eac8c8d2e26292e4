// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/partition_limits.h"

#include <criterion/criterion.h>
#include <limits>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::FakeSlurm;
using swell::test::World;

namespace {

const policy::Resources kWorker{1, 8, 16000};

PartitionLimits limits_of(const FakeSlurm& slurm) {
  return {slurm.now, slurm.now.partitions.front().name};
}

policy::ClusterView nodes(int count) {
  policy::ClusterView view;
  for (int i = 1; i <= count; ++i)
    view.nodes.push_back({"node" + std::to_string(i), "", {}, {}, 0});
  return view;
}

}  // namespace

Test(partition_limits, without_a_limit_all_is_granted_as_it_is) {
  FakeSlurm slurm(2);
  const PartitionLimits limits = limits_of(slurm);
  cr_assert_not(limits.any());
  cr_assert_eq(limits.why_none_on("node1", kWorker), "");
  const std::vector<policy::Grant> grants = {{7, 0, kWorker * 8}};
  cr_assert(limits.cut(grants, kWorker, nodes(2)) == grants);
}

Test(partition_limits, a_grant_beyond_MaxMemPerNode_becomes_several_companions) {
  FakeSlurm slurm(2);
  slurm.now.partitions.front().max_memory = {50000, false};
  const auto pieces = limits_of(slurm).cut({{7, 1, kWorker * 8}}, kWorker, nodes(2));
  cr_assert(pieces == (std::vector<policy::Grant>{
                          {7, 1, kWorker * 3}, {7, 1, kWorker * 3}, {7, 1, kWorker * 2}}));
}

Test(partition_limits, a_limit_of_the_site_counts_where_the_partition_has_none) {
  FakeSlurm slurm(2);
  slurm.now.max_memory = {15999, false};
  cr_assert_eq(limits_of(slurm).why_none_on("node1", kWorker),
               "MaxMemPerNode=15999 of partition " + slurm.now.partitions.front().name +
                   " is below the 16000 MiB of a worker");
  cr_assert(limits_of(slurm).cut({{7, 1, kWorker * 8}}, kWorker, nodes(2)).empty());
  slurm.now.partitions.front().max_memory = {16000, false};
  cr_assert_eq(limits_of(slurm).workers_of_one(kWorker), 1);
}

Test(partition_limits, MaxMemPerCPU_is_compared_with_the_cpus_of_a_worker) {
  FakeSlurm slurm(2);
  slurm.now.partitions.front().max_memory = {2000, true};
  cr_assert_eq(limits_of(slurm).workers_of_one(kWorker), std::numeric_limits<int>::max());
  slurm.now.partitions.front().max_memory = {1999, true};
  cr_assert_eq(limits_of(slurm).workers_of_one(kWorker), 0);
  cr_assert_neq(limits_of(slurm).why_none_on("node1", kWorker).find("MaxMemPerCPU=1999"),
                std::string::npos);
}

Test(partition_limits, MaxCPUsPerNode_counts_what_jobs_of_the_partition_hold_there) {
  FakeSlurm slurm(2);
  slurm.now.partitions.front().max_cpus_per_node = 24;
  slurm.run(5, "node1", 2, "").cpus = 12;
  slurm.find(5)->partition = slurm.now.partitions.front().name;
  const PartitionLimits limits = limits_of(slurm);
  cr_assert_eq(limits.workers_on("node1", kWorker), 1);
  cr_assert_eq(limits.workers_on("node2", kWorker), 3);
  cr_assert(limits.cut({{7, 0, kWorker * 4}, {7, 1, kWorker * 4}}, kWorker, nodes(2)) ==
            (std::vector<policy::Grant>{{7, 0, kWorker}, {7, 1, kWorker * 3}}));
  cr_assert_neq(limits.why_none_on("node1", kWorker * 2).find("MaxCPUsPerNode=24"),
                std::string::npos);
}

Test(partition_limits, MinNodes_of_several_lets_no_companion_run) {
  FakeSlurm slurm(2);
  slurm.now.partitions.front().min_nodes = 2;
  cr_assert_eq(limits_of(slurm).workers_of_one(kWorker), 0);
  cr_assert_neq(limits_of(slurm).why_none_on("node2", kWorker).find("MinNodes=2"),
                std::string::npos);
}

Test(partition_limits, one_decision_gives_the_CPUs_of_a_node_once) {
  World world;
  slurm::PartitionRecord& train = world.slurm.now.partitions.front();
  train.nodes = {"node1"};
  train.max_cpus_per_node = 40;  // 32 are used by both jobs: one worker more has a place
  world.slurm.run_elastic(10, "node1", 2);
  world.slurm.run_elastic(11, "node1", 2).gpus.front().gpus.indices = "2-3";
  for (const JobId job : {10u, 11u}) world.server.says(job, swell::test::hello_of(job, 2));
  world.step();
  int offered = 0;
  for (const LiveGrant& grant : world.book.outstanding()) offered += grant.offer.cpus;
  cr_assert_eq(offered, 8, "%d", offered);
}

Test(partition_limits, offers_that_stand_count_as_taken) {
  FakeSlurm slurm(1);
  slurm.now.partitions.front().max_cpus_per_node = 24;
  JobTable jobs;
  jobs[7];
  LiveGrant grant;
  grant.parent = 7;
  grant.offer.nonce = "n";
  grant.offer.node = "node1";
  grant.offer.partition = "train";
  grant.offer.cpus = 8;
  LiveGrant elsewhere = grant;
  elsewhere.offer.partition = "other";
  const std::vector<LiveGrant> standing = {grant, elsewhere};
  LimitsByPartition by_partition(slurm.now, jobs, standing);
  PartitionLimits& limits = by_partition.of("train");
  cr_assert_eq(limits.workers_on("node1", kWorker), 2);
  limits.take("node1", 8);
  cr_assert_eq(by_partition.of("train").workers_on("node1", kWorker), 1);
  cr_assert_not(by_partition.of("other").any());
}
