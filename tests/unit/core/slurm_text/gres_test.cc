// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/gres.h"

#include <criterion/criterion.h>

using namespace swell::slurm_text;

Test(gres, reads_every_spelling_of_gpus) {
  const struct {
    const char* text;
    GpuRequest gpus;
  } cases[] = {
      {"gres:gpu:4", {4, "", ""}},
      {"gres/gpu:h100:4", {4, "h100", ""}},
      {"gres/gpu=4", {4, "", ""}},
      {"gres/gpu:h100=4", {4, "h100", ""}},
      {"gpu:h100:8(S:0-1)", {8, "h100", ""}},
      {"gpu:h100:4(IDX:0-2,7)", {4, "h100", "0-2,7"}},
      {"gpu", {1, "", ""}},
      {"gres:gpu:h100", {1, "h100", ""}},
      {"gpu:0(IDX:N/A)", {0, "", "N/A"}},
  };
  for (const auto& each : cases) {
    const auto found = parse_gpus(each.text);
    cr_assert_eq(found.size(), 1u, "%s", each.text);
    cr_assert(found[0] == each.gpus, "%s: %d %s %s", each.text, found[0].count,
              found[0].type.c_str(), found[0].indices.c_str());
  }
}

Test(gres, skips_other_resources_and_adds_up_types) {
  cr_assert(parse_gpus("craynetwork:1,gpumem:80G,shard:4").empty());
  const GpuRequest sum = sum_gpus("gres:gpu:a100:2,nic:1,gres:gpu:h100:3");
  cr_assert_eq(sum.count, 5);
  cr_assert_eq(sum.type, std::string("a100"));
}

Test(gres, reads_tres_values_with_units) {
  const char* tres = "cpu=32,mem=4000M,node=1,billing=32,gres/gpu=4";
  cr_assert_eq(tres_value(tres, "cpu"), 32);
  cr_assert_eq(tres_value(tres, "mem"), 4000);
  cr_assert_eq(tres_value("mem=1.5G", "mem"), 1536);
  cr_assert_eq(tres_value("mem=2T", "mem"), 2 * 1024 * 1024);
  cr_assert_eq(tres_value(tres, "gres/gpu"), 4);
  cr_assert_eq(tres_value(tres, "fs"), 0);
}

Test(gres, keeps_hostile_numbers_in_range) {
  std::string list = "gpu:9223372036854775807";
  for (int i = 0; i < 12; ++i) list += "," + list;
  cr_assert_eq(sum_gpus(list).count, 1'000'000);
  cr_assert_eq(tres_value("mem=nan", "mem"), 0);
  cr_assert_eq(tres_value("mem=inf", "mem"), 0);
  cr_assert_eq(tres_value("mem=-5", "mem"), 0);
  cr_assert_eq(tres_value("mem=1e300P", "mem"), 1'000'000'000'000'000'000);
  cr_assert_eq(count_array_tasks("0-9223372036854775807,0-9223372036854775807"), 1'000'000);
}

Test(gres, counts_the_tasks_of_an_array) {
  cr_assert_eq(count_array_tasks("0-9"), 10);
  cr_assert_eq(count_array_tasks("0-9:2%3"), 5);
  cr_assert_eq(count_array_tasks("1,3,5-7"), 5);
  cr_assert_eq(count_array_tasks("garbage"), 1);
}

Test(gres, writes_another_count_in_every_spelling) {
  const std::pair<const char*, const char*> cases[] = {
      {"gres:gpu:8", "gres:gpu:2"},
      {"gres/gpu:h100:8", "gres/gpu:h100:2"},
      {"gres/gpu=8", "gres/gpu=2"},
      {"gres/gpu:h100=8", "gres/gpu:h100=2"},
      {"gpu", "gpu:2"},
      {"gres:gpu:h100", "gres:gpu:h100:2"},
      {"gpu:h100:8(S:0-1)", "gpu:h100:2(S:0-1)"},
      {"gres:lustre:1,gres:gpu:8,gres:gpux:3", "gres:lustre:1,gres:gpu:2,gres:gpux:3"},
  };
  for (const auto& [before, after] : cases) {
    const auto made = with_gpus(before, 2);
    cr_assert(made.has_value(), "%s", before);
    cr_assert_eq(*made, std::string(after), "%s", made->c_str());
    cr_assert_eq(sum_gpus(*made).count, 2);
  }
  cr_assert_not(with_gpus("gres:gpu:h100:4,gres:gpu:a100:4", 2).has_value(), "two kinds");
  cr_assert_not(with_gpus("gres:lustre:1", 2).has_value());
}

Test(gres, the_type_of_the_gpus_is_replaced_and_all_else_stays) {
  const auto typed = [](const char* list) { return with_gpu_type(list, "a100").value_or("none"); };
  cr_assert_eq(typed("gres:gpu:h100:4"), std::string("gres:gpu:a100:4"));
  cr_assert_eq(typed("gres/gpu:4"), std::string("gres/gpu:a100:4"));
  cr_assert_eq(typed("gpu:h100:8(S:0-1)"), std::string("gpu:a100:8(S:0-1)"));
  cr_assert_eq(typed("gpu"), std::string("gpu:a100:1"));
  cr_assert_eq(typed("gpu:h100"), std::string("gpu:a100:1"));
  cr_assert_eq(typed("gres/gpu=4"), std::string("gres/gpu:a100=4"));
  cr_assert_eq(typed("gres/tmp:1,gres/gpu:h100:4"), std::string("gres/tmp:1,gres/gpu:a100:4"));
  cr_assert_eq(typed("gres/gpu:h100:2,gres/gpu:v100:2"), std::string("none"));
  cr_assert_eq(typed("gres/tmp:1"), std::string("none"));
}

Test(gres, both_lists_of_a_job_get_one_type_or_none_does) {
  const auto typed = [](const char* in_all, const char* per_node) {
    const auto lists = with_gpu_type_in_both({in_all, per_node}, "a100");
    return lists ? lists->in_all + " " + lists->per_node : std::string("none");
  };
  cr_assert_eq(typed("gres:gpu:h100:8", "gres:gpu:h100:4"),
               std::string("gres:gpu:a100:8 gres:gpu:a100:4"));
  cr_assert_eq(typed("gres:tmp:1", "gres:gpu:4"), std::string(" gres:gpu:a100:4"));
  cr_assert_eq(typed("gres:gpu:h100:8", ""), std::string("gres:gpu:a100:8 "));
  for (const auto& [in_all, per_node] : {std::pair{"gres:gpu:h100:4,gres:gpu:v100:4", "gres:gpu:4"},
                                         {"gres:gpu:8", "gres:gpu:h100:2,gres:gpu:v100:2"},
                                         {"", "gres:tmp:1"}})
    cr_assert_eq(typed(in_all, per_node), std::string("none"), "%s %s", in_all, per_node);
}
