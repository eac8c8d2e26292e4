// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/scale_table.h"

#include <criterion/criterion.h>
#include <string>

#include "core/perf/peak_memory.h"
#include "core/planner/incremental.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// A job of two stages that may have up to six GPUs more, over two GPU types.
struct Planned {
  models::Model model = support::small_model(8, 64);
  cluster::Cluster cluster = support::mixed_nodes(4, 4);
  perf::Coefficients coefficients = support::round_coefficients(2);
  perf::PerformanceModel perf{model, cluster, coefficients};
  ScaleTable table;
  Planned() {
    plan::Layout layout{8, {}};
    support::add_stage(layout, 4, 1, 1, 8);
    support::add_stage(layout, 4, 1, 1, 8, 0, 1);
    Problem problem{perf, layout, {}};
    for (int node = 0; node < 2; ++node)
      for (int gpu = node == 0 ? 2 : 0; gpu < 4; ++gpu) problem.free.push_back({node, gpu});
    table = Incremental().solve(problem, {});
    add_modelled(table, perf);
    filter_rows(table, {0, 0, 100});
  }
  NamedTable named(Detail detail) const {
    return name_all(table, perf, ScaleSource::running_job, detail);
  }
};

std::string said(std::string_view text) {
  const auto read = NamedTable::parse(text);
  return read ? "" : read.error().message();
}

/// A table of one good row with `members` in place of some of its own.
std::string said_with(std::initializer_list<std::pair<const char*, Json>> members) {
  Json row =
      Json::object({{"gpus", 4}, {"samples_per_s", 10.0}, {"peak_bytes", 1e9}, {"plan", "4L"}});
  for (const auto& [key, value] : members) row.set(key, value);
  return said(Json::object({{"version", 1}, {"rows", Json::array({row})}}).dump());
}

bool has(const std::string& text, std::string_view part) {
  cr_assert(text.find(part) != std::string::npos, "%s", text.c_str());
  cr_assert(text.find('\n') == std::string::npos);
  return true;
}

}  // namespace

Test(scale_table, a_named_row_says_what_the_solvers_row_does) {
  const Planned job;
  const NamedTable named = job.named(Detail::whole);
  const perf::MemoryModel memory(job.perf);
  cr_assert_eq(named.rows.size(), job.table.rows.size());
  cr_assert_gt(named.rows.size(), 2u);
  bool any_omitted = false;
  for (std::size_t i = 0; i < named.rows.size(); ++i) {
    const NamedRow& row = named.rows[i];
    const ScaleRow& from = job.table.rows[i];
    cr_assert_eq(row.gpus, from.gpus);
    cr_assert_eq(row.throughput, from.throughput);
    cr_assert_eq(row.modelled, from.modelled);
    cr_assert(row.omitted == from.omitted);
    any_omitted = any_omitted || row.omitted != RowRule::none;
    cr_assert(row.plan && plan::resolve(*row.plan, job.cluster).value() == from.layout);
    cr_assert_eq(row.summary, row.plan->summary());
    for (int stage = 0; stage < from.layout.pp(); ++stage)
      cr_assert_eq(row.peak_bytes[static_cast<std::size_t>(stage)],
                   memory.stage_peak(from.layout, stage).total());
    cr_assert_eq(named.speedup(i), from.throughput / job.table.rows[0].throughput);
  }
  cr_assert(any_omitted);
  cr_assert(named.rows.front().gpu_types == std::vector<std::string>{"h100"});
}

Test(scale_table, a_row_names_each_gpu_type_of_its_plan_once) {
  const Planned job;
  plan::Layout mixed{8, {}};
  support::add_stage(mixed, 3, 1, 1, 8, 1, 0, 1);
  support::add_stage(mixed, 3, 1, 1, 8);
  support::add_stage(mixed, 2, 1, 1, 8, 1, 1, 1);
  ScaleTable table;
  table.rows.push_back({{3, 10.0}, mixed, ""});
  const NamedTable named = name_all(table, job.perf, ScaleSource::data_sheets, Detail::brief);
  cr_assert_eq(named.rows[0].gpu_types.size(), 2u);
  cr_assert_eq(named.rows[0].gpu_types[0], job.cluster.type(1).name);
  cr_assert_eq(named.rows[0].gpu_types[1], job.cluster.type(0).name);
}

Test(scale_table, reads_back_what_was_written) {
  const Planned job;
  for (const Detail detail : {Detail::whole, Detail::brief}) {
    const NamedTable named = job.named(detail);
    const auto read = NamedTable::from_json(named.to_json());
    cr_assert(read.ok(), "%s", read ? "" : read.error().message().c_str());
    cr_assert(*read == named);
    const auto parsed = NamedTable::parse(named.to_json().dump());
    cr_assert(parsed.ok(), "%s", parsed ? "" : parsed.error().message().c_str());
    for (std::size_t i = 0; i < named.rows.size(); ++i) {
      const NamedRow &row = parsed->rows[i], &written = named.rows[i];
      cr_assert(support::near(row.throughput, written.throughput, 1e-14));
      cr_assert(row.plan == written.plan && row.omitted == written.omitted);
    }
  }
}

