// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/lowering.h"

#include <criterion/criterion.h>
#include <limits>

#include "control/tag.h"

using namespace swell::controller;
using swell::control::Tag;

namespace {

/// One node with 8 GPUs, a task, 4 CPUs and 10 GB for each.
SubmitRequest eight() {
  SubmitRequest request;
  request.elastic = "min=4";
  request.tres_per_node = "gres:gpu:h100:8";
  request.min_nodes = request.max_nodes = 1;
  request.tasks = request.tasks_per_node = 8;
  request.cpus_per_task = 4;
  request.min_cpus = request.min_cpus_per_node = 32;
  request.memory_mib_per_node = 80000;
  return request;
}

/// Four such nodes.
SubmitRequest thirty_two() {
  SubmitRequest request = eight();
  request.min_nodes = request.max_nodes = 4;
  request.tasks = 32;
  request.min_cpus = 128;
  return request;
}

std::string refusal(const SubmitRequest& request, int min) {
  const auto lowered = lower(request, basic_gpus_of(request), min);
  return lowered ? std::string() : lowered.error().message();
}

bool says(const std::string& sentence, const char* words) {
  return sentence.find(words) != std::string::npos;
}

Admission admitted(const SubmitRequest& request, bool lowers) {
  GrantBook book;
  const auto admission = admit(request, {"expansion", ""}, book, 0, lowers);
  cr_assert(admission.ok(), "%s", admission.ok() ? "" : admission.error().message().c_str());
  return *admission;
}

}  // namespace

Test(lowering, one_node_is_asked_for_less_of_all) {
  const LoweredRequest lowered = *lower(eight(), 8, 2);
  cr_assert_eq(lowered.tres_per_node.value(), std::string("gres:gpu:h100:2"));
  cr_assert_not(lowered.nodes.has_value());
  cr_assert_eq(lowered.tasks.value(), 2);
  cr_assert_eq(lowered.tasks_per_node.value(), 2);
  cr_assert_eq(lowered.min_cpus.value(), 8);
  cr_assert_eq(lowered.min_cpus_per_node.value(), 8);
  cr_assert_eq(lowered.memory_mib_per_node.value(), 20000);
}

Test(lowering, several_nodes_become_fewer_of_the_same) {
  const LoweredRequest lowered = *lower(thirty_two(), 32, 8);
  cr_assert_eq(lowered.nodes.value(), 1);
  cr_assert_eq(lowered.tasks.value(), 8);
  cr_assert_eq(lowered.min_cpus.value(), 32);
  cr_assert_not(lowered.tres_per_node || lowered.tasks_per_node || lowered.min_cpus_per_node ||
                lowered.memory_mib_per_node);
}

Test(lowering, options_not_given_stay_so) {
  SubmitRequest bare;
  bare.tres_per_node = "gres/gpu:3";
  const LoweredRequest lowered = *lower(bare, 3, 2);
  cr_assert_eq(lowered.tres_per_node.value(), std::string("gres/gpu:2"));
  cr_assert_not(lowered.nodes || lowered.tasks || lowered.min_cpus || lowered.memory_mib_per_node);
}

Test(lowering, gpus_in_all_and_by_task) {
  SubmitRequest in_all;
  in_all.tres_per_job = "gres:gpu:8";
  in_all.min_nodes = 2;
  in_all.memory_mib_per_node = 1000;
  const LoweredRequest fewer = *lower(in_all, 8, 4);
  cr_assert_eq(fewer.tres_per_job.value(), std::string("gres:gpu:4"));
  cr_assert_not(fewer.nodes || fewer.memory_mib_per_node);
  SubmitRequest by_task;
  by_task.tres_per_task = "gres:gpu:1";
  by_task.tasks = 8;
  cr_assert_eq(lower(by_task, 8, 2)->tasks.value(), 2);
}

