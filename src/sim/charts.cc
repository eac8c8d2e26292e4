// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/charts.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "sim/svg.h"

namespace swell::sim {

namespace {

constexpr std::size_t kMaxPoints = 400;  // limit of points of one curve: more cannot be seen

/// Draws the cumulative distribution of `values` as steps.
void draw_cdf(Chart& chart, std::vector<double> values, const Axis& x, const Axis& y,
              std::size_t policy, const std::string& name) {
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  std::vector<std::pair<double, double>> points{{x.place(values.front()), y.place(0)}};
  const std::size_t stride = std::max<std::size_t>(1, values.size() / kMaxPoints);
  for (std::size_t i = 0; i < values.size(); i += stride) {
    points.push_back({x.place(values[i]), points.back().second});
    points.push_back({x.place(values[i]),
                      y.place(static_cast<double>(i + 1) / static_cast<double>(values.size()))});
  }
  points.push_back({x.place(values.back()), y.place(1)});
  chart.path(points, "curve", policy_colour(policy), name);
}

std::vector<double> all_jct(const std::vector<Outcome>& outcomes) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes)
    for (const JobOutcome& job : outcome.jobs) values.push_back(std::max(1.0, job.jct_s()));
  return values;
}

}  // namespace

std::string jct_bars(const Results& results) {
  const double row = 34;
  const auto count = static_cast<double>(results.policies.size());
  Chart chart({560, count * row + 50, 120, 70, 6, 40});
  double max = 0;
  for (const Metrics& one : results.metrics)
    max = std::max(max, one.avg_jct_s.mean + one.avg_jct_s.ci95);
  const Axis x(0, max / 3600, chart.x0(), chart.x1());
  chart.x_axis(x, "average time from submission to end, hours", number_label, 5);
  const double reference = results.metrics.front().avg_jct_s.mean;
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    const Estimate& jct = results.metrics[i].avg_jct_s;
    const double y = chart.y1() + static_cast<double>(i) * row, end = x.place(jct.mean / 3600);
    chart.add(fmt::format(
        "<rect class=\"bar\" style=\"--c:{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\"><title>{}: {}</title></rect>",
        policy_colour(i), chart.x0(), y + 5, std::max(0.5, end - chart.x0()), row - 10,
        escaped(results.policies[i]), time_label(jct.mean)));
    if (jct.ci95 > 0)
      chart.line(x.place((jct.mean - jct.ci95) / 3600), y + row / 2,
                 x.place((jct.mean + jct.ci95) / 3600), y + row / 2, "whisker");
    chart.text(chart.x0() - 8, y + row / 2 + 5, results.policies[i], "name", "end");
    const double beside = x.place((jct.mean + jct.ci95) / 3600) + 6;
    chart.text(beside, y + row / 2 + 5,
               i == 0 ? time_label(jct.mean) : fmt::format("{:.2f}×", reference / jct.mean),
               "value");
  }
  return chart.svg("Average job completion time by policy");
}

std::string jct_distribution(const Results& results) {
  Chart chart({});
  double min = 1e300, max = 0;
  for (const auto& outcomes : results.outcomes)
    for (double value : all_jct(outcomes)) min = std::min(min, value), max = std::max(max, value);
  const Axis x(min, max, chart.x0(), chart.x1(), true), y(0, 1, chart.y0(), chart.y1());
  chart.x_axis(x, "job completion time", time_label);
  chart.y_axis(y, "jobs done within it", percent_label);
  for (std::size_t i = 0; i < results.policies.size(); ++i)
    draw_cdf(chart, all_jct(results.outcomes[i]), x, y, i, results.policies[i]);
  return chart.svg("Distribution of job completion times by policy");
}

std::string jct_ratios(const Results& results) {
  Chart chart({});
  const Axis x(0.1, 4, chart.x0(), chart.x1(), true), y(0, 1, chart.y0(), chart.y1());
  chart.x_axis(x, "completion time over that under fifo (left of 1: faster)", ratio_label);
  chart.y_axis(y, "jobs", percent_label);
  chart.line(x.place(1), chart.y0(), x.place(1), chart.y1(), "one");
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    if (results.policies[i] == "fifo") continue;
    std::vector<double> ratios;
    for (std::size_t seed = 0; seed < results.fifo.size(); ++seed)
      for (std::size_t job = 0; job < results.fifo[seed].jobs.size(); ++job)
        ratios.push_back(results.outcomes[i][seed].jobs[job].jct_s() /
                         std::max(1.0, results.fifo[seed].jobs[job].jct_s()));
    draw_cdf(chart, ratios, x, y, i, results.policies[i]);
  }
  return chart.svg("Job completion time relative to fifo, by policy");
}

std::string decision_latency(const Results& results) {
  std::vector<std::size_t> deciding;
  double min = 1e300, max = 0;
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    const Metrics& one = results.metrics[i];
    if (one.decisions == 0) continue;
    deciding.push_back(i);
    min = std::min(min, std::max(1e-7, one.decision_p50_s));
    max = std::max(max, one.decision_max_s);
  }
  if (deciding.empty()) return {};
  const double row = 34;
  Chart chart({560, static_cast<double>(deciding.size()) * row + 50, 120, 20, 6, 40});
  const Axis x(min / 2, max * 2, chart.x0(), chart.x1(), true);
  chart.x_axis(x, "time of one decision: median (dot), 90 % (thick), 99 % (thin), longest (tick)",
               time_label);
  for (std::size_t n = 0; n < deciding.size(); ++n) {
    const std::size_t i = deciding[n];
    const Metrics& one = results.metrics[i];
    const double y = chart.y1() + (static_cast<double>(n) + 0.5) * row;
    const std::string colour = policy_colour(i);
    auto bar = [&](double to_s, double height) {
      const double from = x.place(one.decision_p50_s);
      chart.add(fmt::format(
          "<rect class=\"bar\" style=\"--c:{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"1\"/>",
          colour, from, y - height / 2, std::max(0.5, x.place(to_s) - from), height));
    };
    bar(one.decision_p99_s, 3);
    bar(one.decision_p90_s, 9);
    chart.add(fmt::format(
        "<circle class=\"dot\" style=\"--c:{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\"><title>{}: median {}, 90 % {}, 99 % {}, longest {}</title></circle>",
        colour, x.place(one.decision_p50_s), y, escaped(results.policies[i]),
        time_label(one.decision_p50_s), time_label(one.decision_p90_s),
        time_label(one.decision_p99_s), time_label(one.decision_max_s)));
    chart.line(x.place(one.decision_max_s), y - 7, x.place(one.decision_max_s), y + 7, "whisker");
    chart.text(chart.x0() - 8, y + 5, results.policies[i], "name", "end");
  }
  return chart.svg("How long decisions took, by policy");
}

}  // namespace swell::sim
