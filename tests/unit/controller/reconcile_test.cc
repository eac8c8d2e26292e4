// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/reconcile.h"

#include <algorithm>
#include <criterion/criterion.h>

#include "unit/controller/fakes.h"

using namespace swell;
using namespace swell::controller;
using swell::test::FakeSlurm;

namespace {

bool has(const Reconciled& result, Change::Kind kind) {
  return std::any_of(result.changes.begin(), result.changes.end(),
                     [&](const Change& change) { return change.kind == kind; });
}

/// Job 10 with 2 GPUs on node1, whose AdminComment names `named`; companion 20 with 4 on node2.
FakeSlurm lent(const std::string& named) {
  FakeSlurm slurm(2);
  slurm.run_elastic(10, "node1", 2, " companions=" + named);
  slurm.run(20, "node2", 4, "swell[parent=10 grant=nonce1]");
  return slurm;
}

IssuedGrants issued_to(JobId parent) {
  IssuedGrant grant;
  grant.parent = parent;
  grant.node = "node2";
  grant.gpu_type = "h100";
  grant.gpus = grant.workers = 4;
  grant.cpus = 32;
  grant.memory_mib = 4000;
  return {{"nonce1", grant}};
}

}  // namespace

Test(reconcile, a_companion_on_a_grant_that_was_issued_is_believed) {
  const FakeSlurm slurm = lent("-");
  JobTable jobs;
  const Reconciled result = reconcile(slurm.now, jobs, issued_to(10), 100);
  cr_assert(has(result, Change::Kind::companion_started));
  cr_assert(result.cancel.empty());
  cr_assert(result.adopted.empty());
  cr_assert_eq(jobs.at(10).companions.lent_gpus(), 4);
  cr_assert_eq(jobs.at(10).lending.grants(), 1);
}

Test(reconcile, a_companion_that_nobody_knows_is_cancelled) {
  const FakeSlurm slurm = lent("-");
  JobTable jobs;
  const Reconciled result = reconcile(slurm.now, jobs, issued_to(11), 100);
  cr_assert_eq(result.cancel.size(), 1u);
  cr_assert_eq(result.cancel[0].first.id, 20u);
  cr_assert(jobs.at(10).companions.empty());
}

Test(reconcile, without_the_state_file_a_companion_is_believed_as_its_parent_names_it) {
  const FakeSlurm slurm = lent("20:node2:4:0-3");
  JobTable jobs;
  const Reconciled result = reconcile(slurm.now, jobs, {}, 100);
  cr_assert(result.cancel.empty());
  cr_assert_eq(jobs.at(10).companions.lent_gpus(), 4);
  // Its present GPUs are its grant from now on.
  cr_assert_eq(result.adopted.at("nonce1").gpus, 4);
  cr_assert_eq(result.adopted.at("nonce1").node, "node2");
  cr_assert_eq(result.adopted.at("nonce1").parent, 10u);
}

Test(reconcile, without_the_state_file_a_companion_with_more_than_its_parent_names_is_cancelled) {
  for (const char* named : {"20:node2:2:0-1", "20:node1:4:0-3", "21:node2:4:0-3"}) {
    const FakeSlurm slurm = lent(named);
    JobTable jobs;
    const Reconciled result = reconcile(slurm.now, jobs, {}, 100);
    cr_assert_eq(result.cancel.size(), 1u, "%s", named);
    cr_assert(result.adopted.empty());
    cr_assert(jobs.at(10).companions.empty());
  }
}

Test(reconcile, a_companion_that_holds_more_than_its_grant_is_cancelled) {
  const FakeSlurm slurm = lent("-");
  JobTable jobs;
  IssuedGrants issued = issued_to(10);
  issued["nonce1"].gpus = 2;
  const Reconciled result = reconcile(slurm.now, jobs, issued, 100);
  cr_assert(has(result, Change::Kind::companion_excessive));
  cr_assert_eq(result.cancel.size(), 1u);
}

Test(reconcile, companions_of_a_job_that_has_ended_are_cancelled) {
  FakeSlurm slurm = lent("-");
  JobTable jobs;
  reconcile(slurm.now, jobs, issued_to(10), 100);
  slurm.end(10);
  const Reconciled result = reconcile(slurm.now, jobs, issued_to(10), 101);
  cr_assert(has(result, Change::Kind::job_ended));
  cr_assert_eq(result.cancel.size(), 1u);
  cr_assert(jobs.empty());
}

Test(reconcile, one_grant_makes_one_companion) {
  FakeSlurm slurm = lent("-");
  slurm.run(21, "node2", 4, "swell[parent=10 grant=nonce1]");
  JobTable jobs;
  const Reconciled result = reconcile(slurm.now, jobs, issued_to(10), 100);
  cr_assert_eq(result.cancel.size(), 1u);
  cr_assert_eq(result.cancel[0].first.id, 21u);
}

Test(reconcile, a_companion_that_is_gone_was_lost_or_has_ended) {
  FakeSlurm slurm = lent("-");
  JobTable jobs;
  reconcile(slurm.now, jobs, issued_to(10), 100);
  JobTable leaving = jobs;
  FakeSlurm preempting = slurm;
  preempting.find(20)->preempt_time = preempting.now.taken;
  reconcile(preempting.now, leaving, issued_to(10), 100);
  slurm.end(20);
  cr_assert(has(reconcile(slurm.now, jobs, issued_to(10), 101), Change::Kind::companion_lost));
  cr_assert(has(reconcile(slurm.now, leaving, issued_to(10), 101), Change::Kind::companion_ended));
}

