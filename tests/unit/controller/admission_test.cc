// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/admission.h"

#include <criterion/criterion.h>

#include "control/tag.h"

using namespace swell::controller;
using swell::control::Tag;

namespace {

const ExpansionPlace place{"expansion", ""};

LiveGrant live_grant() {
  LiveGrant grant;
  grant.parent = 10;
  grant.uid = 1000;
  grant.expires = 100;
  grant.offer.nonce = "n1";
  grant.offer.name = "swell-10";
  grant.offer.node = "node2";
  grant.offer.gpu_type = "h100";
  grant.offer.gpus = grant.offer.workers = 4;
  grant.offer.cpus = 32;
  grant.offer.memory_mib = 4000;
  grant.offer.time_limit_min = 60;
  return grant;
}

/// What swellrun's salloc submits for live_grant().
SubmitRequest companion() {
  SubmitRequest request;
  request.uid = 1000;
  request.name = "swell-10";
  request.comment = "swell-grant=n1";
  request.required_nodes = "node2";
  request.tres_per_node = "gres:gpu:h100:4";
  request.min_nodes = request.max_nodes = 1;
  request.tasks = 4;
  request.cpus_per_task = 8;
  request.memory_mib_per_node = 4000;
  request.time_limit_min = 60;
  request.immediate = true;
  return request;
}

SubmitRequest elastic(const char* spec) {
  SubmitRequest request;
  request.tres_per_node = "gres:gpu:4";
  request.min_nodes = 2;
  request.elastic = spec;
  return request;
}

std::string refusal(const SubmitRequest& request, double now = 50) {
  GrantBook book;
  book.add(live_grant());
  const auto admission = admit(request, place, book, now);
  cr_assert_not(admission.ok(), "it was admitted");
  return admission.error().message();
}

bool says(const std::string& sentence, const char* words) { return sentence.find(words) != std::string::npos; }

}  // namespace

Test(admission, records_the_spec_and_the_basic_demand) {
  GrantBook book;
  const auto admission = admit(elastic("max=3x"), place, book, 0);
  cr_assert(admission.ok());
  const Tag tag = Tag::find(admission->admin_comment.value()).value();
  cr_assert_eq(tag.get("elastic"), std::string("max=3x,consistency=relaxed,mode=restart,grace=30"));
  cr_assert_eq(tag.number("basic").value(), 8);
}

Test(admission, counts_gpus_however_they_are_asked_for) {
  SubmitRequest request;
  request.tres_per_job = "gres:gpu:6";
  cr_assert_eq(basic_gpus_of(request), 6);
  request = {};
  request.tres_per_task = "gres:gpu:h100:1";
  request.tasks = 5;
  cr_assert_eq(basic_gpus_of(request), 5);
  request = {};
  request.tres_per_socket = "gres:gpu:2";
  request.sockets_per_node = 2;
  request.min_nodes = 3;
  cr_assert_eq(basic_gpus_of(request), 12);
}

Test(admission, refuses_elastic_jobs_that_cannot_be) {
  SubmitRequest none = elastic("");
  none.tres_per_node.clear();
  cr_assert(says(refusal(none), "no GPUs"));
  SubmitRequest het = elastic("");
  het.is_het_component = true;
  cr_assert(says(refusal(het), "heterogeneous"));
  cr_assert(says(refusal(elastic("max=4")), "below the 8 GPUs"));
  cr_assert(says(refusal(elastic("speed=1")), "unknown key"));
}

Test(admission, lets_other_jobs_pass_unchanged) {
  GrantBook book;
  SubmitRequest request;
  request.comment = "an elastic search";
  const auto admission = admit(request, place, book, 0);
  cr_assert(admission.ok());
  cr_assert_not(admission->admin_comment.has_value());
  cr_assert_not(admission->is_companion);
}

Test(admission, a_user_cannot_write_a_tag) {
  GrantBook book;
  SubmitRequest request;
  request.admin_comment = "hello swell[parent=3 grant=x] swswell[x=1]ell[y=1]";
  const auto admission = admit(request, place, book, 0);
  cr_assert(admission.ok());
  cr_assert_not(Tag::find(admission->admin_comment.value()).has_value());
}

Test(admission, a_companion_as_offered_is_admitted_once) {
  GrantBook book;
  book.add(live_grant());
  const auto admission = admit(companion(), place, book, 50);
  cr_assert(admission.ok(), "%s", admission.error().message().c_str());
  cr_assert(admission->is_companion);
  cr_assert_eq(admission->qos, std::string("expansion"));
  const Tag tag = Tag::find(admission->admin_comment.value()).value();
  cr_assert_eq(tag.number("parent").value(), 10);
  cr_assert_eq(tag.get("grant"), std::string("n1"));
  cr_assert(says(admit(companion(), place, book, 50).error().message(), "used already"));
}

Test(admission, a_companion_needs_a_live_grant_of_its_own_user) {
  SubmitRequest request = companion();
  request.comment = "swell-grant=guess";
  cr_assert(says(refusal(request), "no live grant"));
  request = companion();
  request.uid = 1001;
  cr_assert(says(refusal(request), "no live grant"));
  cr_assert(says(refusal(companion(), 100), "expired"));
  request = companion();
  request.comment.clear();
  request.qos = "expansion";
  cr_assert(says(refusal(request), "the QOS \"expansion\" is for companions"));
}

Test(admission, a_companion_gets_exactly_what_was_offered) {
  struct {
    void (*change)(SubmitRequest&);
    const char* words;
  } const cases[] = {
      {[](SubmitRequest& r) { r.tres_per_node = "gres:gpu:h100:8"; }, "GPUs: it asks for 8, the grant is for 4"},
      {[](SubmitRequest& r) { r.tres_per_node = "gres:gpu:a100:4"; }, "a100"},
      {[](SubmitRequest& r) { r.tres_per_job = "gres:gpu:4"; }, "--gres only"},
      {[](SubmitRequest& r) { r.required_nodes = "node3"; }, "node3"},
      {[](SubmitRequest& r) { r.min_nodes = 2; }, "nodes"},
      {[](SubmitRequest& r) { r.tasks = 64; }, "CPUs"},
      {[](SubmitRequest& r) { r.memory_mib_per_node = 500000; }, "memory"},
      {[](SubmitRequest& r) { r.time_limit_min = 61; }, "minutes"},
      {[](SubmitRequest& r) { r.time_limit_min = 0; }, "minutes"},
      {[](SubmitRequest& r) { r.name = "other"; }, "name"},
      {[](SubmitRequest& r) { r.immediate = false; }, "immediate"},
      {[](SubmitRequest& r) { r.has_script = true; }, "script"},
  };
  for (const auto& each : cases) {
    SubmitRequest request = companion();
    each.change(request);
    const std::string sentence = refusal(request);
    cr_assert(says(sentence, each.words), "%s: %s", each.words, sentence.c_str());
  }
}
