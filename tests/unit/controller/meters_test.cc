// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/meters.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::controller;

namespace {

/// Value of a sample of that family whose only label has this value; -1: there is none.
double value_of(const Json& metrics, const std::string& name, const std::string& label = {}) {
  for (const Json& family : metrics.at("families").items()) {
    if (family.string_at("name").value() != name) continue;
    for (const Json& sample : family.at("samples").items()) {
      const auto labels = members(sample.at("labels"));
      if (label.empty() || label == json_string_value(labels.at(0).second.get()))
        return sample.number_at("value", 0, 1e12).value();
    }
  }
  return -1;
}

/// The histogram of live pauses.
Json pauses_in(const Meters& meters) {
  const Json metrics = meters.to_json({});
  for (const Json& family : metrics.at("families").items())
    if (family.string_at("name").value() == "swell_pause_seconds")
      return family.at("samples").items().at(0).at("histogram");
  return {};
}

Json pause_of(double stopped_s) {
  return Json::object({{"job", 10}, {"mode", "live"}, {"stopped_s", stopped_s}});
}

JobTable one_job(int lent, int workers) {
  ElasticJob job;
  job.id = 10;
  job.basic_gpus = 4;
  control::Status status;
  status.workers = workers;
  status.state = control::JobState::active;
  job.agent_words.hear(status, 0, 0);
  Companion companion;
  companion.id = 20;
  companion.gpus.count = lent;
  job.companions.add(companion);
  JobTable jobs;
  jobs.emplace(10, job);
  return jobs;
}

}  // namespace

Test(meters, gpu_seconds_are_counted_by_what_jobs_hold) {
  Meters meters;
  meters.pass(100, one_job(8, 12));
  meters.pass(110, one_job(8, 12));
  const Json seen = meters.to_json(one_job(8, 12));
  cr_assert_float_eq(value_of(seen, "swell_gpu_seconds", "basic"), 40, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_gpu_seconds", "lent"), 80, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_wasted_gpu_seconds", "waiting"), 0, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_lent_gpus"), 8, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_elastic_jobs", "ACTIVE"), 1, 1e-9);
}

Test(meters, lent_gpus_that_nobody_trains_on_yet_are_wasted) {
  Meters meters;
  meters.pass(100, one_job(8, 4));
  meters.pass(110, one_job(8, 4));
  cr_assert_float_eq(value_of(meters.to_json(one_job(8, 4)), "swell_wasted_gpu_seconds", "waiting"),
                     80, 1e-9);
}

Test(meters, a_pause_wastes_all_gpus_of_its_job) {
  Meters meters;
  meters.pass(100, one_job(8, 12));
  meters.pass(110, one_job(8, 12));
  meters.heard("pause", pause_of(0.5));
  cr_assert_float_eq(value_of(meters.to_json(one_job(8, 12)), "swell_wasted_gpu_seconds", "pause"),
                     6, 1e-9);
  cr_assert_float_eq(pauses_in(meters).number_at("sum", 0, 1e9).value(), 0.5, 1e-9);
}

Test(meters, a_job_that_lies_about_its_pauses_wastes_no_more_than_it_has_held) {
  Meters meters;
  meters.heard("pause", pause_of(1e9));  // of a job that nobody has seen
  meters.pass(100, one_job(0, 4));
  meters.heard("pause", pause_of(1e9));
  meters.pass(110, one_job(0, 4));
  for (int i = 0; i < 3; ++i) meters.heard("pause", pause_of(1e9));
  const auto wasted = [&](const char* cause) {
    return value_of(meters.to_json({}), "swell_wasted_gpu_seconds", cause);
  };
  cr_assert_float_eq(wasted("pause"), 40, 1e-9, "10 s of 4 GPUs, once");
  cr_assert_float_eq(pauses_in(meters).number_at("sum", 0, 1e12).value(), 10, 1e-9);
  meters.pass(120, one_job(0, 4));
  meters.pass(130, one_job(8, 4));  // lent ones that nobody trains on are wasted anyhow
  meters.heard("pause", pause_of(1e9));
  cr_assert_float_eq(wasted("waiting"), 80, 1e-9);
  cr_assert_float_eq(wasted("pause"), 120, 1e-9, "not 20 s of all 12 GPUs");
  const Json seen = meters.to_json({});
  cr_assert_float_eq(
      wasted("pause") + wasted("waiting"),
      value_of(seen, "swell_gpu_seconds", "basic") + value_of(seen, "swell_gpu_seconds", "lent"),
      1e-9, "its own share, no GPU-second of others");
}

Test(meters, grants_and_reclaims_are_counted_by_few_labels) {
  Meters meters;
  const Json line = Json::object({{"job", 10}, {"cause", "basic-demand"}, {"reason", "job 17"}});
  meters.heard("grant", line);
  meters.heard("companion-started", line);
  meters.heard("reclaim", line);
  meters.heard("reclaim", Json::object({{"cause", "made up"}}));
  const Json seen = meters.to_json({});
  cr_assert_float_eq(value_of(seen, "swell_grants", "offered"), 1, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_grants", "taken"), 1, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_reclaims", "basic-demand"), 1, 1e-9);
  cr_assert_float_eq(value_of(seen, "swell_reclaims", "made up"), -1, 1e-9);
}

Test(meters, a_histogram_counts_up_to_each_bound) {
  Histogram histogram({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.add(value);
  const Json json = histogram.to_json();
  cr_assert_eq(json.at("counts").dump(), "[2,3,4]");
  cr_assert_float_eq(json.number_at("sum", 0, 99).value(), 12, 1e-9);
}
