// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "sim/random.h"

namespace swell::sim {

namespace {

// Sigma of a duration's logarithm: production traces have 1 to 2.
constexpr double kDurationSigma = 1.5;
constexpr double kSwing = 0.8;
constexpr double kDay_s = 86400;

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

constexpr const char* kColumns[] = {"submit_s", "num_gpus", "duration_s"};

}  // namespace

Result<Trace> trace_from_csv(std::string_view text) {
  const auto heading = cells_of(take_line(text));
  std::size_t at[3];
  for (int c = 0; c < 3; ++c) {
    const auto found = std::find(heading.begin(), heading.end(), kColumns[c]);
    if (found == heading.end())
      return Error(
          fmt::format("line 1 has no column \"{}\"; a trace has submit_s, num_gpus and duration_s",
                      kColumns[c]));
    at[c] = static_cast<std::size_t>(found - heading.begin());
  }
  Trace trace;
  for (int number = 2; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    const auto cells = cells_of(line);
    double values[3];
    for (int c = 0; c < 3; ++c) {
      const std::string_view cell = at[c] < cells.size() ? cells[at[c]] : std::string_view();
      const auto [end, problem] =
          std::from_chars(cell.data(), cell.data() + cell.size(), values[c]);
      const double min = c == 0 ? 0 : 1e-9;
      if (problem != std::errc() || end != cell.data() + cell.size() || !(values[c] >= min) ||
          !(values[c] < 1e12))
        return Error(fmt::format("line {}: {} is \"{}\"; a number {} is wanted", number,
                                 kColumns[c], cell, c == 0 ? "of at least 0" : "above 0"));
    }
    trace.push_back({values[0], values[1], values[2]});
  }
  if (trace.empty()) return Error("there is no job in it");
  std::stable_sort(trace.begin(), trace.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  return trace;
}

Trace generate(const Generator& generator, std::uint64_t seed) {
  Random random{seed, kArrivals};
  Trace trace;
  const double max = generator.jobs_per_hour * (generator.diurnal ? 1 + kSwing : 1) / 3600;
  for (double now = random.exponential(1 / max); now < generator.hours * 3600;
       now += random.exponential(1 / max)) {
    // Thinning: arrivals come at the highest rate, and the hour's share of them is kept.
    const double rate =
        generator.diurnal ? (1 - kSwing * std::cos(6.283185307179586 * now / kDay_s)) / (1 + kSwing)
                          : 1;
    if (random.uniform() >= rate) continue;
    const double shape =
        std::exp(kDurationSigma * random.normal() - kDurationSigma * kDurationSigma / 2);
    trace.push_back(
        {now, 1,
         std::clamp(generator.mean_duration_s * shape, 30.0, 100 * generator.mean_duration_s)});
  }
  return trace;
}

}  // namespace swell::sim
