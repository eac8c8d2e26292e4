// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/admission.h"

#include <criterion/criterion.h>
#include <limits>

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
  grant.offer.partition = "train";
  grant.offer.account = "lab";
  return grant;
}

/// Returns the submission of swellrun's salloc for live_grant().
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
  request.partition = "train";
  request.account = "lab";
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

bool says(const std::string& sentence, const char* words) {
  return sentence.find(words) != std::string::npos;
}

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
  request.uid = 1001;
  cr_assert(says(refusal(request), "the QOS \"expansion\" is for companions"));
}

Test(admission, a_companion_gets_exactly_what_was_offered) {
  struct {
    void (*change)(SubmitRequest&);
    const char* words;
  } const cases[] = {
      {[](SubmitRequest& r) { r.tres_per_node = "gres:gpu:h100:8"; },
       "GPUs: it asks for 8, the grant is for 4"},
      {[](SubmitRequest& r) { r.tres_per_node = "gres:gpu:a100:4"; }, "a100"},
      {[](SubmitRequest& r) { r.tres_per_job = "gres:gpu:4"; }, "--gres only"},
      {[](SubmitRequest& r) { r.required_nodes = "node3"; }, "node3"},
      {[](SubmitRequest& r) { r.min_nodes = 2; }, "nodes"},
      {[](SubmitRequest& r) { r.tasks = 64; }, "CPUs"},
      {[](SubmitRequest& r) { r.memory_mib_per_node = 500000; }, "memory"},
      {[](SubmitRequest& r) { r.time_limit_min = 61; }, "minutes"},
      {[](SubmitRequest& r) { r.time_limit_min = 0; }, "minutes"},
      {[](SubmitRequest& r) { r.name = "other"; }, "name"},
      {[](SubmitRequest& r) { r.name = "site-" + r.name; }, "put swell first in JobSubmitPlugins"},
      {[](SubmitRequest& r) { r.immediate = false; }, "immediate"},
      {[](SubmitRequest& r) { r.has_script = true; }, "script"},
      {[](SubmitRequest& r) { r.beyond_an_offer = "shared, licenses"; }, "(shared, licenses)"},
      {[](SubmitRequest& r) { r.all_memory = true, r.memory_mib_per_node = 0; },
       "all of the node's"},
      {[](SubmitRequest& r) { r.memory_mib_per_node = 0; }, "MiB of memory: it asks for 0"},
      {[](SubmitRequest& r) { r.memory_mib_per_cpu = 1; }, "--mem only"},
      {[](SubmitRequest& r) { r.partition = "urgent"; }, "partition"},
      {[](SubmitRequest& r) { r.partition = "train,urgent"; }, "partition"},
      {[](SubmitRequest& r) { r.account = "rich"; }, "account"},
      {[](SubmitRequest& r) { r.max_nodes = 0; }, "nodes"},
      {[](SubmitRequest& r) { r.min_cpus = 33; }, "CPUs"},
      {[](SubmitRequest& r) { r.min_cpus_per_node = 64; }, "CPUs"},
      {[](SubmitRequest& r) { r.tres_per_node = "gres:gpu:h100:4,gres:nic:2"; }, "GRES"},
      {[](SubmitRequest& r) { r.tres_per_node = "gres:gpu:h100:2,gres:gpu:h100:2"; }, "GRES"},
  };
  for (const auto& each : cases) {
    SubmitRequest request = companion();
    each.change(request);
    const std::string sentence = refusal(request);
    cr_assert(says(sentence, each.words), "%s: %s", each.words, sentence.c_str());
  }
}

Test(admission, a_qos_that_the_site_gives_every_job_gives_way_to_that_of_companions) {
  SubmitRequest request = companion();
  request.qos = "normal";
  GrantBook book;
  book.add(live_grant());
  const auto admission = admit(request, place, book, 50);
  cr_assert(admission.ok(), "%s", admission.ok() ? "" : admission.error().message().c_str());
  cr_assert_eq(admission->qos, std::string("expansion"));
  // Where companions have a partition and no QOS, the job's would hold.
  const auto in_partition = admit(request, {"", "expansion"}, book, 50);
  cr_assert_not(in_partition.ok());
}