Test(scale_table, a_brief_row_has_the_fullest_gpu_and_the_plan_in_words) {
  const Planned job;
  const NamedTable whole = job.named(Detail::whole), brief = job.named(Detail::brief);
  for (std::size_t i = 0; i < brief.rows.size(); ++i) {
    cr_assert_not(brief.rows[i].plan);
    cr_assert(brief.rows[i].why.empty());
    cr_assert_eq(brief.rows[i].peak_bytes.size(), 1u);
    cr_assert_eq(brief.rows[i].max_peak_bytes(), whole.rows[i].max_peak_bytes());
    cr_assert_eq(brief.rows[i].summary, whole.rows[i].summary);
  }
  cr_assert_lt(brief.to_json().dump().size(), whole.to_json().dump().size());
}

Test(scale_table, the_row_of_a_number_of_gpus_is_the_last_one_that_needs_no_more) {
  NamedTable table;
  for (const int gpus : {4, 6, 8}) {
    NamedRow row;
    row.gpus = gpus;
    table.rows.push_back(row);
  }
  cr_assert_null(table.at(3));
  cr_assert_eq(table.at(4)->gpus, 4);
  cr_assert_eq(table.at(7)->gpus, 6);
  cr_assert_eq(table.at(100)->gpus, 8);
}

Test(scale_table, rows_that_are_left_out_are_said_by_rule) {
  NamedTable named;
  int gpus = 4;
  for (const RowRule rule : {RowRule::none, RowRule::indivisible, RowRule::no_gain,
                             RowRule::indivisible, RowRule::too_far_apart}) {
    NamedRow& row = named.rows.emplace_back();
    row.gpus = gpus++;
    row.omitted = rule;
  }
  cr_assert_eq(named.omitted(),
               "8 GPUs: the two predictions are too far apart; "
               "6 GPUs: no significant gain; "
               "5, 7 GPUs: CP or EP excludes this number of GPUs");
  cr_assert_eq(NamedTable{}.omitted(), "");
}

Test(scale_table, reads_rows_that_were_kept_before_there_were_versions) {
  const auto read = NamedTable::parse(
      R"([{"gpus":4,"samples_per_s":40,"peak_bytes":6e10,"plan":"4L dp4 tp1"},)"
      R"({"gpus":5,"samples_per_s":41,"peak_bytes":6e10,"plan":"4L dp5 tp1","omitted":"no-gain"}])");
  cr_assert(read.ok(), "%s", read ? "" : read.error().message().c_str());
  cr_assert(read->source == ScaleSource::unknown);
  cr_assert_eq(read->rows.size(), 2u);
  cr_assert_eq(read->rows[1].modelled, 0);
  cr_assert(read->rows[1].omitted == RowRule::no_gain);
}

Test(scale_table, one_sentence_names_what_is_wrong) {
  const Planned job;
  const std::string text = job.named(Detail::whole).to_json().dump();
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, text.size() / 2, text.size() - 1})
    has(said(text.substr(0, kept)), "the scale table is cut off or damaged, make it anew");
  has(said(R"({"version":2,"rows":[]})"), "version 2, and this Swell reads up to 1: read it with");
  has(said(R"({"rows":[]})"), "\"version\"");
  has(said(R"({"version":1,"rows":[]})"), "has 0 rows; 1 to 65536 are read");
  has(said(R"({"version":1})"), "has no list \"rows\"");
  has(said(R"({"version":1,"source":"hearsay","rows":[]})"),
      "\"hearsay\"; running-job, one-device or");
  cr_assert(said_with({}).empty(), "%s", said_with({}).c_str());
  has(said_with({{"gpus", 0}}), "row 1 of the scale table: \"gpus\"");
  has(said_with({{"samples_per_s", -1.0}}), "\"samples_per_s\"");
  has(said_with({{"modelled_samples_per_s", -0.5}}), "\"modelled_samples_per_s\"");
  has(said_with({{"peak_bytes", -5}}), "\"peak_bytes\"");
  has(said_with({{"peak_bytes", 1e30}}), "\"peak_bytes\"");
  has(said_with({{"peak_bytes", Json::array({1, 2})}}), "give one number");
  has(said_with({{"plan", 7}}), "\"plan\"");
  has(said_with({{"plan", Json::object()}}), "row 1 of the scale table: \"plan\"");
  has(said_with({{"omitted", "dull"}}),
      "\"dull\"; opposite-trends, too-far-apart, no-gain or indivisible");
  has(said(R"({"version":1,"rows":[{"gpus":4,"samples_per_s":1e999}]})"), "cut off or damaged");
  has(said(R"([{"gpus":4,"samples_per_s":1,"peak_bytes":1,"plan":"a"},)"
           R"({"gpus":4,"samples_per_s":2,"peak_bytes":1,"plan":"b"}])"),
      "row 2 of the scale table has 4 GPUs behind a row of 4; rows need rising numbers");
}

Test(scale_table, a_whole_plan_and_its_row_agree) {
  const Planned job;
  const Json table = job.named(Detail::whole).to_json();
  Json row = table.at("rows").at(std::size_t{0});
  row.set("gpus", 1);
  has(said(table.dump()), "its plan uses 2 GPUs, and the job has 1");
  row.set("gpus", 2).set("peak_bytes", Json::array({1.0}));
  has(said(table.dump()), "\"peak_bytes\" is of 1 stage, and its plan has 2");
}
