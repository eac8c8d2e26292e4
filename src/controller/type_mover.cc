// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/type_mover.h"

#include <algorithm>
#include <fmt/format.h>

#include "control/tag.h"
#include "controller/type_choice.h"
#include "core/count_of.h"

namespace swell::controller {

namespace {

/// Jobs that are moved in one round: each takes a few RPCs.
constexpr int kMaxMoves = 16;

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

void TypeMover::choose_types(double now) {
  if (loop_.config.type_interval_s <= 0 || loop_.draining || now < due_ ||
      !loop_.slurm.changes_gpu_types())
    return;
  due_ = now + loop_.config.type_interval_s;
  const auto waits_for_type = [](const slurm::JobRecord& job) {
    return job.phase == slurm::JobPhase::pending && chooser_of(job).has_value();
  };
  if (std::none_of(loop_.snapshot.jobs.begin(), loop_.snapshot.jobs.end(), waits_for_type)) return;
  GpuQueue queue(loop_.snapshot, false);
  int moved = 0;
  for (const slurm::JobRecord* job : GpuQueue::in_order(loop_.snapshot)) {
    auto its = chooser_of(*job);
    if (!its || loop_.moves.contains(job->id)) {
      queue.place_as_asked(*job);
      continue;
    }
    const auto choice = choose_type(*job, its->spec, its->table, queue);
    if (!choice || !pays_to_move(*choice) || moved == kMaxMoves) {
      queue.place_as_asked(*job);
      continue;
    }
    const TypeOffer& best = choice->best();
    const std::string asked = type_asked_by(*job);
    const std::string why =
        fmt::format("{}: moved to {}", choice->words(gpus_asked_by(*job)), best.type);
    its->tag.set("chosen", control::as_word(why));
    const std::string comment = its->tag.put_into(job->admin_comment);
    const Result<bool> done = loop_.slurm.set_gpu_type(job->id, best.type, comment);
    ++moved;
    if (!done || !*done) {
      if (!done)
        loop_.events.say_once(fmt::format("type of job {}", job->id), done.error().message());
      queue.place_as_asked(*job);
      continue;
    }
    if (loop_.tags != nullptr) loop_.tags->wrote(job->id, comment);
    loop_.slurm.forget();
    queue.place(*job, best.type, best.end_s ? *best.end_s - best.start_s : GpuQueue::kForever_s);
    loop_.events.event(
        "type-chosen", {{"job", job->id}, {"from", asked}, {"to", best.type}, {"reason", why}},
        fmt::format("job {}, which waits, asks for {} now: {}", job->id, best.type, why));
  }
}

std::string TypeMover::why_type(const slurm::JobRecord& pending) const {
  const auto its = chooser_of(pending);
  if (!its) return {};
  GpuQueue queue(loop_.snapshot, false);
  for (const slurm::JobRecord* job : GpuQueue::in_order(loop_.snapshot)) {
    if (job->id == pending.id) break;
    queue.place_as_asked(*job);
  }
  const auto choice = choose_type(pending, its->spec, its->table, queue);
  if (!choice) return choice.error().message();
  const std::string& asked = type_asked_by(pending);
  return fmt::format(
      "it asks for {}, by its table: {}{}", asked.empty() ? "any type" : asked,
      choice->words(gpus_asked_by(pending)),
      loop_.slurm.changes_gpu_types()
          ? ""
          : "; this version of Slurm does not let it change its type while it waits");
}

}  // namespace swell::controller
