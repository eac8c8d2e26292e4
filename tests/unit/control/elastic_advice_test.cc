// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/elastic_advice.h"

#include <criterion/criterion.h>

using namespace swell::control;

namespace {

SiteFacts site() {
  SiteFacts facts;
  facts.gpus_by_type = {{"a100", 16}, {"h100", 16}};
  facts.grace_s = 60;
  return facts;
}

/// All that is said of a spec over a basic demand of 4, in one line.
std::string said_of(const char* text, const SiteFacts& facts = site()) {
  const auto spec = ElasticSpec::parse(text);
  cr_assert(spec.ok(), "%s", spec.error().message().c_str());
  std::string all;
  for (const std::string& each : advice(*spec, 4, facts)) all += each + "\n";
  return all;
}
void expect(const char* text, const char* words, const SiteFacts& facts = site()) {
  const std::string said = said_of(text, facts);
  cr_assert_neq(said.find(words), std::string::npos, "%s: %s", text, said.c_str());
}

}  // namespace

Test(elastic_advice, a_spec_that_the_site_can_serve_is_not_commented) {
  for (const char* text :
       {"", "max=32", "max=8x", "sizes=4/8/16", "types=a100/h100,grace=60", "max=4"})
    cr_assert_eq(said_of(text), std::string(), "%s: %s", text, said_of(text).c_str());
}

Test(elastic_advice, a_type_that_no_node_has_is_named_with_those_that_there_are) {
  expect("types=H100", "types=H100: no node has GPUs of that name; write types=h100\n");
  expect("types=h100/b200", "types=b200: no node has GPUs of that type; there are a100/h100\n");
}

Test(elastic_advice, a_size_above_max_is_named_with_the_max_that_it_takes) {
  expect("sizes=4/8/32,max=4x",
         "sizes=4/8/32: 32 is never reached, since max=4x allows 16 GPUs; write max=32\n");
  cr_assert_eq(said_of("sizes=4/8/32"), std::string(), "without max= a plan may reach it");
  expect("sizes=4/8,max=4", "8 is never reached, since max=4 allows 4 GPUs");
}

Test(elastic_advice, a_step_that_max_does_not_allow_is_named_with_the_max_that_it_takes) {
  expect("step=16,max=4x",
         "step=16: nothing is ever lent, since max=4x allows 16 GPUs; write max=20\n");
  cr_assert_eq(said_of("step=8,max=4x"), std::string());
  cr_assert_eq(said_of("step=16"), std::string(), "without max= a plan may reach it");
}

Test(elastic_advice, a_max_beyond_the_cluster_or_the_sites_cap_is_named) {
  expect("max=64", "max=64 is 64 GPUs, and this cluster has 32\n");
  expect("max=10x", "max=10x is 40 GPUs, and this cluster has 32\n");
  SiteFacts capped = site();
  capped.max_gpus_per_job = 8;
  expect("max=16", "max=16: this site lends a job at most 8 GPUs in all (MaxGPUsPerJob)", capped);
}

Test(elastic_advice, a_grace_that_slurm_does_not_give_is_named) {
  expect("grace=90", "grace=90: where Slurm itself takes lent GPUs back, this site gives 60 s");
}

Test(elastic_advice, the_user_hears_that_nothing_is_lent_for_now) {
  SiteFacts facts = site();
  facts.draining = true;
  expect("", "nothing is lent for now", facts);
}

Test(elastic_advice, a_deadline_is_promised_something_where_the_site_keeps_them_alone) {
  expect("deadline=6h", "deadline=6h: GPUs that keep it are lent to the job before others");
  SiteFacts facts = site();
  facts.keeps_deadlines = false;
  expect("deadline=6h", "deadline=6h: this site lends without a look at deadlines", facts);
}

Test(elastic_advice, nothing_is_said_of_what_is_not_known) {
  cr_assert_eq(said_of("types=H100,max=64,grace=900", SiteFacts{}), std::string());
}

Test(elastic_advice, a_slurm_that_changes_no_types_moves_no_running_jobs) {
  const char* text = "types=h100,table=t,switch=requeue";
  SiteFacts old = site();
  old.changes_gpu_types = false;
  cr_assert_neq(said_of(text, old).find("switch=requeue is not used"), std::string::npos);
  cr_assert_eq(said_of(text).find("switch=requeue"), std::string::npos);
}
