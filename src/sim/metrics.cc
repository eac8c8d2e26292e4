// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace swell::sim {

namespace {

/// Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                               2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
/// The point beyond the table, within 0.002.
double student(std::size_t freedom) {
  const auto df = static_cast<double>(freedom);
  return freedom <= std::size(kStudent) ? kStudent[freedom - 1]
                                        : 1.96 + 2.37 / df + 2.8 / (df * df);
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

struct PerSeed {
  std::vector<double> jct, wjct, p50, p99, makespan, utilization, queue, queue_rigid, delay, moves,
      lost, error, memory, migrations, given_back, slower, kept;
};

void add(PerSeed& all, const Outcome& outcome, const Outcome& fifo) {
  std::vector<double> jct, queue, queue_rigid;
  double weighted = 0, weights = 0, delay = 0;
  int slower = 0, kept = 0, with_deadline = 0;
  for (std::size_t i = 0; i < outcome.jobs.size(); ++i) {
    const JobOutcome& job = outcome.jobs[i];
    jct.push_back(job.jct_s());
    queue.push_back(job.waited_s);
    if (!job.elastic) queue_rigid.push_back(job.waited_s);
    if (job.basic_s > 0 && job.end_s - job.start_s > kSlower * job.basic_s) ++slower;
    if (job.deadline_s > 0) {
      ++with_deadline;
      if (job.end_s <= job.deadline_s) ++kept;
    }
    weighted += job.basic_gpus * job.jct_s();
    weights += job.basic_gpus;
    delay = std::max(delay, job.end_s - fifo.jobs[i].end_s);
  }
  all.jct.push_back(mean(jct));
  all.wjct.push_back(weights > 0 ? weighted / weights : 0);
  all.p50.push_back(quantile(jct, 0.5));
  all.p99.push_back(quantile(jct, 0.99));
  all.makespan.push_back(outcome.makespan_s);
  all.utilization.push_back(
      outcome.makespan_s > 0 ? outcome.used_gpu_s / (outcome.gpus * outcome.makespan_s) : 0);
  all.queue.push_back(mean(queue));
  all.queue_rigid.push_back(mean(queue_rigid));
  all.delay.push_back(delay);
  all.moves.push_back(outcome.reconfigurations);
  all.lost.push_back(outcome.lost_gpu_s);
  all.memory.push_back(outcome.out_of_memory);
  all.migrations.push_back(outcome.migrations);
  all.given_back.push_back(outcome.given_back);
  all.slower.push_back(slower);
  all.kept.push_back(with_deadline > 0 ? static_cast<double>(kept) / with_deadline : 0);
  all.error.push_back(mean(outcome.prediction_errors));
}

}  // namespace

Estimate estimate(const std::vector<double>& values) {
  Estimate made{mean(values), 0};
  const std::size_t n = values.size();
  if (n < 2) return made;
  double squares = 0;
  for (double value : values) squares += (value - made.mean) * (value - made.mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
  made.ci95 = student(n - 1) * deviation / std::sqrt(static_cast<double>(n));
  return made;
}

Ratio ratio(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < numerators.size(); ++i)
    logs.push_back(std::log(numerators[i] / denominators[i]));
  const Estimate made = estimate(logs);
  return {std::exp(made.mean), std::exp(made.mean - made.ci95), std::exp(made.mean + made.ci95)};
}

PairedRatios paired_ratios(const std::vector<Outcome>& one, const std::vector<Outcome>& other) {
  PerSeed a, b;
  for (std::size_t seed = 0; seed < one.size(); ++seed) {
    add(a, one[seed], other[seed]);
    add(b, other[seed], other[seed]);
  }
  return {ratio(a.jct, b.jct), ratio(a.wjct, b.wjct)};
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

Metrics measure(const std::vector<const Outcome*>& outcomes,
                const std::vector<const Outcome*>& fifo) {
  PerSeed all;
  std::vector<double> decisions;
  for (std::size_t seed = 0; seed < outcomes.size(); ++seed) {
    add(all, *outcomes[seed], *fifo[seed]);
    decisions.insert(decisions.end(), outcomes[seed]->decision_s.begin(),
                     outcomes[seed]->decision_s.end());
  }
  Metrics metrics;
  metrics.avg_jct_s = estimate(all.jct);
  metrics.avg_wjct_s = estimate(all.wjct);
  metrics.p50_jct_s = estimate(all.p50);
  metrics.p99_jct_s = estimate(all.p99);
  metrics.makespan_s = estimate(all.makespan);
  metrics.gpu_utilization = estimate(all.utilization);
  metrics.avg_queue_s = estimate(all.queue);
  metrics.avg_queue_rigid_s = estimate(all.queue_rigid);
  metrics.max_delay_vs_fifo_s = estimate(all.delay);
  metrics.reconfigurations = estimate(all.moves);
  metrics.lost_gpu_s = estimate(all.lost);
  metrics.prediction_error = estimate(all.error);
  metrics.out_of_memory = estimate(all.memory);
  metrics.migrations = estimate(all.migrations);
  metrics.given_back = estimate(all.given_back);
  metrics.slower_than_basic = estimate(all.slower);
  metrics.deadlines_kept = estimate(all.kept);
  metrics.decisions = static_cast<int>(decisions.size());
  metrics.decision_p50_s = quantile(decisions, 0.5);
  metrics.decision_p90_s = quantile(decisions, 0.9);
  metrics.decision_p99_s = quantile(decisions, 0.99);
  metrics.decision_max_s = quantile(decisions, 1);
  return metrics;
}

Json to_json(const Metrics& metrics, bool with_decision_times) {
  Json json = Json::object(), ci95 = Json::object();
  const std::pair<const char*, const Estimate*> estimates[] = {
      {"avg_jct_s", &metrics.avg_jct_s},
      {"avg_wjct_s", &metrics.avg_wjct_s},
      {"p50_jct_s", &metrics.p50_jct_s},
      {"p99_jct_s", &metrics.p99_jct_s},
      {"makespan_s", &metrics.makespan_s},
      {"gpu_utilization", &metrics.gpu_utilization},
      {"avg_queue_s", &metrics.avg_queue_s},
      {"avg_queue_rigid_s", &metrics.avg_queue_rigid_s},
      {"max_delay_vs_fifo_s", &metrics.max_delay_vs_fifo_s},
      {"reconfigurations", &metrics.reconfigurations},
      {"gpu_s_lost_to_reconfiguration", &metrics.lost_gpu_s},
      {"prediction_error", &metrics.prediction_error},
      {"out_of_memory", &metrics.out_of_memory},
      {"migrations", &metrics.migrations},
      {"given_back", &metrics.given_back},
      {"slower_than_basic", &metrics.slower_than_basic},
      {"deadlines_kept", &metrics.deadlines_kept},
  };
  for (const auto& [name, value] : estimates) {
    json.set(name, value->mean);
    ci95.set(name, value->ci95);
  }
  json.set("decisions", metrics.decisions);
  // Wall-clock times differ from run to run; a repeatable run leaves them out.
  if (with_decision_times)
    json.set("decision_s", Json::object({{"p50", metrics.decision_p50_s},
                                         {"p90", metrics.decision_p90_s},
                                         {"p99", metrics.decision_p99_s},
                                         {"max", metrics.decision_max_s}}));
  json.set("ci95", ci95);
  return json;
}

Json to_json(const PairedRatios& ratios) {
  const auto json = [](const Ratio& one) {
    return Json::object({{"mean", one.mean}, {"low", one.low}, {"high", one.high}});
  };
  return Json::object({{"jct", json(ratios.jct)}, {"wjct", json(ratios.wjct)}});
}

}  // namespace swell::sim
