// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/view_builder.h"

#include <criterion/criterion.h>

#include "core/policy/growth_hold.h"
#include "unit/controller/fakes.h"
#include "unit/controller/reports.h"

using namespace swell;
using namespace swell::controller;
using swell::test::FakeSlurm;

namespace {

policy::ClusterView view_of(const FakeSlurm& slurm, const JobTable& jobs = {},
                            const std::vector<LiveGrant>& outstanding = {}) {
  return build_view(slurm.now, jobs, outstanding, Config{}, 100);
}

control::Status says(control::JobState state, const std::string& no_growth) {
  control::Status status;
  status.state = state;
  status.no_growth = no_growth;
  return status;
}

}  // namespace

Test(view_builder, gpus_held_by_jobs_are_not_free) {
  FakeSlurm slurm(2);
  slurm.run(5, "node2", 3, "");
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.nodes.size(), 2u);
  cr_assert_eq(view.nodes[0].free.gpus, 8);
  cr_assert_eq(view.nodes[1].free.gpus, 5);
  cr_assert_eq(view.nodes[1].gpu_type, "h100");
}

Test(view_builder, a_node_that_cannot_be_used_is_not_in_the_view) {
  FakeSlurm slurm(2);
  slurm.now.nodes[0].usable = false;
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.nodes.size(), 1u);
  cr_assert_eq(view.nodes[0].name, "node2");
  cr_assert_eq(view.partitions[0], (std::vector<policy::NodeIndex>{0}));
}

Test(view_builder, a_grant_counts_as_taken_until_its_companion_shows) {
  FakeSlurm slurm(1);
  LiveGrant grant;
  grant.parent = 10;
  grant.offer.nonce = "nonce1";
  grant.offer.node = "node1";
  grant.offer.gpus = 4;
  JobTable jobs;
  jobs[10].id = 10;
  cr_assert_eq(view_of(slurm, jobs, {grant}).nodes[0].free.gpus, 4);
  Companion companion;
  companion.grant = "nonce1";
  jobs[10].companions.add(companion);
  slurm.run(20, "node1", 4, "swell[parent=10 grant=nonce1]");
  cr_assert_eq(view_of(slurm, jobs, {grant}).nodes[0].free.gpus, 4, "not counted twice");
}

Test(view_builder, jobs_of_higher_priority_come_first_and_held_ones_not_at_all) {
  FakeSlurm slurm(1);
  slurm.wait(30, 1).priority = 5;
  slurm.wait(31, 2).priority = 9;
  slurm.wait(32, 3).waiting = slurm::Waiting::for_other;
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.queue.size(), 2u);
  cr_assert_eq(view.queue[0].id, 31u);
  cr_assert_eq(view.queue[1].id, 30u);
}

Test(view_builder, components_of_a_heterogeneous_job_are_parts_of_one) {
  FakeSlurm slurm(2);
  slurm.wait(30, 1).het_leader = 30;
  slurm.wait(31, 1).het_leader = 30;
  slurm.wait(32, 1);
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.queue[0].part_of, 30u);
  cr_assert_eq(view.queue[1].part_of, 30u);
  cr_assert_eq(view.queue[2].part_of, 0u);
}

Test(view_builder, a_job_without_an_agent_does_not_grow) {
  FakeSlurm slurm(1);
  slurm.run_elastic(10, "node1", 2);
  JobTable jobs;
  jobs[10].id = 10;
  jobs[10].basic_gpus = 2;
  cr_assert_not(view_of(slurm, jobs).jobs.at(0).may_grow);
  jobs[10].agent.connect(1, 0);
  cr_assert(view_of(slurm, jobs).jobs.at(0).may_grow);
  jobs[10].agent_words.hear(says(control::JobState::allocated, "its program ignores the signal"), 0,
                            0);
  cr_assert_not(view_of(slurm, jobs).jobs.at(0).may_grow);
}