Test(reconcile, companions_preempted_by_slurm_are_for_the_only_job_that_may_start_there) {
  using Record = slurm::JobRecord;
  struct {
    const char* what;
    std::vector<void (*)(Record&)> waiting;  ///< jobs 30, 31, ...
    const char* reason;
  } const cases[] = {
      {"nobody is seen", {}, "preempted by Slurm"},
      {"one", {[](Record&) {}}, "needed by job 30"},
      {"one of two", {[](Record&) {}, [](Record&) {}}, "preempted by Slurm"},
      {"the other one is held",
       {[](Record& r) { r.waiting = slurm::Waiting::for_other; }, [](Record&) {}},
       "needed by job 31"},
      {"the other one is kept off the node",
       {[](Record&) {}, [](Record& r) { r.excluded_nodes = {"node2"}; }},
       "needed by job 30"},
      {"the other one is for another node",
       {[](Record&) {}, [](Record& r) { r.required_nodes = {"node1"}; }},
       "needed by job 30"},
      {"it wants that node besides others",
       {[](Record& r) { r.required_nodes = {"node1"}, r.max_nodes = 2; }},
       "needed by job 30"},
      {"the other one is in another partition",
       {[](Record& r) { r.partition = "debug"; }, [](Record& r) { r.partition = "debug,train"; }},
       "needed by job 31"},
      {"parts of one job",
       {[](Record& r) { r.het_leader = 30; }, [](Record& r) { r.het_leader = 30; }},
       "needed by job 30"},
      {"the other one is a companion",
       {[](Record&) {}, [](Record& r) { r.admin_comment = "swell[parent=10 grant=nonce2]"; }},
       "needed by job 30"},
  };
  for (const auto& each : cases) {
    FakeSlurm slurm = lent("-");
    JobTable jobs;
    reconcile(slurm.now, jobs, issued_to(10), 100);
    slurm.find(20)->preempt_time = slurm.now.taken;
    JobId next = 30;
    for (const auto& change : each.waiting) change(slurm.wait(next++, 8));
    const Reconciled result = reconcile(slurm.now, jobs, issued_to(10), 101);
    cr_assert(has(result, Change::Kind::companion_preempted));
    cr_assert_eq(result.changes.back().companion.departure().reason(), each.reason, "%s: %s",
                 each.what, result.changes.back().companion.departure().reason().c_str());
  }
}

Test(reconcile, the_tag_keeps_the_wanted_gpus_of_a_user_who_consented_to_fewer) {
  FakeSlurm slurm(1);
  slurm.run_elastic(10, "node1", 2, " wanted=6");
  slurm.run_elastic(11, "node1", 2);
  JobTable jobs;
  reconcile(slurm.now, jobs, {}, 100);
  cr_assert_eq(jobs.at(10).wanted_gpus, 6);
  cr_assert_eq(jobs.at(11).wanted_gpus, 0);
  cr_assert_neq(jobs.at(10).tag().text().find(" basic=2 wanted=6 "), std::string::npos);
  cr_assert_eq(jobs.at(11).tag().text().find("wanted"), std::string::npos);
  // As after a restart of slurmctld.
  slurm.find(10)->admin_comment = jobs.at(10).tag().text();
  jobs.clear();
  reconcile(slurm.now, jobs, {}, 100);
  cr_assert_eq(jobs.at(10).wanted_gpus, 6);
}

Test(reconcile, owed_gpus_are_bound_to_those_held) {
  const struct {
    const char* what;
    int wanted, basic, owed;
  } cases[] = {{"an eighth, as submitted", 64, 8, 64},
               {"changed with scontrol to one GPU", 320, 1, 8},
               {"changed to a node less", 320, 8, 64},
               {"changed to more", 6, 8, 6},
               {"a number that no int holds", 2147483647, 8, 64}};
  for (const auto& each : cases) {
    FakeSlurm slurm(1);
    slurm.run_elastic(10, "node1", each.basic, " wanted=" + std::to_string(each.wanted));
    JobTable jobs;
    reconcile(slurm.now, jobs, {}, 100);
    cr_assert_eq(jobs.at(10).wanted_gpus, each.owed, "%s: %d", each.what, jobs.at(10).wanted_gpus);
  }
}

Test(reconcile, a_job_that_gives_up_nodes_while_it_runs_is_owed_no_more_than_eight_times_the_rest) {
  FakeSlurm slurm(1);
  slurm.run_elastic(10, "node1", 8, " wanted=64");
  JobTable jobs;
  reconcile(slurm.now, jobs, {}, 100);
  slurm.find(10)->gpus[0].gpus = {2, "h100", "0-1"};
  reconcile(slurm.now, jobs, {}, 101);
  cr_assert_eq(jobs.at(10).wanted_gpus, 16);
  slurm.find(10)->gpus[0].gpus = {8, "h100", "0-7"};
  reconcile(slurm.now, jobs, {}, 102);
  cr_assert_eq(jobs.at(10).wanted_gpus, 16, "it is not owed more again");
}

Test(reconcile, a_job_whose_tag_somebody_removed_keeps_what_it_has) {
  FakeSlurm slurm = lent("-");
  JobTable jobs;
  reconcile(slurm.now, jobs, issued_to(10), 100);
  slurm.find(10)->admin_comment = "JS1:abc";
  const Reconciled result = reconcile(slurm.now, jobs, issued_to(10), 101);
  cr_assert(result.cancel.empty());
  cr_assert_eq(jobs.at(10).companions.lent_gpus(), 4);
  // Another run under the same id has no tag.
  slurm.find(10)->start_time += 60;
  reconcile(slurm.now, jobs, issued_to(10), 103);
  cr_assert_not(jobs.contains(10));
}
