// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/scale_table.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/count_of.h"
#include "core/perf/peak_memory.h"

namespace swell::planner {

namespace {

constexpr std::int64_t kMaxGpus = 1 << 20;
constexpr std::size_t kMaxRows = 1 << 16;
constexpr std::size_t kMaxStages = 4096;
constexpr std::size_t kMaxText = std::size_t{64} << 20;
constexpr double kMaxFigure = 1e18;  // bytes, or samples a second

void add_type(std::vector<std::string>& types, const std::string& type) {
  if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
}

std::vector<std::string> types_of(const plan::Plan& plan) {
  std::vector<std::string> types;
  for (const plan::Stage& stage : plan.stages)
    for (const plan::TpGroup& group : stage.groups) add_type(types, group.gpu_type);
  return types;
}

Result<RowRule> rule_named(const std::string& name) {
  for (const RowRule rule : kRowRules)
    if (name == name_of(rule)) return rule;
  return Error(fmt::format(
      "\"omitted\" is \"{}\"; opposite-trends, too-far-apart, no-gain or indivisible is wanted",
      name));
}

Result<double> figure(const Json& value, const char* key) {
  return Json::object({{key, value}}).number_at(key, 0, kMaxFigure);
}

Result<std::vector<double>> read_peaks(const Json& json) {
  std::vector<double> peaks;
  const Json all = json.at("peak_bytes");
  if (all.size() > kMaxStages)
    return Error(fmt::format("\"peak_bytes\" is of {}; at most {} are read",
                             count_of(all.size(), "stage"), kMaxStages));
  for (const Json& one : is_array(all) ? all.items() : std::vector{all}) {
    auto peak = figure(one, "peak_bytes");
    if (!peak) return peak.error();
    peaks.push_back(*peak);
  }
  return peaks;
}

/// Reads "plan" and the members that follow from it; in a row without a whole plan, reads each.
Result<void> read_plan(const Json& json, NamedRow& row) {
  if (const Json whole = json.at("plan"); is_object(whole)) {
    auto plan = plan::Plan::from_json(whole);
    if (!plan) return plan.error().while_doing("\"plan\"");
    if (plan->gpu_count() > row.gpus)
      return Error(fmt::format("its plan uses {}, and the job has {}",
                               count_of(plan->gpu_count(), "GPU"), row.gpus));
    if (row.peak_bytes.size() != plan->stages.size())
      return Error(fmt::format("\"peak_bytes\" is of {}, and its plan has {}",
                               count_of(row.peak_bytes.size(), "stage"), plan->stages.size()));
    row.gpu_types = types_of(*plan);
    row.summary = plan->summary();
    row.schedule = plan->schedule;
    row.plan = *std::move(plan);
    return {};
  }
  auto summary = json.string_at("plan");
  if (!summary) return summary.error();
  row.summary = *std::move(summary);
  if (row.peak_bytes.size() != 1)
    return Error("\"peak_bytes\" is a list, and \"plan\" is a text; give one number");
  if (json.has("schedule")) {
    auto schedule = json.string_at("schedule");
    if (!schedule) return schedule.error();
    row.schedule = *std::move(schedule);
  }
  for (const Json& type : json.at("gpu_types").items()) {
    auto name = Json::object({{"gpu_types", type}}).string_at("gpu_types");
    if (!name) return name.error();
    add_type(row.gpu_types, *name);
  }
  return {};
}

Result<NamedRow> read_row(const Json& json) {
  NamedRow row;
  auto gpus = json.integer_at("gpus", 1, kMaxGpus);
  if (!gpus) return gpus.error();
  row.gpus = static_cast<int>(*gpus);
  auto throughput = json.number_at("samples_per_s", 0, kMaxFigure);
  if (!throughput) return throughput.error();
  row.throughput = *throughput;
  if (json.has("modelled_samples_per_s")) {
    auto modelled = json.number_at("modelled_samples_per_s", 0, kMaxFigure);
    if (!modelled) return modelled.error();
    row.modelled = *modelled;
  }
  auto peaks = read_peaks(json);
  if (!peaks) return peaks.error();
  row.peak_bytes = *std::move(peaks);
  if (json.has("omitted")) {
    auto name = json.string_at("omitted");
    if (!name) return name.error();
    auto rule = rule_named(*name);
    if (!rule) return rule.error();
    row.omitted = *rule;
  }
  if (json.has("why")) {
    auto why = json.string_at("why");
    if (!why) return why.error();
    row.why = *std::move(why);
  }
  if (auto plan = read_plan(json, row); !plan) return plan.error();
  return row;
}

double ratio(double figure, double first) noexcept { return first > 0 ? figure / first : 0; }

}  // namespace

const char* name_of(ScaleSource source) noexcept {
  switch (source) {
    case ScaleSource::unknown: break;
    case ScaleSource::running_job: return "running-job";
    case ScaleSource::one_device: return "one-device";
    case ScaleSource::data_sheets: return "data-sheets";
  }
  return "";
}

const char* words_for(ScaleSource source) noexcept {
  switch (source) {
    case ScaleSource::unknown: break;
    case ScaleSource::running_job: return "its profile";
    case ScaleSource::one_device: return "one device";
    case ScaleSource::data_sheets: return "data sheets";
  }
  return "";
}

void add_modelled(ScaleTable& table, const perf::PerformanceModel& perf) {
  const perf::ModelledPredictor predictor(perf.model(), perf.coefficients());
  for (ScaleRow& row : table.rows) row.modelled = predictor.throughput(row.layout);
}

double NamedRow::max_peak_bytes() const noexcept {
  return peak_bytes.empty() ? 0 : *std::max_element(peak_bytes.begin(), peak_bytes.end());
}

double NamedTable::speedup(std::size_t i) const noexcept {
  return ratio(rows[i].throughput, rows.front().throughput);
}

double NamedTable::modelled_speedup(std::size_t i) const noexcept {
  return ratio(rows[i].modelled, rows.front().modelled);
}

const NamedRow* NamedTable::at(int gpus) const noexcept {
  const NamedRow* found = nullptr;
  for (const NamedRow& row : rows)
    if (row.gpus <= gpus) found = &row;
  return found;
}

std::string NamedTable::omitted() const {
  std::string text;
  for (const RowRule rule : kRowRules) {
    std::string gpus;
    for (const NamedRow& row : rows)
      if (row.omitted == rule) gpus += fmt::format("{}{}", gpus.empty() ? "" : ", ", row.gpus);
    if (!gpus.empty())
      text += fmt::format("{}{} GPUs: {}", text.empty() ? "" : "; ", gpus, words_for(rule));
  }
  return text;
}

Json NamedTable::rows_json() const {
  Json all = Json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NamedRow& row = rows[i];
    Json one = Json::object({{"gpus", row.gpus}});
    if (row.plan) one.set("gpus_used", row.plan->gpu_count());
    one.set("samples_per_s", row.throughput).set("modelled_samples_per_s", row.modelled);
    one.set("speedup", speedup(i)).set("modelled_speedup", modelled_speedup(i));
    if (row.plan) one.set("peak_bytes", array_of(row.peak_bytes));
    else one.set("peak_bytes", row.max_peak_bytes());
    if (!row.why.empty()) one.set("why", row.why);
    one.set("plan", row.plan ? row.plan->to_json() : Json(row.summary));
    one.set("gpu_types", array_of(row.gpu_types));
    if (!row.schedule.empty()) one.set("schedule", row.schedule);
    if (row.omitted != RowRule::none) one.set("omitted", name_of(row.omitted));
    all.append(std::move(one));
  }
  return all;
}