Test(view_builder, a_job_that_takes_no_more_is_not_changing_but_while_it_is_reconfigured) {
  FakeSlurm slurm(1);
  slurm.run_elastic(10, "node1", 2);
  JobTable jobs;
  ElasticJob& job = jobs[10];
  job.id = 10;
  job.basic_gpus = 2;
  const auto changing = [&](double now) {
    const policy::ClusterView view = build_view(slurm.now, jobs, {}, Config{}, now);
    return view.jobs.at(0).changing;
  };
  cr_assert(changing(100), "nobody would hear of it");
  job.agent.connect(1, 0);
  job.offers = Offers(-1e9, {});
  cr_assert_not(changing(100));
  job.limits.pause(true);
  job.agent_words.hear(says(control::JobState::allocated, "its program ignores the signal"), 100,
                       0);
  job.offers.fail(0, 1e9);
  job.offers.give_back(-1e9, 0, 2e9, false);
  cr_assert_not(changing(100));
  job.agent_words.hear(says(control::JobState::switching, "its program ignores the signal"), 100,
                       0);
  cr_assert_not(changing(100), "nothing was asked of it");
  job.stay(100, 30);
  cr_assert(changing(100 + ElasticJob::kReconfigures_s - 1));
  cr_assert_not(changing(100 + ElasticJob::kReconfigures_s), "it is not believed for ever");
  job.agent_words.hear(says(control::JobState::active, ""), 100, 0);
  cr_assert(changing(129), "GrowthInterval");
  cr_assert_not(changing(131));
  slurm.now.jobs.at(0).phase = slurm::JobPhase::completing;
  cr_assert(changing(131));
}

Test(view_builder, gpus_of_a_job_that_just_left_are_free_soon_though_the_node_shows_them_used) {
  FakeSlurm slurm(2);
  slurm.run(5, "node1", 3, "");
  const slurm::Snapshot before = slurm.now;
  slurm.run(6, "node1", 1, "");
  slurm.end(5);
  slurm.now.nodes[0].cpus_used = 8 * 3 + 8;
  slurm.now.nodes[0].memory_used_mib = 1000 * 3 + 1000;
  slurm.now.just_left = slurm::left_between(before, slurm.now);
  cr_assert_eq(slurm.now.just_left.size(), 1u);
  policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.nodes[0].free, (policy::Resources{7, 56, 511000}));
  cr_assert(view.nodes[0].settling, "not lent before the node shows it");
  cr_assert_not(view.nodes[1].settling);

  slurm.now.nodes[0].cpus_used = 8;
  slurm.now.nodes[0].memory_used_mib = 1000;
  view = view_of(slurm);
  cr_assert_eq(view.nodes[0].free, (policy::Resources{7, 56, 511000}), "not counted twice");
  cr_assert_not(view.nodes[0].settling, "the node shows it already");
}

Test(view_builder, completing_companions_have_not_left_yet) {
  FakeSlurm slurm(1);
  slurm.run(5, "node1", 3, "");
  slurm.wait(6, 1);
  const slurm::Snapshot before = slurm.now;
  slurm.find(5)->phase = slurm::JobPhase::completing;
  slurm.end(6);
  cr_assert(slurm::left_between(before, slurm.now).empty());
  slurm.find(5)->phase = slurm::JobPhase::ended;
  cr_assert_eq(slurm::left_between(before, slurm.now).size(), 1u);
}

Test(view_builder, nothing_is_lent_on_nodes_of_a_job_that_starts_again_at_once) {
  FakeSlurm slurm(4);
  slurm.run(5, "node1", 8, "");
  slurm.find(5)->nodes.push_back("node2");
  slurm.run(6, "node3", 8, "");
  slurm::Snapshot before = slurm.now;
  // node1 has failed, and is back before node2 is clean: Slurm names it no longer.
  slurm.find(5)->phase = slurm::JobPhase::completing;
  slurm.find(5)->starts_again = true;
  slurm.find(5)->nodes = {"node2"};
  slurm.find(5)->gpus.clear();
  const auto kept_on = [&] {
    slurm.now.kept_nodes = slurm::keep_for_restarts(before, slurm.now);
    before = slurm.now;
    std::string kept;
    for (const policy::NodeView& node : view_of(slurm).nodes) kept += node.settling ? "k" : ".";
    return kept;
  };
  cr_assert_eq(kept_on(), "kk..");
  slurm.find(5)->phase = slurm::JobPhase::pending;
  slurm.find(5)->nodes.clear();
  cr_assert_eq(kept_on(), "kk..", "until it starts");
  slurm.find(5)->starts_again = false;
  cr_assert_eq(kept_on(), "....", "held, or running again");
}

