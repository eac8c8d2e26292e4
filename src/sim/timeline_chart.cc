// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "core/count_of.h"
#include "sim/charts.h"
#include "sim/svg.h"

namespace swell::sim {

namespace {

constexpr int kColumns = 500;          // moments in time that are drawn
constexpr std::size_t kMaxJobs = 150;  // more jobs are drawn by size
constexpr double kNearlyAll = 0.97;

/// One layer of the stack: its mean number of GPUs within each column.
struct Band {
  std::string title, colour;
  int first = kColumns, last = -1;
  std::vector<double> gpus = std::vector<double>(kColumns, 0.0);
  void add(double from, double to, double held) {  // `from` and `to` in columns
    for (int c = std::max(0, static_cast<int>(from)); c < kColumns && c < to; ++c) {
      const double part = std::min<double>(c + 1, to) - std::max<double>(c, from);
      if (part <= 0) continue;
      gpus[static_cast<std::size_t>(c)] += part * held;
      first = std::min(first, c);
      last = std::max(last, c);
    }
  }
};

/// Colour of a job: jobs that start one after the other get hues far apart.
std::string hue(std::size_t index, bool lent) {
  const double angle = std::fmod(static_cast<double>(index) * 137.5, 360);
  return fmt::format("hsl({:.0f} {}% {}%)", angle, lent ? 70 : 52, lent ? 82 : 52);
}

std::string size_colour(std::size_t size, bool lent) {
  constexpr int kHues[] = {205, 150, 30, 285};
  return fmt::format("hsl({} {}% {}%)", kHues[size], lent ? 70 : 52, lent ? 82 : 50);
}

/// All bands from the bottom up: basic demands, then lent GPUs.
std::vector<Band> bands_of(const Results& results, const Outcome& outcome, double until_s) {
  const bool by_job = outcome.jobs.size() <= kMaxJobs;
  const std::size_t layers = by_job ? outcome.jobs.size() : 4;
  std::vector<Band> bands(2 * layers);
  auto layer_of = [&](std::uint32_t job) {
    const JobOutcome& one = outcome.jobs[job - 1];
    return by_job ? job - 1
                  : std::string_view("SMLX").find(
                        results.types[static_cast<std::size_t>(one.type)].size);
  };
  for (std::size_t i = 0; i < layers; ++i) {
    constexpr const char* kSizes[] = {"small", "middle", "large", "XL"};
    const std::string what =
        by_job
            ? fmt::format("job {} ({}, {})", i + 1,
                          results.types[static_cast<std::size_t>(outcome.jobs[i].type)].model->name,
                          count_of(outcome.jobs[i].basic_gpus, "GPU"))
            : fmt::format("{} jobs", kSizes[i]);
    bands[i].title = what + ": basic demand";
    bands[layers + i].title = what + ": lent";
    bands[i].colour = by_job ? hue(i, false) : size_colour(i, false);
    bands[layers + i].colour = by_job ? hue(i, true) : size_colour(i, true);
  }
  std::map<std::uint32_t, Holding> now;
  const double column_s = until_s / kColumns;
  auto close = [&](const Holding& held, double at_s) {
    bands[layer_of(held.job)].add(held.at_s / column_s, at_s / column_s, held.basic);
    if (held.lent > 0)
      bands[layers + layer_of(held.job)].add(held.at_s / column_s, at_s / column_s, held.lent);
  };
  for (const Holding& next : outcome.holdings) {
    const auto known = now.find(next.job);
    if (known != now.end()) close(known->second, next.at_s);
    now[next.job] = next;
  }
  return bands;
}

}  // namespace

double nearly_all_done_s(const Results& results) {
  double latest = 1;
  for (const auto& outcomes : results.outcomes) {
    std::vector<double> ends;
    for (const JobOutcome& job : outcomes.front().jobs) ends.push_back(job.end_s);
    latest = std::max(latest, quantile(ends, kNearlyAll));
  }
  return latest;
}

std::string gpus_over_time(const Results& results, std::size_t policy, double until_s) {
  const Outcome& outcome = results.outcomes[policy].front();
  Chart chart({1140, 220, 52, 14, 10, 40});
  const Axis x(0, until_s / 3600, chart.x0(), chart.x1()),
      y(0, outcome.gpus, chart.y0(), chart.y1());
  chart.x_axis(x, "hours", number_label, 10);
  chart.y_axis(y, "GPUs", number_label, 4);
  std::vector<double> below(kColumns, 0.0);
  const double width = (chart.x1() - chart.x0()) / kColumns;
  for (const Band& band : bands_of(results, outcome, until_s)) {
    if (band.last < 0) continue;
    std::vector<std::pair<double, double>> points;
    for (int c = band.first; c <= band.last; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const double top = y.place(below[at] + band.gpus[at]);
      points.push_back({chart.x0() + c * width, top});
      points.push_back({chart.x0() + (c + 1) * width, top});
    }
    for (int c = band.last; c >= band.first; --c) {
      const double bottom = y.place(below[static_cast<std::size_t>(c)]);
      points.push_back({chart.x0() + (c + 1) * width, bottom});
      points.push_back({chart.x0() + c * width, bottom});
      below[static_cast<std::size_t>(c)] += band.gpus[static_cast<std::size_t>(c)];
    }
    chart.path(points, "band", band.colour, band.title);
  }
  chart.line(chart.x0(), y.place(outcome.gpus), chart.x1(), y.place(outcome.gpus), "capacity");
  return chart.svg("GPUs in use over time under " + results.policies[policy]);
}

}  // namespace swell::sim