Test(lowering, requests_that_cannot_be_divided_are_refused_with_what_to_write) {
  SubmitRequest request = eight();
  request.tasks = 3;
  cr_assert(says(refusal(request, 4), "its 3 tasks cannot be divided by 4 of 8 GPUs"));
  request = eight();
  request.tasks_per_node = 5;
  cr_assert(says(refusal(request, 4), "its 5 tasks a node"));
  cr_assert(says(refusal(thirty_two(), 12), "multiple of the 8 GPUs of each, such as min=8"));
  cr_assert(says(refusal(thirty_two(), 4), "such as min=8"));
  request = thirty_two();
  request.required_nodes = "node[1-4]";
  cr_assert(says(refusal(request, 8), "--nodelist"));
  request = thirty_two();
  request.max_nodes = 6;
  cr_assert(says(refusal(request, 8), "--nodes=4"));
  request = eight();
  request.tres_per_node = "gres:gpu:h100:4,gres:gpu:a100:4";
  cr_assert(says(refusal(request, 4), "one kind of GPUs"));
  SubmitRequest one_task;
  one_task.tres_per_task = "gres:gpu:6";
  cr_assert(says(refusal(one_task, 3), "its one task cannot be divided by 3 of 6 GPUs"));
  SubmitRequest spread;
  spread.tres_per_job = "gres:gpu:4";
  spread.min_nodes = spread.max_nodes = 2;
  cr_assert(says(refusal(spread, 1), "its 2 nodes need a GPU each, so min must be at least 2"));
  cr_assert(refusal(spread, 2).empty());
  request = eight();
  request.tres_per_socket = "gres:gpu:4";
  cr_assert(says(refusal(request, 4), "--gpus-per-socket"));
}

Test(lowering, a_request_that_asks_for_two_numbers_of_gpus_is_never_raised) {
  SubmitRequest by_task;  // 8 by its tasks, 2 by its nodes
  by_task.tres_per_node = "gres:gpu:1";
  by_task.tres_per_task = "gres:gpu:1";
  by_task.min_nodes = by_task.max_nodes = 2;
  by_task.tasks = 8;
  cr_assert(
      says(refusal(by_task, 4), "it asks for 2 GPUs on its 2 nodes, and for 8 in another way"),
      "%s", refusal(by_task, 4).c_str());
  by_task.min_nodes = by_task.max_nodes = 1;  // 8 by its tasks, 1 on its node
  cr_assert(says(refusal(by_task, 4), "it asks for 1 GPU on its one node"), "%s",
            refusal(by_task, 4).c_str());
  SubmitRequest in_all;  // 8 in all, 4 on its node: Slurm takes two nodes
  in_all.tres_per_job = "gres:gpu:8";
  in_all.tres_per_node = "gres:gpu:4";
  cr_assert(says(refusal(in_all, 6), "write --nodes=2"), "%s", refusal(in_all, 6).c_str());
  in_all.min_nodes = in_all.max_nodes = 2;
  const LoweredRequest fewer = *lower(in_all, 8, 4);
  cr_assert_eq(fewer.nodes.value(), 1);
  cr_assert_eq(fewer.tres_per_job.value(), std::string("gres:gpu:4"));
}

Test(lowering, numbers_of_hostile_size_overflow_nothing) {
  SubmitRequest request = eight();
  request.memory_mib_per_node = std::numeric_limits<std::int64_t>::max();
  request.tasks = request.tasks_per_node = 1 << 30;
  request.min_cpus = std::numeric_limits<int>::max();
  const auto lowered = lower(request, 8, 4);
  if (lowered) {
    cr_assert_geq(lowered->memory_mib_per_node.value(), 0);
    cr_assert_geq(lowered->tasks.value(), 0);
  }
}

Test(lowering, a_job_that_consents_is_submitted_for_fewer_and_what_it_asked_for_is_recorded) {
  const Admission admission = admitted(eight(), true);
  cr_assert_eq(admission.lowered.tres_per_node.value(), std::string("gres:gpu:h100:4"));
  const Tag tag = *Tag::find(*admission.admin_comment);
  cr_assert_eq(tag.get("basic"), std::string("4"));
  cr_assert_eq(tag.get("wanted"), std::string("8"));
  cr_assert(says(admission.notice, "submitted for 4 of its 8 GPUs"), "%s",
            admission.notice.c_str());
}

Test(lowering, where_nothing_is_lowered_its_owner_hears_so) {
  const Admission admission = admitted(eight(), false);
  cr_assert_not(admission.lowered.tres_per_node.has_value());
  const Tag tag = *Tag::find(*admission.admin_comment);
  cr_assert_eq(tag.get("basic"), std::string("8"));
  cr_assert_eq(tag.get("wanted"), std::string());
  cr_assert(says(admission.notice, "min=4 is not used"), "%s", admission.notice.c_str());
  SubmitRequest all = eight();
  all.elastic = "min=8";
  cr_assert(admitted(all, true).notice.empty());
  cr_assert_not(admitted(all, true).lowered.tasks.has_value());
}