Test(view_builder, limits_count_from_what_a_user_wanted_who_consented_to_fewer) {
  FakeSlurm slurm(2);
  slurm.run_elastic(10, "node1", 2);
  JobTable jobs;
  ElasticJob& job = jobs[10];
  job.id = 10;
  job.basic_gpus = 2;
  job.spec = control::ElasticSpec::parse("max=2x").value();
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).max_gpus, 4);
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).wanted_gpus, 0);
  job.wanted_gpus = 6;
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).max_gpus, 12);
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).wanted_gpus, 6);
  job.limits.set_max_gpus(5);
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).wanted_gpus, 5, "its owner wants no more");
  job.limits.set_max_gpus(2);
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).wanted_gpus, 0);
}

Test(view_builder, a_job_that_awaits_its_profile_grows_up_to_what_its_user_wanted) {
  FakeSlurm slurm(2);
  slurm.run_elastic(10, "node1", 2);
  JobTable jobs;
  ElasticJob& job = jobs[10];
  job.id = 10;
  job.agent.connect(1, 100);
  job.basic_gpus = 2;
  job.spec = control::ElasticSpec::parse("max=4x,mode=live").value();
  Config config;
  config.policy = "swell";
  const auto job_at = [&](double now) {
    return build_view(slurm.now, jobs, {}, config, now, nullptr, test::live_machines()).jobs.at(0);
  };
  cr_assert_not(job_at(101).may_grow);
  job.wanted_gpus = 4;
  cr_assert(job_at(101).may_grow);
  cr_assert_eq(job_at(101).max_gpus, 4);
  const double later = 101 + policy::kFirstStepWaits * config.profile_wait_s;
  cr_assert(job_at(later).may_grow);
  cr_assert_eq(job_at(later).max_gpus, 16, "it awaits no profile any more");
  Companion companion;
  companion.id = 20;
  companion.gpus = {2, "h100", ""};
  job.companions.add(companion);
  cr_assert_not(job_at(101).may_grow, "it has what it wanted");
}

Test(view_builder, steps_end_with_the_cluster_however_far_the_job_may_grow) {
  FakeSlurm slurm(2);
  slurm.now.nodes[1].usable = false;
  slurm.run(10, "node1", 4, "");
  JobTable jobs;
  jobs[10].id = 10;
  jobs[10].basic_gpus = 4;
  jobs[10].spec = *control::ElasticSpec::parse("max=1000000,step=5");
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).sizes, (std::vector<int>{4, 9, 14}));
  jobs[10].spec.max_gpus = 10;
  cr_assert_eq(view_of(slurm, jobs).jobs.at(0).sizes, (std::vector<int>{4, 9}));
}

namespace {

/// Elastic job 10 of user 1000 on node1, with companion 20 on node2; job 30 of user 1001 on node3.
FakeSlurm of_two_users() {
  FakeSlurm slurm(4);
  slurm.run_elastic(10, "node1", 2);
  slurm.run(20, "node2", 2, "swell[parent=10 grant=nonce1]");
  slurm.run(30, "node3", 2, "").uid = 1001;
  slurm.wait(40, 1).uid = 1001;
  return slurm;
}

JobTable table_of_two_users() {
  JobTable jobs;
  jobs[10].id = 10;
  jobs[10].uid = 1000;
  jobs[10].basic_gpus = 2;
  return jobs;
}

using Nodes = policy::NodeSet;

}  // namespace

Test(view_builder, nodes_that_are_shared_by_all_are_closed_to_none) {
  const policy::ClusterView view = view_of(of_two_users(), table_of_two_users());
  cr_assert(view.queue[0].sharing.is_free() && view.queue[0].closed_nodes.empty());
  cr_assert(view.jobs[0].sharing.is_free() && view.jobs[0].closed_nodes.empty());
}

