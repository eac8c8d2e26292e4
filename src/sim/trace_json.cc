// SPDX-License-Identifier: GPL-2.0-or-later
// Traces in JSON: what `sacct --json` prints, and the log of Philly.
#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>

#include "core/json.h"
#include "core/saturating.h"
#include "core/slurm_text/gres.h"
#include "sim/trace_rows.h"

namespace swell::sim {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{2} << 30;

/// A number, or {"set": true, "number": N} of newer versions of sacct.
std::optional<double> number_of(const Json& json) {
  if (is_object(json)) {
    const auto is_set = json.bool_at("set");
    if (is_set && !*is_set) return std::nullopt;
    return number_of(json.at("number"));
  }
  if (!is_number(json)) return std::nullopt;
  return json_number_value(json.get());
}

std::string text_of(const Json& json) {
  if (is_string(json)) return json_string_value(json.get());
  const auto number = number_of(json);
  return number ? fmt::format("{:.0f}", *number) : std::string();
}

/// The state: a word, or a list that begins with it.
std::string state_of(const Json& state) {
  const Json current = is_object(state) ? state.at("current") : state;
  return text_of(is_array(current) ? current.at(std::size_t{0}) : current);
}

/// GPUs of a list of TRES, which may count those of each type once more.
double gpus_of(const Json& list) {
  double all = 0, by_type = 0;
  for (const Json& one : list.items()) {
    if (text_of(one.at("type")) != "gres") continue;
    const std::string name = text_of(one.at("name"));
    const double count = number_of(one.at("count")).value_or(0);
    if (name == "gpu") all += count;
    else if (name.starts_with("gpu:")) by_type += count;
  }
  return all > 0 ? all : by_type;
}

Result<TraceRow> of_sacct(const Json& job) {
  TraceRow row;
  const Json time = job.at("time"), tres = job.at("tres");
  row.state = state_of(job.at("state"));
  row.submit_s = number_of(time.at("submission"));
  row.duration_s = number_of(time.at("elapsed"));
  row.gpus = gpus_of(tres.at("allocated"));
  if (row.gpus == 0) row.gpus = gpus_of(tres.at("requested"));
  row.account = text_of(job.at("account"));
  if (!row.submit_s || !row.duration_s)
    return Error(
        "it has no time.submission and time.elapsed; print the jobs with: sacct -aX -S "
        "now-31days --json");
  return row;
}

/// A job of Philly's cluster_job_log: its GPUs are those of its last attempt.
Result<TraceRow> of_philly(const Json& job) {
  TraceRow row;
  row.state = text_of(job.at("status"));
  row.account = text_of(job.at("vc"));
  const std::string submitted = text_of(job.at("submitted_time"));
  row.submit_s = time_of(submitted);
  if (!row.submit_s && !is_unknown(submitted))
    return Error(fmt::format("its \"submitted_time\" is \"{}\"; a time is wanted", submitted));
  double ran_s = 0;
  for (const Json& attempt : job.at("attempts").items()) {
    const auto begin = time_of(text_of(attempt.at("start_time"))),
               end = time_of(text_of(attempt.at("end_time")));
    if (begin && end) ran_s += std::max(*end - *begin, 0.0);
    double gpus = 0;
    for (const Json& node : attempt.at("detail").items())
      gpus += static_cast<double>(node.at("gpus").size());
    row.gpus = gpus;
  }
  row.duration_s = ran_s;
  return row;
}

}  // namespace

Result<TraceFile> trace_from_json(std::string_view text) {
  const auto json = Json::parse(text, kMaxBytes);
  if (!json) return json.error();
  const bool is_sacct = is_object(*json) && is_array(json->at("jobs"));
  if (!is_sacct && !is_array(*json))
    return Error(
        "it is neither what sacct --json prints (an object with \"jobs\") nor a list of jobs");
  TraceRows rows;
  std::size_t number = 0;
  for (const Json& job : (is_sacct ? json->at("jobs") : *json).items()) {
    auto row = is_sacct ? of_sacct(job) : of_philly(job);
    const std::string where = fmt::format("job {} of the file", ++number);
    if (!row) return row.error().while_doing(where);
    if (auto added = rows.add(*row, where); !added) return added.error();
  }
  return std::move(rows).finish();
}

}  // namespace swell::sim
