// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/elastic_spec.h"

#include <criterion/criterion.h>
#include <limits>

using swell::control::Consistency;
using swell::control::ElasticSpec;

namespace {

ElasticSpec good(const char* text) {
  auto spec = ElasticSpec::parse(text);
  cr_assert(spec.ok(), "%s: %s", text, spec.error().message().c_str());
  return *spec;
}

std::string reason(const char* text) {
  const auto spec = ElasticSpec::parse(text);
  cr_assert_not(spec.ok(), "%s was accepted", text);
  return spec.error().message();
}

bool says(const std::string& sentence, const char* words) {
  return sentence.find(words) != std::string::npos;
}

}  // namespace

Test(elastic_spec, no_value_means_the_defaults) {
  cr_assert(good("") == ElasticSpec{});
  cr_assert_not(good("").has_max());
}

Test(elastic_spec, limits_a_job_without_max_only_where_it_is_not_planned) {
  cr_assert_eq(good("").max_total(4, false), 16);
  cr_assert_eq(good("").max_total(4, true), ElasticSpec::kNoLimit);
  cr_assert_eq(good("").max_total(2 * ElasticSpec::kNoLimit, true), 2 * ElasticSpec::kNoLimit);
  for (const bool planned : {false, true}) {
    cr_assert_eq(good("max=2x").max_total(4, planned), 8);
    cr_assert_eq(good("max=6").max_total(4, planned), 6);
    cr_assert_eq(good("max=4x").max_total(4, planned), 16, "jobs of before have it in full");
  }
  cr_assert_eq(good("").max_total(ElasticSpec::kNoLimit, false), ElasticSpec::kNoLimit);
}

Test(elastic_spec, reads_every_key) {
  const ElasticSpec spec =
      good("max=32,sizes=8/16/32,types=h100/a100,consistency=exact,mode=restart,grace=90");
  cr_assert_eq(spec.max_gpus.value(), 32);
  cr_assert_eq(spec.sizes.size(), 3u);
  cr_assert_eq(spec.types.at(1), std::string("a100"));
  cr_assert(spec.consistency == Consistency::exact);
  cr_assert_eq(spec.grace_s, 90);
  const ElasticSpec more = good("step=4,stay=600,grow=120");
  cr_assert_eq(more.step, 4);
  cr_assert_eq(more.stay_s, 600);
  cr_assert_eq(more.grow_s, 120);
  const ElasticSpec typed = good("types=h100/a100,steps=1000000000000,table=/d/gpt.json");
  cr_assert_eq(typed.steps, 1'000'000'000'000);
  cr_assert_eq(typed.table, std::string("/d/gpt.json"));
}

Test(elastic_spec, keys_that_are_not_given_are_not_written_so_that_older_programs_read_the_text) {
  cr_assert_eq(good("").text(), "consistency=relaxed,mode=restart,grace=30");
  cr_assert_eq(good("grow=9,stay=8,step=7,max=6").text(),
               "max=6,step=7,consistency=relaxed,mode=restart,grace=30,stay=8,grow=9");
  cr_assert(good("stay=0") == good(""), "the site's time alone");
}

Test(elastic_spec, its_text_reads_back_to_itself) {
  for (const char* text : {"", "max=7", "max=8,min=4", "max=2.5x", "sizes=1/2/4,types=v100",
                           "consistency=exact,grace=5", "step=4,stay=600,grow=120", "step=1",
                           "steps=5,table=g.json", "types=v100,table=g.json,switch=requeue"}) {
    const ElasticSpec spec = good(text);
    cr_assert(good(spec.text().c_str()) == spec, "%s", text);
  }
}

Test(elastic_spec, an_error_names_the_key_and_what_is_allowed) {
  cr_assert(says(reason("colour=red"), "unknown key \"colour\"; the keys are max, min, sizes"));
  cr_assert(says(reason("max=-1"), "max=-1 is not valid; max must be a number of GPUs"));
  cr_assert(says(reason("max=0.5x"), "max=0.5x"));
  cr_assert(says(reason("min=0"), "min=0 is not valid; min must be a number of GPUs (min=4)"));
  cr_assert(says(reason("min=half"), "min=half"));
  cr_assert(says(reason("sizes=8/4"), "rising"));
  cr_assert(says(reason("sizes=8//16"), "sizes=8//16"));
  cr_assert(says(reason("sizes=2,4,8"), "within a list use '/': sizes=2/4/8"));
  cr_assert(
      says(reason("max=16,types=h100,a100,grace=9"), "within a list use '/': types=h100/a100"));
  cr_assert(says(reason("sizes=2/4,colour"), "within a list"));
  cr_assert(says(reason("sizes=2/4,grace"), "write grace=VALUE"));
  cr_assert(says(reason("types=h 100"), "GPU types"));
  cr_assert(says(reason("consistency=maybe"), "exact or relaxed"));
  cr_assert(says(reason("grace=0"), "from 1 to 86400"));
  cr_assert(says(reason("grace=5s"), "grace=5s"));
  cr_assert(says(reason("step=0"), "step=0 is not valid; step must be a number of GPUs (step=4)"));
  cr_assert(says(reason("stay=-1"), "from 0 to 604800"));
  cr_assert(says(reason("stay=604801"), "stay=604801"));
  cr_assert(says(reason("grow=0"), "from 1 to 86400"));
  cr_assert(says(reason("grow=86401"), "grow=86401"));
  cr_assert(says(reason("step=2,sizes=4/8"), "step=2 and sizes=4/8 are both given; give one"));
  cr_assert(says(reason("steps=0"), "steps=0 is not valid; steps must be a whole number of steps"));
  cr_assert(says(reason("steps=1e6"), "steps=1e6"));
  cr_assert(says(reason("table=my file.json"), "a file whose name has no blanks"));
  cr_assert(says(reason("types=v100,table=g,switch=live"),
                 "switch=live is not valid; switch must be requeue"));
  cr_assert(says(reason("table=g,switch=requeue"), "switch=requeue needs the GPU types"));
  cr_assert(
      says(reason("types=v100,switch=requeue"), "switch=requeue needs a table of its speeds"));
  cr_assert(says(reason("max"), "write max=VALUE"));
  cr_assert(says(reason("max=4,max=8"), "twice"));
  cr_assert(says(reason("max=nanx"), "max=nanx"));
  cr_assert(says(reason("max=99999999999999999999"), "max="));
}

