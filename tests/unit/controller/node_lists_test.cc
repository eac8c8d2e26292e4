// SPDX-License-Identifier: GPL-2.0-or-later
// What users write about nodes, and what it costs.
#include "controller/node_lists.h"

#include <criterion/criterion.h>
#include <string>

#include "controller/view_builder.h"
#include "core/slurm_text/lists.h"
#include "slurm/convert.h"
#include "unit/controller/fakes.h"

using namespace swell;
using namespace swell::controller;
using swell::test::FakeSlurm;

namespace {

policy::ClusterView view_of(const FakeSlurm& slurm, const JobTable& jobs = {}) {
  return build_view(slurm.now, jobs, {}, Config{}, 100);
}

/// As many nodes as given, of which the first alone has feature f, and all have g.
FakeSlurm featured(int nodes) {
  FakeSlurm slurm(nodes);
  for (slurm::NodeRecord& node : slurm.now.nodes) node.features = {"g"};
  slurm.now.nodes[0].features = {"f", "g"};
  return slurm;
}

std::string repeated(const std::string& word, int times, const char* between) {
  std::string text = word;
  for (int i = 1; i < times; ++i) text += between + word;
  return text;
}

JobTable one_job(const FakeSlurm&, JobId id = 10) {
  JobTable jobs;
  jobs[id].id = id;
  jobs[id].basic_gpus = 2;
  jobs[id].agent.connect(1, 0);
  return jobs;
}

}  // namespace

Test(node_lists, a_running_job_is_lent_nothing_where_its_constraint_forbids_it) {
  const struct {
    const char* constraint;
    policy::NodeSet excluded;
  } cases[] = {{"", {}},          {"f", {1, 2}},   {"g", {}},           {"f|g", {}},
               {"[f|g]", {1, 2}}, {"f*1", {1, 2}}, {"(f|x)&g", {1, 2}}, {"f&g|x", {0, 1, 2}}};
  for (const auto& each : cases) {
    FakeSlurm slurm = featured(3);
    slurm.run_elastic(10, "node1", 2).features = each.constraint;
    const policy::ClusterView view = view_of(slurm, one_job(slurm));
    cr_assert(view.jobs.at(0).excluded_nodes == each.excluded, "%s", each.constraint);
  }
}

Test(node_lists, a_node_of_its_own_that_is_drained_counts_all_the_same) {
  FakeSlurm slurm = featured(3);
  slurm.now.nodes[0].usable = false;
  slurm.now.nodes[2].features = {"f"};
  slurm.run_elastic(10, "node1", 2).features = "[g|f]";
  // The view has node2 and node3 as 0 and 1.
  cr_assert(view_of(slurm, one_job(slurm)).jobs.at(0).excluded_nodes == policy::NodeSet{1});
  slurm.find(10)->features = "[f|g]";
  cr_assert(view_of(slurm, one_job(slurm)).jobs.at(0).excluded_nodes == policy::NodeSet{0});
}

Test(node_lists, excluded_and_required_nodes_are_read_from_host_lists) {
  FakeSlurm slurm(12);
  slurm::JobRecord& waiting = slurm.wait(30, 8);
  waiting.excluded_nodes = "node[1-3,12],node7";
  waiting.required_nodes = "node[10-11]";
  const policy::ClusterView view = view_of(slurm);
  cr_assert(view.queue.at(0).excluded_nodes == (policy::NodeSet{0, 1, 2, 6, 11}));
  cr_assert(view.queue.at(0).required_nodes == (policy::NodeSet{9, 10}));
  slurm.find(30)->required_nodes = "node[10-13]";
  cr_assert(view_of(slurm).queue.empty(), "there is no node13");
}

Test(node_lists, equal_texts_and_all_tasks_of_an_array_share_one_set) {
  FakeSlurm slurm = featured(40);
  for (JobId id = 30; id < 60; ++id) {
    slurm::JobRecord& array = slurm.wait(id, 8);
    array.pending_tasks = 100;
    array.features = repeated("f", 511, "&");
    array.excluded_nodes = repeated("node40", 500, ",").substr(0, 7 * 60 - 1);
  }
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.queue.size(), static_cast<std::size_t>(policy::kQueueDepth));
  for (const policy::PendingDemand& demand : view.queue) {
    cr_assert(demand.excluded_nodes.shares_with(view.queue[0].excluded_nodes));
    cr_assert_eq(demand.excluded_nodes.nodes().size(), 39u);
  }
}

Test(node_lists, a_feature_says_no_more_when_it_is_repeated) {
  for (const char* between : {"&", "|", ","}) {
    FakeSlurm slurm = featured(4);
    slurm.wait(30, 8).features = repeated("f", 511, between);
    cr_assert(view_of(slurm).queue.at(0).excluded_nodes == (policy::NodeSet{1, 2, 3}));
  }
}

Test(node_lists, a_view_is_as_large_as_what_policies_look_at) {
  FakeSlurm slurm(2);
  for (JobId id = 100; id < 100 + 3 * policy::kQueueDepth; ++id) slurm.wait(id, 1).priority = id;
  // Parts of a job at the head, of which one has the lowest priority of all.
  slurm.wait(20, 1).het_leader = 20;
  slurm.find(20)->priority = 1'000'000;
  slurm.wait(21, 1).het_leader = 20;
  slurm.find(21)->priority = 1;
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.queue.size(), static_cast<std::size_t>(policy::kQueueDepth) + 1);
  cr_assert_eq(view.queue.front().id, 20u);
  cr_assert_eq(view.queue.back().id, 21u, "a job starts with all its parts");
  cr_assert_eq(view.queue[1].id, 99u + 3 * policy::kQueueDepth);
}

Test(node_lists, host_lists_beyond_the_cluster_or_the_budget_of_a_view_are_not_read) {
  FakeSlurm slurm(4);
  slurm.wait(30, 1).excluded_nodes = "node[1-60000]";
  slurm.wait(31, 1).required_nodes = "n[1-999][1-999]";
  slurm.wait(32, 1).excluded_nodes = "node2";
  const policy::ClusterView view = view_of(slurm);
  cr_assert_eq(view.queue.size(), 1u, "Slurm's preemption serves them");
  cr_assert_eq(view.queue[0].id, 32u);
  slurm.run_elastic(10, "node1", 2).excluded_nodes = "node[1-60000]";
  cr_assert_eq(view_of(slurm, one_job(slurm)).jobs.at(0).excluded_nodes.nodes().size(), 4u);
}

Test(node_lists, equal_texts_of_slurms_answer_are_one_in_memory) {
  std::vector<job_info_t> infos(3);
  std::string constraint = "f&g", other = "g", excluded = "node[1-4]";
  for (job_info_t& info : infos) {
    info.job_state = JOB_PENDING;
    info.features = constraint.data();
    info.exc_nodes = excluded.data();
  }
  infos[1].features = other.data();
  job_info_msg_t message{};
  message.record_count = 3;
  message.job_array = infos.data();
  const auto jobs = slurm::convert(message);
  cr_assert(jobs[0].features.shares_with(jobs[2].features));
  cr_assert_not(jobs[0].features.shares_with(jobs[1].features));
  cr_assert(jobs[0].excluded_nodes.shares_with(jobs[1].excluded_nodes));
  cr_assert_eq(jobs[1].features.get(), "g");
}