Json NamedTable::to_json() const {
  Json table = Json::object({{"version", kVersion}});
  if (source != ScaleSource::unknown) table.set("source", name_of(source));
  return table.set("rows", rows_json());
}

Result<NamedTable> NamedTable::from_json(const Json& json) {
  NamedTable table;
  if (!is_array(json)) {
    auto version = json.integer_at("version", 1, 1 << 20);
    if (!version) return version.error().while_doing("the scale table");
    if (*version > kVersion)
      return Error(fmt::format(
          "the scale table is of version {}, and this Swell reads up to {}: read it with the Swell "
          "that wrote it, or make it anew with swell plan",
          *version, kVersion));
    if (json.has("source")) {
      auto name = json.string_at("source");
      if (!name) return name.error().while_doing("the scale table");
      for (const ScaleSource source :
           {ScaleSource::running_job, ScaleSource::one_device, ScaleSource::data_sheets})
        if (*name == name_of(source)) table.source = source;
      if (table.source == ScaleSource::unknown)
        return Error(
            fmt::format("the source of the scale table is \"{}\"; running-job, one-device or "
                        "data-sheets is wanted",
                        *name));
    }
  }
  const Json rows = is_array(json) ? json : json.at("rows");
  if (!is_array(rows) || rows.size() == 0 || rows.size() > kMaxRows)
    return Error(
        fmt::format("the scale table has {}; 1 to {} are read: make it anew with swell plan",
                    is_array(rows) ? count_of(rows.size(), "row") : "no list \"rows\"", kMaxRows));
  for (const Json& each : rows.items()) {
    auto row = read_row(each);
    const std::string place = fmt::format("row {} of the scale table", table.rows.size() + 1);
    if (!row) return row.error().while_doing(place);
    if (!table.rows.empty() && row->gpus <= table.rows.back().gpus)
      return Error(fmt::format("{} has {} behind a row of {}; rows need rising numbers of GPUs",
                               place, count_of(row->gpus, "GPU"), table.rows.back().gpus));
    table.rows.push_back(*std::move(row));
  }
  return table;
}

Result<NamedTable> NamedTable::parse(std::string_view text) {
  const auto json = Json::parse(text, kMaxText);
  if (!json)
    return Error(
        fmt::format("the scale table is cut off or damaged, make it anew with swell plan: {}",
                    json.error().message()));
  return from_json(*json);
}

NamedTable name_all(const ScaleTable& table, const perf::PerformanceModel& perf, ScaleSource source,
                    Detail detail) {
  const perf::MemoryModel memory(perf);
  NamedTable named{source, {}};
  for (const ScaleRow& row : table.rows) {
    plan::Plan plan = plan::name_all(row.layout, perf.cluster(), perf.model());
    NamedRow one{row, types_of(plan), plan.summary(), plan.schedule, {}, {}, {}};
    for (int i = 0; i < row.layout.pp(); ++i)
      one.peak_bytes.push_back(memory.stage_peak(row.layout, i).total());
    if (detail == Detail::whole) {
      one.why = row.why;
      one.plan = std::move(plan);
    } else {
      one.peak_bytes = {one.max_peak_bytes()};
    }
    named.rows.push_back(std::move(one));
  }
  return named;
}

}  // namespace swell::planner