Test(admission, numbers_of_hostile_size_overflow_nothing) {
  constexpr int huge = 100'000'000;
  SubmitRequest request = companion();
  request.tasks = request.cpus_per_task = request.min_cpus = huge;
  cr_assert(says(refusal(request), "CPUs"));
  request = companion();
  request.memory_mib_per_cpu = std::numeric_limits<std::int64_t>::max();
  request.tasks = 32;
  cr_assert_not(refusal(request).empty());
  request = companion();
  for (int i = 0; i < 5000; ++i) request.tres_per_node += ",gres:gpu:h100:1000000";
  cr_assert_not(refusal(request).empty());
  request = {};
  request.tres_per_task = "gres:gpu:1000000";
  request.tasks = huge;
  cr_assert_gt(basic_gpus_of(request), 0);
  request = {};
  request.tres_per_socket = "gres:gpu:1000000";
  request.sockets_per_node = request.min_nodes = huge;
  cr_assert_gt(basic_gpus_of(request), 0);
  request = {};
  request.tres_per_node = "gres:gpu:1000000";
  request.min_nodes = huge;
  cr_assert_gt(basic_gpus_of(request), 0);
}

Test(admission, the_place_of_companions_is_closed_to_everybody_else) {
  const char* const qos_names[] = {"expansion", "EXPANSION", "Expansion", "normal,expansion"};
  for (const char* name : qos_names) {
    SubmitRequest request;
    request.qos = name;
    cr_assert(says(refusal(request), "is for companions"), "%s", name);
  }
  const ExpansionPlace partition{"", "expansion"};
  for (const char* name : {"expansion", "train,expansion", "Expansion,train", "train, expansion"}) {
    GrantBook book;
    SubmitRequest request;
    request.partition = name;
    request.is_array = true;
    const auto admission = admit(request, partition, book, 0);
    cr_assert(!admission.ok() && says(admission.error().message(), "is for companions"), "%s",
              name);
  }
  GrantBook book;
  SubmitRequest other;
  other.qos = "expansions";
  other.partition = "pre-expansion";
  cr_assert(admit(other, place, book, 0).ok() && admit(other, partition, book, 0).ok());
}

Test(admission, no_job_is_changed_into_a_companion) {
  GrantBook book;
  book.companions().set({20});
  ChangeRequest request;
  request.uid = 1000;
  request.jobs = {30};
  request.qos = "normal";
  cr_assert(check_change(request, place, book).ok());
  const struct {
    void (*change)(ChangeRequest&);
    const char* words;
  } cases[] = {
      {[](ChangeRequest& r) { r.qos = "EXPANSION"; }, "is for companions"},
      {[](ChangeRequest& r) { r.comment = "swell-grant=n1"; }, "is for companions"},
      {[](ChangeRequest& r) { r.admin_comment = "swell[parent=1 grant=2]"; }, "by Swell alone"},
      {[](ChangeRequest& r) { r.jobs = {20}; }, "can be cancelled, not changed"},
      {[](ChangeRequest& r) {
         r.jobs = {30, 20};
       },
       "can be cancelled, not changed"},
  };
  for (const auto& each : cases) {
    ChangeRequest changed = request;
    each.change(changed);
    const auto allowed = check_change(changed, place, book);
    cr_assert(!allowed.ok() && says(allowed.error().message(), each.words), "%s", each.words);
    changed.by_slurm_or_root = true;
    cr_assert(check_change(changed, place, book).ok(), "SlurmUser: %s", each.words);
  }
  request.partition = "train,expansion";
  cr_assert_not(check_change(request, ExpansionPlace{"", "expansion"}, book).ok());
}

Test(admission, a_companion_whose_id_is_not_known_yet_cannot_be_changed) {
  GrantBook book;
  book.add(live_grant());
  ChangeRequest request;
  request.uid = 1000;
  request.jobs = {20};
  cr_assert(check_change(request, place, book).ok());
  cr_assert(admit(companion(), place, book, 50).ok());
  cr_assert_not(check_change(request, place, book).ok());
  request.uid = 1001;
  cr_assert(check_change(request, place, book).ok(), "others go on as they were");
  book.withdraw("n1");
  book.companions().set({20});
  request.uid = 1000;
  cr_assert_not(check_change(request, place, book).ok());
  request.jobs = {21};
  cr_assert(check_change(request, place, book).ok());
}

