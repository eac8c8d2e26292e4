// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/top_screen.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>
#include <sstream>
#include <string_view>

#include "control/printable.h"
#include "control/tag.h"
#include "core/count_of.h"
#include "tools/text_table.h"
#include "tools/text_width.h"

namespace swell::tools {

namespace {

/// Maximum width of a job's name, as in squeue: the reason at the end of a line matters more.
constexpr std::size_t kMaxName = 12;  // columns

std::string bar(const GpuUse& use, std::size_t width) {
  if (use.all <= 0 || width < 12) return {};
  const std::size_t cells = width - 2;
  const auto share = [&](int gpus) {
    return static_cast<std::size_t>(gpus) * cells / static_cast<std::size_t>(use.all);
  };
  const std::size_t own = share(use.busy - use.lent), lent = share(use.busy) - own;
  return "[" + std::string(own, '#') + std::string(lent, '+') +
         std::string(cells - own - lent, '.') + "]";
}

/// Returns the sum of a counter over all its labels, or over those with the value `label`.
double total_of(const Json& metrics, const std::string& name, const std::string& label = {}) {
  double sum = 0;
  for (const Json& family : metrics.at("families").items()) {
    if (const auto its = family.string_at("name"); !its || *its != name) continue;
    for (const Json& sample : family.at("samples").items()) {
      const auto labels = members(sample.at("labels"));
      const bool fits =
          label.empty() || (!labels.empty() && label == json_string_value(labels[0].second.get()));
      if (const auto value = sample.number_at("value", 0, 1e18); value && fits) sum += *value;
    }
  }
  return sum;
}

std::string counters_of(const Json& metrics) {
  if (!is_object(metrics)) return "the controller does not answer";
  const double held = total_of(metrics, "swell_gpu_seconds"),
               wasted = total_of(metrics, "swell_wasted_gpu_seconds");
  return fmt::format(
      "grants {} ({} taken), reclaims {}; lent {:.2f} GPU-hours; goodput {:.1f} %",
      total_of(metrics, "swell_grants", "offered"), total_of(metrics, "swell_grants", "taken"),
      total_of(metrics, "swell_reclaims"), total_of(metrics, "swell_gpu_seconds", "lent") / 3600,
      held > 0 ? 100 * (1 - std::min(wasted / held, 1.0)) : 100.0);
}

/// Returns the nodes that are not lent because companions failed there, to nobody or not to one
/// user; empty: there are none.
std::string withheld_of(const Json& metrics) {
  std::string text;
  for (const Json& each : metrics.at("withheld").items()) {
    const auto node = each.string_at("node");
    const auto for_s = each.number_at("for_s", 0, 1e9);
    if (!node || !for_s) continue;
    const auto user = each.string_at("user");
    text += fmt::format("{} {} ({:.0f} min{})",
                        text.empty() ? "not lent, as companions failed there:" : ",",
                        control::printable(*node), std::ceil(*for_s / 60),
                        user ? ", to " + control::printable(*user) : "");
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace

GpuUse gpu_use(const slurm::Snapshot& snapshot) {
  GpuUse use;
  std::set<std::string_view> usable;
  for (const slurm::NodeRecord& node : snapshot.nodes) {
    if (!node.usable) continue;
    usable.insert(node.name);
    for (const slurm::GpuRequest& gpus : node.gpus) use.all += gpus.count;
  }
  for (const slurm::JobRecord& job : snapshot.jobs) {
    if (job.phase == slurm::JobPhase::pending) ++use.waiting_jobs;
    if (job.phase != slurm::JobPhase::running && job.phase != slurm::JobPhase::completing) continue;
    const auto tag = control::Tag::find(job.admin_comment);
    for (const slurm::GpuAllocation& held : job.gpus) {
      use.busy += held.gpus.count;
      if (!usable.contains(held.node)) use.all += held.gpus.count;
      if (tag && tag->number("parent")) use.lent += held.gpus.count;
    }
  }
  return use;
}

std::string top_screen(const GpuUse& use, const std::vector<JobRow>& rows, const Json& metrics,
                       std::size_t width, std::size_t height) {
  using Align = TextTable::Align;
  TextTable table({{"JOBID", Align::right},
                   {"USER"},
                   {"NAME"},
                   {"STATE"},
                   {"OWN", Align::right},
                   {"LENT", Align::right},
                   {"TOTAL/MAX", Align::right},
                   {"DECIDED"},
                   {"WHY"}});
  for (const JobRow& row : rows)
    table.add({std::to_string(row.id), row.user, cut_to(control::printable(row.name), kMaxName),
               row.paused ? "PAUSED" : row.state, std::to_string(row.basic_gpus),
               std::to_string(row.lent_gpus), total_text(row), row.decided_by,
               row.no_growth.empty() ? row.decided_why : row.no_growth});
  std::istringstream lines(fmt::format(
      "Swell: {}: {} asked for (#), {} lent (+), {} idle (.); {}, {} waiting\n{}\n{}\n{}\n{}",
      count_of(use.all, "GPU"), use.busy - use.lent, use.lent, use.idle(),
      count_of(rows.size(), "elastic job"), count_of(use.waiting_jobs, "job"), bar(use, width),
      counters_of(metrics), is_object(metrics) ? withheld_of(metrics) : "", table.text()));
  std::string text;
  std::size_t shown = 0;
  for (std::string line; shown < height && std::getline(lines, line); ++shown)
    text += cut_to(line, width) + "\n";
  return text;
}

Json top_json(const GpuUse& use, const std::vector<JobRow>& rows, const Json& metrics) {
  Json json = jobs_json(rows);
  json.set("gpus", Json::object({{"all", use.all},
                                 {"own", use.busy - use.lent},
                                 {"lent", use.lent},
                                 {"idle", use.idle()}}));
  json.set("waiting_jobs", use.waiting_jobs);
  if (is_object(metrics)) json.set("metrics", metrics);
  return json;
}

}  // namespace swell::tools
