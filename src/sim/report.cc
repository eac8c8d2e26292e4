// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/report.h"

#include "core/count_of.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <vector>

namespace swell::sim {

Json results_json(const Results& results, bool repeatable) {
  Json policies = Json::object();
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    Json one = to_json(results.metrics[i], !repeatable);
    if (!results.to_swell.empty()) one.set("to_swell", to_json(results.to_swell[i]));
    if (results.consent[i]) one.set("consent", to_json(*results.consent[i], results.types));
    if (!results.explanations.empty()) one.set("explanation", to_json(results.explanations[i]));
    policies.set(results.policies[i].c_str(), one);
  }
  Json json = Json::object(
      {{"policies", policies}, {"jobs", results.jobs}, {"seeds", results.fifo.size()}});
  if (!repeatable) json.set("wall_s", results.wall_s);
  return json;
}

std::string results_csv(const Results& results) {
  std::string text =
      "policy,seed,job,model,basic_gpus,elastic,submit_s,start_s,end_s,waited_s,reconfigurations\n";
  for (std::size_t i = 0; i < results.policies.size(); ++i)
    for (std::size_t seed = 0; seed < results.outcomes[i].size(); ++seed)
      for (const JobOutcome& job : results.outcomes[i][seed].jobs)
        fmt::format_to(std::back_inserter(text),
                       "{},{},{},{},{},{:d},{:.3f},{:.3f},{:.3f},{:.3f},{}\n", results.policies[i],
                       seed, job.id, results.types[static_cast<std::size_t>(job.type)].model->name,
                       job.basic_gpus, job.elastic, job.submit_s, job.start_s, job.end_s,
                       job.waited_s, job.reconfigurations);
  return text;
}

std::string jobs_text(const Results& results, const Experiment& experiment) {
  if (!experiment.trace) return count_of(results.jobs, "job");
  const auto all = static_cast<int>(experiment.trace->size());
  const WorkloadOptions& workload = experiment.workload;
  std::vector<std::string> why;
  if (workload.hours > 0) why.push_back(fmt::format("--hours {:g}", workload.hours));
  if (workload.sample)
    why.push_back(fmt::format("--sample --trace-gpus {:g}: drawn in proportion to the cluster's {}",
                              workload.trace_gpus, experiment.cluster->gpu_count()));
  if (workload.max_jobs > 0) why.push_back(fmt::format("--jobs {}", workload.max_jobs));
  if (why.empty() || results.jobs == all)
    return fmt::format("{} of the trace", count_of(results.jobs, "job"));
  return results.jobs < all ? fmt::format("{} of {} of the trace ({})", results.jobs,
                                          count_of(all, "job"), fmt::join(why, "; "))
                            : fmt::format("{} drawn from {} of the trace ({})",
                                          count_of(results.jobs, "job"), all, fmt::join(why, "; "));
}

std::string redeployment_text(const Experiment& experiment) {
  if (!experiment.redeployment)
    return "changes of plan cost what a model of Suika's published figures says, which no "
           "measurement of Swell confirms; --redeployment live or restart uses measured pauses";
  const redeploy::Measured way = *experiment.redeployment;
  const redeploy::MeasuredPause& growth = redeploy::measured_pause(way, true);
  const redeploy::MeasuredPause& reclaim = redeploy::measured_pause(way, false);
  return fmt::format(
      "changes of plan cost what {} took on processes of one host under {}: {} s to grow ({}), {} s "
      "to give back ({}), and the time for a larger state{}",
      way == redeploy::Measured::live ? "live switches" : "restarts",
      experiment.rivals_as_measured ? "all policies" : "policies that slurmctld runs",
      growth.pause_s, growth.source, reclaim.pause_s, reclaim.source,
      experiment.rivals_as_measured ? ""
                                    : ". Under other policies they cost what a model of Suika's "
                                      "published figures says");
}

}  // namespace swell::sim