Test(view_builder, nodes_of_others_are_closed_in_a_partition_of_sole_users) {
  FakeSlurm slurm = of_two_users();
  slurm.now.partitions[0].sole_user = true;
  policy::ClusterView view = view_of(slurm, table_of_two_users());
  cr_assert(view.queue[0].sharing == (policy::Sharing{1001, true, ""}));
  cr_assert_eq(view.queue[0].closed_nodes, (Nodes{0}), "a companion closes nothing");
  cr_assert(view.jobs[0].sharing == (policy::Sharing{1000, true, ""}));
  cr_assert_eq(view.jobs[0].closed_nodes, (Nodes{2}));
  LiveGrant grant;
  grant.parent = 11;
  grant.offer.node = "node4";
  grant.offer.gpus = 1;
  JobTable jobs = table_of_two_users();
  jobs[11].id = 11;
  jobs[11].uid = 1000;
  view = view_of(slurm, jobs, {grant});
  cr_assert_eq(view.jobs[0].closed_nodes, (Nodes{2}), "a grant of the same user");
  jobs[11].uid = 1001;
  view = view_of(slurm, jobs, {grant});
  cr_assert_eq(view.jobs[0].closed_nodes, (Nodes{2, 3}), "a grant of another user");
}

Test(view_builder, companions_share_nodes_as_their_own_partition_has_it) {
  FakeSlurm slurm = of_two_users();
  slurm::PartitionRecord expansion = slurm.now.partitions[0];
  expansion.name = "expansion";
  slurm.now.partitions[0].sole_user = true;
  slurm.now.partitions.push_back(expansion);
  Config config;
  config.expansion_partition = "expansion";
  const policy::ClusterView view = build_view(slurm.now, table_of_two_users(), {}, config, 100);
  cr_assert_not(view.jobs[0].sharing.sole_user);
  cr_assert_eq(view.jobs[0].closed_nodes, (Nodes{2}), "the other job keeps its node");
}

Test(view_builder, a_job_that_asks_for_nodes_of_its_user_alone_closes_them) {
  FakeSlurm slurm = of_two_users();
  slurm.now.jobs[2].sole_user = true;
  policy::ClusterView view = view_of(slurm, table_of_two_users());
  cr_assert_eq(view.jobs[0].closed_nodes, (Nodes{2}));
  cr_assert(view.queue[0].closed_nodes.empty(), "it is of the same user");
  slurm.now.jobs[2].sole_user = false;
  slurm.now.jobs[3].sole_user = true;
  view = view_of(slurm, table_of_two_users());
  cr_assert(view.jobs[0].closed_nodes.empty());
  cr_assert_eq(view.queue[0].closed_nodes, (Nodes{0}));
}

Test(view_builder, labels_close_nodes_as_mcs_parameters_say) {
  FakeSlurm slurm = of_two_users();
  for (slurm::JobRecord& job : slurm.now.jobs) job.mcs_label = job.uid == 1000 ? "a" : "b";
  slurm.now.labelled_nodes = slurm::LabelledNodes::of_all;
  policy::ClusterView view = view_of(slurm, table_of_two_users());
  cr_assert_eq(view.queue[0].closed_nodes, (Nodes{0}));
  cr_assert_eq(view.queue[0].sharing.label, "b");
  cr_assert_eq(view.jobs[0].closed_nodes, (Nodes{2}));
  cr_assert_eq(view.jobs[0].sharing.label, "a");
  slurm.now.labelled_nodes = slurm::LabelledNodes::of_those_that_ask;
  view = view_of(slurm, table_of_two_users());
  cr_assert(view.queue[0].closed_nodes.empty() && view.jobs[0].closed_nodes.empty());
  slurm.now.jobs[3].sole_label = true;
  view = view_of(slurm, table_of_two_users());
  cr_assert_eq(view.queue[0].closed_nodes, (Nodes{0, 2}), "others have no label there");
  slurm.now.labelled_nodes = slurm::LabelledNodes::of_none;
  cr_assert(view_of(slurm, table_of_two_users()).queue[0].closed_nodes.empty());
}

Test(view_builder, a_job_in_a_partition_that_gives_whole_nodes_takes_them_whole) {
  FakeSlurm slurm = of_two_users();
  cr_assert_not(view_of(slurm).queue[0].whole_nodes);
  slurm.now.partitions[0].gives_whole_nodes = true;
  cr_assert(view_of(slurm).queue[0].whole_nodes);
}
