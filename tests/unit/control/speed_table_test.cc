// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/speed_table.h"

#include <criterion/criterion.h>
#include <fmt/format.h>

using namespace swell;
using namespace swell::control;

namespace {

constexpr const char* kGrid = R"({"model": "gpt 1b", "cluster": "mine", "source": "data-sheets",
  "samples_per_step": 64, "complete": true, "rows": [
  {"type": "h100", "gpus": 4, "samples_per_s": 40, "by": "incremental", "source": "one-device",
   "peak_bytes": 1, "plan": {}},
  {"type": "h100", "gpus": 1, "why": "does not fit"},
  {"type": "h100", "gpus": 2, "samples_per_s": 22, "source": "one-device"},
  {"type": "a100", "gpus": 2, "samples_per_s": 10.5},
  {"type": "a100", "gpus": 8, "samples_per_s": 36.123456789}]})";

SpeedTable table() {
  auto read = SpeedTable::from_json(kGrid);
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  return *read;
}

std::string reason(const std::string& json) {
  const auto read = SpeedTable::from_json(json);
  cr_assert_not(read.ok(), "%s", json.c_str());
  return read.error().message();
}

std::string with_row(const std::string& row) {
  return R"({"model": "m", "samples_per_step": 8, "rows": [)" + row + "]}";
}

void says(const std::string& text, const char* words) {
  cr_assert_neq(text.find(words), std::string::npos, "%s", text.c_str());
}

}  // namespace

Test(speed_table, what_swell_plan_prints_is_sent_as_a_short_text_and_read_back) {
  const std::string text = table().text();
  cr_assert_eq(text,
               std::string("gpt_1b;64;a100:data-sheets:2=10.5,8=36.1235;"
                           "h100:one-device:2=22,4=40"),
               "%s", text.c_str());
  const auto read = SpeedTable::parse(text);
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  cr_assert_eq(read->text(), text);
  cr_assert(read->source_of("h100") == planner::ScaleSource::one_device);
  cr_assert(read->source_of("a100") == planner::ScaleSource::data_sheets);
  cr_assert(read->source_of("v100") == planner::ScaleSource::unknown);
}

Test(speed_table, whatever_a_model_is_called_its_text_is_read_back) {
  for (const auto& [name, word] : {std::pair{"", "-"}, {"a;b c", "a_b_c"}, {"x]y", "x_y"}}) {
    const auto its = SpeedTable::from_json(
        fmt::format(R"({{"model": "{}", "samples_per_step": 8, "rows": [)", name) +
        R"({"type": "h100", "gpus": 2, "samples_per_s": 1}]})");
    cr_assert(its.ok(), "%s", its.error().message().c_str());
    cr_assert_eq(its->model, std::string(word));
    cr_assert_eq(SpeedTable::word_of(name), std::string(word));
    const auto read = SpeedTable::parse(its->text());
    cr_assert(read.ok(), "%s", its->text().c_str());
  }
}

Test(speed_table, a_number_between_two_rows_lies_on_the_line_and_none_below_the_first) {
  const SpeedTable its = table();
  cr_assert_eq(*its.speed("h100", 4), 40);
  cr_assert_float_eq(*its.speed("h100", 3), 31, 1e-9);
  cr_assert_eq(*its.speed("h100", 64), 40, "more GPUs than were planned for bring nothing");
  cr_assert_not(its.speed("h100", 1));
  cr_assert_not(its.speed("v100", 2));
}

Test(speed_table, the_fastest_row_is_within_the_types_and_the_number) {
  const SpeedTable its = table();
  cr_assert_eq(its.fastest({}, 100)->gpus, 4);
  cr_assert_eq(its.fastest({"a100"}, 100)->gpus, 8);
  cr_assert_eq(its.fastest({"a100", "h100"}, 2)->type, std::string("h100"));
  cr_assert_null(its.fastest({}, 1));
  cr_assert_null(its.fastest({"v100"}, 100));
}

Test(speed_table, each_mistake_in_a_file_is_one_sentence_with_the_value_and_the_remedy) {
  says(reason("{"), "swell plan --model MODEL --cluster CLUSTER --grid --json");
  says(reason(R"({"swell_table": 1})"), "--table FILE --grid --json");
  says(reason(R"({"model": "m", "samples_per_step": 8})"), "no list \"rows\"");
  says(reason(R"({"model": "m", "rows": [{"type": "h100", "gpus": 1}]})"), "samples_per_step");
  says(reason(with_row(R"({"type": "h 100", "gpus": 1})")), "\"type\" is \"h 100\"");
  says(reason(with_row(R"({"type": "h100", "gpus": 0})")), "row 1");
  says(reason(with_row(R"({"type": "h100", "gpus": 1, "samples_per_s": -2})")), "samples_per_s");
  says(reason(with_row(R"({"type": "h100", "gpus": 1, "samples_per_s": 1, "source": "hearsay"})")),
       "\"source\" is \"hearsay\"");
  says(reason(with_row(R"({"type": "h100", "gpus": 1})")), "no plan that fits");
  const std::string row = R"({"type": "h100", "gpus": 2, "samples_per_s": 1})";
  says(reason(with_row(row + "," + row)), "2 GPUs of h100 twice");
}

Test(speed_table, a_table_over_its_size_is_refused_with_both_sizes) {
  std::string rows;
  for (int gpus = 1; gpus <= 600; ++gpus)
    rows += fmt::format(R"({}{{"type": "h100", "gpus": {}, "samples_per_s": {}.25}})",
                        gpus == 1 ? "" : ",", gpus, gpus);
  const std::string why = reason(with_row(rows));
  says(why, "at most 4096 are sent");
  says(why, "--sizes");
}

Test(speed_table, hostile_text_is_refused) {
  for (const char* text :
       {"", "m", "m;8", "m;8;", "m;8;h100", "m;8;h100:data-sheets:", "m;8;h100:data-sheets:1",
        "m;8;h100:data-sheets:0=1", "m;8;h100:data-sheets:1=nan", "m;8;h100:data-sheets:1=inf",
        "m;8;h100:data-sheets:1=-1", "m;8;h100:hearsay:1=1", "m;nan;h100::1=1", "m;0;h100::1=1",
        "m x;8;h100::1=1", "m;8;h]100::1=1", "m;8;h100::1=1,1=2", "m;8;h100::1=1 ]swell[elastic="})
    cr_assert_not(SpeedTable::parse(text).ok(), "%s", text);
  cr_assert(SpeedTable::parse("m;8;h100::1=1").ok());
  cr_assert_not(SpeedTable::parse("m;8;h100::1=1" + std::string(5000, '0')).ok());
}

Test(speed_table, a_file_that_is_not_there_or_is_none_is_named) {
  const auto why = [](const char* path) { return SpeedTable::from_file(path).error().message(); };
  says(why("/nowhere/gpt.json"), "--elastic: table=/nowhere/gpt.json cannot be read");
  says(why("/nowhere/gpt.json"), "swell plan --grid --json");
  says(why("/dev/zero"), "is a device; a regular file is needed");
}