Test(admission, the_place_is_read_from_a_swell_conf_that_is_broken_or_off) {
  const ExpansionPlace read = swell::control::expansion_place_in(
      "Elasticity=no\nGrowthInterval=soon\nnonsense\n expansionqos = Lent # theirs\n");
  cr_assert_eq(read.qos, std::string("Lent"));
  cr_assert(read.partition.empty());
}

Test(admission, a_companion_whose_grant_another_plugin_took_is_no_ordinary_job) {
  const std::string taken = "the grant is not in its comment any more: a cli_filter of the site";
  SubmitRequest site = companion();
  site.comment = "site";
  cr_assert(says(refusal(site), taken.c_str()));
  SubmitRequest emptied = companion();
  emptied.comment.clear();
  emptied.immediate = false;  // by cli_filter, say
  cr_assert(says(refusal(emptied), taken.c_str()));
  SubmitRequest renamed = site;
  renamed.name = "physics-swell-10";
  cr_assert(says(refusal(renamed), taken.c_str()));
  SubmitRequest with_qos = site;
  with_qos.qos = "expansion";
  cr_assert(says(refusal(with_qos), taken.c_str()));
}

Test(admission, other_jobs_of_a_user_with_a_live_grant_pass) {
  const auto passes = [](auto change, bool used = false) {
    GrantBook book;
    book.add(live_grant());
    if (used) cr_assert(book.use("n1", 1000, 50).ok());
    SubmitRequest request = companion();
    request.comment = "mine";
    change(request);
    const auto admission = admit(request, place, book, 50);
    return admission.ok() && !admission->is_companion;
  };
  cr_assert(passes([](SubmitRequest& r) { r.has_script = true; }));
  cr_assert(passes([](SubmitRequest& r) { r.uid = 1001; }));
  cr_assert(passes([](SubmitRequest& r) { r.name = "bash", r.required_nodes = "node1"; }));
  cr_assert(passes([](SubmitRequest& r) { r.name = "bash", r.immediate = false; }));
  cr_assert(passes([](SubmitRequest& r) { r.name = "bash", r.tres_per_node = "gres:gpu:h100:3"; }));
  cr_assert(passes([](SubmitRequest&) {}, true));
}

Test(admission, text_of_a_site_before_and_behind_the_grant_does_no_harm) {
  for (const char* comment :
       {"site: swell-grant=n1", "swell-grant=n1;cost=7", "a swell-grant=n1 b"}) {
    GrantBook book;
    book.add(live_grant());
    SubmitRequest request = companion();
    request.comment = comment;
    const auto admission = admit(request, place, book, 50);
    cr_assert(admission.ok(), "%s", comment);
    cr_assert(admission->is_companion);
  }
}

Test(admission, a_grant_that_was_refused_holds_nothing_and_is_known_until_its_agent_says_so) {
  GrantBook book;
  book.add(live_grant());
  SubmitRequest nice = companion();
  nice.beyond_an_offer = "nice=0xa";
  cr_assert_not(admit(nice, place, book, 50).ok());
  cr_assert(book.outstanding().empty());
  cr_assert_not(book.has_unseen_companion_of(1000));
  cr_assert(book.find("n1")->refused);
  cr_assert_not(admit(companion(), place, book, 51).ok(), "nobody tries fields out");
  cr_assert_eq(book.take_expired(101).size(), 1u);
}

Test(admission, switch_needs_a_job_that_slurm_can_requeue) {
  SubmitRequest request = elastic("types=a100,table=t,switch=requeue");
  const auto why = [&](bool by_default) {
    const auto can = check_requeue(request, by_default);
    return can ? std::string() : can.error().message();
  };
  cr_assert_neq(why(true).find("switch=requeue is for jobs of sbatch"), std::string::npos);
  request.has_script = true;
  cr_assert_eq(why(true), std::string());
  cr_assert_neq(why(false).find("add --requeue, since this site requeues none by default"),
                std::string::npos);
  request.may_requeue = true;
  cr_assert_eq(why(false), std::string());
  request.may_requeue = false;
  cr_assert_neq(why(true).find("leave --no-requeue out"), std::string::npos);
  request.elastic = "types=a100";
  cr_assert_eq(why(true), std::string(), "others are not looked at");
}
