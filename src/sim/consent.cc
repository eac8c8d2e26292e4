// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/consent.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace swell::sim {

ConsentCost consent_cost(const std::vector<Outcome>& with, const std::vector<Outcome>& without) {
  ConsentCost cost;
  cost.all = paired_ratios(with, without);
  std::vector<double> ratios;
  for (std::size_t seed = 0; seed < with.size(); ++seed)
    for (std::size_t i = 0; i < with[seed].jobs.size(); ++i) {
      const JobOutcome& job = with[seed].jobs[i];
      if (!job.consents) continue;
      cost.jobs.push_back(
          {seed, job.id, job.type, job.basic_gpus, job.jct_s(), without[seed].jobs[i].jct_s()});
      ratios.push_back(cost.jobs.back().ratio());
    }
  if (ratios.empty()) return cost;
  std::sort(ratios.begin(), ratios.end(), std::greater<>());
  const std::size_t twentieth = (ratios.size() + 19) / 20;
  cost.median = quantile(ratios, 0.5);
  cost.p95 = quantile(ratios, 0.95);
  cost.worst = ratios.front();
  cost.worst_twentieth =
      std::accumulate(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(twentieth),
                      0.0) /
      static_cast<double>(twentieth);
  return cost;
}

Json to_json(const ConsentCost& cost, const std::vector<JobType>& types) {
  Json jobs = Json::array();
  for (const ConsentPair& pair : cost.jobs)
    jobs.append(Json::object({{"seed", pair.seed},
                              {"job", pair.job},
                              {"model", types[static_cast<std::size_t>(pair.type)].model->name},
                              {"gpus", pair.gpus},
                              {"jct_s", pair.with_s},
                              {"jct_without_s", pair.without_s},
                              {"ratio", pair.ratio()}}));
  return Json::object({{"all_jobs", to_json(cost.all)},
                       {"consenting", cost.jobs.size()},
                       {"median", cost.median},
                       {"p95", cost.p95},
                       {"worst_twentieth", cost.worst_twentieth},
                       {"worst", cost.worst},
                       {"jobs", jobs}});
}

}  // namespace swell::sim