Test(elastic_spec, accepted_specs_read_back_from_their_own_text) {
  std::string types = "types=h100";
  while (types.size() + 5 <= 1024) types += "/h100";
  cr_assert(says(reason(types.c_str()), "shorten types"));
  types.resize(900 - 900 % 5);
  cr_assert(good(good(types.c_str()).text().c_str()) == good(types.c_str()));
}

Test(elastic_spec, both_modes_are_read_and_others_refused) {
  cr_assert(good("mode=live").mode == swell::control::Mode::live);
  cr_assert(good("mode=restart").mode == swell::control::Mode::restart);
  cr_assert(good(good("mode=live").text().c_str()).mode == swell::control::Mode::live);
  cr_assert(says(reason("mode=lively"), "restart or live"));
}

Test(elastic_spec, is_checked_against_the_basic_demand) {
  cr_assert(says(good("max=2").check_basic(4).error().message(), "max=2 is below the 4 GPUs"));
  cr_assert(says(good("sizes=8/16").check_basic(4).error().message(), "add 4"));
  cr_assert(says(good("").check_basic(0).error().message(), "no GPUs"));
  cr_assert(good("sizes=4/8,max=8").check_basic(4).ok());
}

Test(elastic_spec, sizes_of_the_program_narrow_the_request) {
  using Sizes = std::vector<int>;
  using swell::control::common_sizes;
  cr_assert(common_sizes({}, {}, 2) == Sizes{}, "any");
  cr_assert(common_sizes({2, 4}, {}, 2) == (Sizes{2, 4}), "as the user said");
  cr_assert(common_sizes({}, {1, 2, 6}, 2) == (Sizes{2, 6}), "as the program said");
  cr_assert(common_sizes({2, 3, 6}, {2, 4, 6, 8}, 2) == (Sizes{2, 6}), "both");
  cr_assert(common_sizes({2, 3}, {4}, 2) == Sizes{2}, "never nothing, which means any");
}

Test(elastic_spec, min_lies_between_an_eighth_of_the_basic_demand_and_all_of_it) {
  const auto refused = [](const char* text, int basic) {
    const auto fits = good(text).check_basic(basic);
    return fits ? std::string() : fits.error().message();
  };
  cr_assert(refused("min=2", 16).empty());
  cr_assert(refused("min=16", 16).empty());
  cr_assert(says(refused("min=16", std::numeric_limits<int>::max()), "at least 268435456"));
  cr_assert(says(refused("min=17", 16), "min=17 is above the 16 GPUs"));
  cr_assert(says(refused("min=1", 16), "below an eighth of the 16 GPUs"));
  cr_assert(says(refused("min=1", 9), "min must be at least 2"));
  cr_assert(says(refused("min=4,sizes=8/16", 16), "does not contain min=4; add 4"));
  cr_assert(refused("min=8,sizes=8/16", 16).empty());
}

Test(elastic_spec, keys_that_are_not_parted_by_commas_are_said) {
  for (const char* text : {"max=4;grace=3", "max=4; grace=3", "max=4 grace=3", "max=4|grace=3",
                           "max=4&grace=3", "max=4:grace=3", "max=4,;grace=3", "max=4/grace=3"}) {
    const auto spec = ElasticSpec::parse(text);
    cr_assert_not(spec.ok(), "%s", text);
    cr_assert_eq(spec.error().message(),
                 std::string("--elastic: use commas between keys, without blanks: max=4,grace=3"),
                 "%s: %s", text, spec.error().message().c_str());
  }
  cr_assert_eq(
      ElasticSpec::parse("sizes=2/4;mode=live").error().message(),
      std::string("--elastic: use commas between keys, without blanks: sizes=2/4,mode=live"));
}

Test(elastic_spec, steps_count_from_the_basic_demand_and_from_min) {
  using Sizes = std::vector<int>;
  cr_assert(good("").totals(6, 16) == Sizes{}, "any");
  cr_assert(good("sizes=2/6/14").totals(6, 8) == (Sizes{2, 6, 14}));
  cr_assert(good("step=4").totals(6, 16) == (Sizes{6, 10, 14}));
  cr_assert(good("step=4").totals(6, 9) == Sizes{6}, "never nothing, which means any");
  cr_assert(good("step=1000000").totals(1'000'000, std::numeric_limits<int>::max()).size() > 2000);
  cr_assert(good("step=1").totals(6, 16) == Sizes{}, "any number is a step of one");
  cr_assert(good("min=2,step=3").check_basic(8).ok());
  const auto refused = good("min=3,step=4").check_basic(8);
  cr_assert_not(refused.ok());
  cr_assert(says(refused.error().message(),
                 "min=3 cannot reach the 8 GPUs that the job asks for by "
                 "steps of step=4; write min=4"));
}
