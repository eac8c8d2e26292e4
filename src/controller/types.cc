// SPDX-License-Identifier: GPL-2.0-or-later
// Of the controller: GPU types of jobs that wait, of which a table tells the speeds.
#include <algorithm>
#include <fmt/format.h>

#include "control/tag.h"
#include "controller/controller.h"
#include "controller/type_choice.h"
#include "core/count_of.h"

namespace swell::controller {

namespace {

/// A waiting job whose type may be chosen.
struct Chooser {
  control::Tag tag;
  control::ElasticSpec spec;
  control::SpeedTable table;
};

std::optional<Chooser> chooser_of(const slurm::JobRecord& job) {
  auto tag = control::Tag::find(job.admin_comment);
  if (!tag || tag->get("speeds").empty()) return std::nullopt;
  auto spec = control::ElasticSpec::parse(tag->get("elastic"));
  auto table = control::SpeedTable::parse(tag->get("speeds"));
  if (!spec || !table || spec->types.empty() || job.pending_tasks > 1 || job.het_leader != 0)
    return std::nullopt;
  return Chooser{*std::move(tag), *std::move(spec), *std::move(table)};
}

}  // namespace

std::string Controller::why_type(const slurm::JobRecord& pending) const {
  const auto its = chooser_of(pending);
  if (!its) return {};
  GpuQueue queue(snapshot_, false);
  for (const slurm::JobRecord* job : GpuQueue::in_order(snapshot_)) {
    if (job->id == pending.id) break;
    queue.place_as_asked(*job);
  }
  const auto choice = choose_type(pending, its->spec, its->table, queue);
  if (!choice) return choice.error().message();
  const std::string& asked = type_asked_by(pending);
  return fmt::format("it asks for {}, by its table: {}", asked.empty() ? "any type" : asked,
                     choice->words(gpus_asked_by(pending)));
}

}  // namespace swell::controller
