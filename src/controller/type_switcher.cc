// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/type_switcher.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <utility>

#include "control/speed_table.h"
#include "control/tag.h"
#include "controller/companion_time.h"
#include "controller/gpu_queue.h"
#include "controller/type_choice.h"
#include "core/count_of.h"
#include "core/redeploy/measured.h"

namespace swell::controller {

namespace {

/// How long Slurm takes from a requeue until the script runs again, beside the pause of the
/// program.
constexpr double kRequeueTakes_s = 10;
/// Beyond the job's grace: for lent GPUs to go back, and for workers to leave.
constexpr double kMoveSlack_s = 90;
/// How long swellrun waits for Slurm to end it, from when its workers have left.
constexpr int kRequeuedBy_s = 60;
/// Minimum time between two looks at a requeued job that has not started. If its type is taken and
/// the other of its two types is idle, it then asks for the other one.
constexpr double kAskAgain_s = 5;
/// It asks for the other type as well if its own type has seemed idle for this time and Slurm has
/// not started it there, for example because a reservation is near.
constexpr double kStarts_s = 30;
/// A requeued job that has not started by then is a pending job like any other: nothing is set
/// aside for it, and other jobs may move.
constexpr double kRequeuedFor_s = 300;

/// Limit of jobs that are looked at in one round: for each, the whole queue is placed anew.
constexpr int kLookedAt = 8;

/// Whether the demand could start now on GPUs of `type`, beside all pending jobs.
bool is_idle(GpuQueue& queue, const slurm::JobRecord& demand, const std::string& type) {
  const auto start_s = queue.start_of(demand, type);
  return start_s && *start_s < 1;
}

/// The type of a running job's own GPUs; empty: it has several, or they are not typed.
std::string type_held_by(const slurm::JobRecord& record) {
  std::string type = record.gpus.empty() ? "" : record.gpus.front().gpus.type;
  for (const slurm::GpuAllocation& held : record.gpus)
    if (held.gpus.type != type) return {};
  return type;
}

/// A running job as it waits after a requeue.
slurm::JobRecord demand_of(const slurm::JobRecord& running, const std::string& type) {
  slurm::JobRecord demand = running;
  demand.phase = slurm::JobPhase::pending;
  demand.waiting = slurm::Waiting::for_resources;
  demand.nodes.clear();
  demand.gpus.clear();
  for (slurm::GpuRequest* asked : {&demand.gpus_per_node, &demand.gpus_in_all})
    if (asked->count > 0) asked->type = type;
  return demand;
}

}  // namespace

/// Why the job can never be moved, whatever is idle; empty: it can.
std::string TypeSwitcher::why_never(const ElasticJob& job, const slurm::JobRecord& record) const {
  if (!loop_.slurm.changes_gpu_types())
    return "this version of Slurm does not let a waiting job change its GPU type (24.11 does)";
  if (!record.has_script) return "Slurm requeues jobs of sbatch alone";
  if (!record.may_requeue) return "Slurm may not requeue it (--no-requeue, or JobRequeue=0)";
  if (record.gpus_by_task_or_socket) return "it asks for GPUs of each task or socket";
  if (gpus_asked_by(record) == 0)
    return "only GPUs of --gres, --gpus-per-node and --gpus change their type";
  if (!record.required_nodes.empty()) return "--nodelist names its nodes";
  if (!record.reservation.empty()) return "it runs in a reservation";
  if (!job.description.refused_speeds().empty()) return job.description.refused_speeds();
  if (job.description.speeds().empty()) return "it has no table of its speeds";
  return {};
}

std::string TypeSwitcher::why_not_now(const ElasticJob& job, const slurm::JobRecord& record) const {
  if (loop_.draining) return "nothing is lent or moved for now (Elasticity=drain)";
  if (record.phase != slurm::JobPhase::running || record.is_preempted())
    return "Slurm does not run it just now, or preempts it";
  if (job.limits.is_paused()) return "its owner has paused it";
  if (!job.agent.is_connected()) return "its swellrun is not connected";
  if (const std::int64_t moved = job.description.moved(); moved > 0) {
    const auto since_s = static_cast<double>(loop_.snapshot.taken - moved);
    if (since_s < loop_.config.switch_interval_s)
      return fmt::format("it was moved {} ago, and is moved once in {} (SwitchInterval)",
                         duration_words(since_s), duration_words(loop_.config.switch_interval_s));
  }
  // A move that was called off has cost a pause, too, and may fail again for the same reason.
  if (const auto off = called_off_.find(job.id); off != called_off_.end())
    if (const auto since_s = static_cast<double>(loop_.snapshot.taken - off->second.at);
        since_s < loop_.config.switch_interval_s)
      return fmt::format(
          "its last move was called off {} ago: {}; it is tried once in {} "
          "(SwitchInterval)",
          duration_words(since_s), off->second.why, duration_words(loop_.config.switch_interval_s));
  if (job.agent_words.last().state != control::JobState::active)
    return fmt::format("it is {} just now", to_text(job.agent_words.last().state));
  return {};
}

/// Seconds until its end at that speed. Where its steps are not known, it is taken to run as long
/// again as it has: half of all jobs of an age reach twice that age.
double TypeSwitcher::left_s(const ElasticJob& job, const slurm::JobRecord& record,
                            const control::SpeedTable& table, double samples_per_s) const {
  const double age_s =
      static_cast<double>(std::max<std::time_t>(loop_.snapshot.taken - record.start_time, 0));
  const StepsLeft& steps = job.agent_words.steps();
  const auto total = static_cast<double>(steps.total() > 0 ? steps.total() : job.spec.steps);
  if (total <= 0) return age_s;
  const double made = steps.made() > 0 ? static_cast<double>(steps.made())
                                       : age_s * samples_per_s / table.samples_per_step;
  return std::max(total - made, 0.0) * table.samples_per_step / samples_per_s;
}

/// Training time that a move costs: lent GPUs go back first, then the job starts again.
double TypeSwitcher::pause_s(const ElasticJob& job) const {
  const auto of = [&](redeploy::Measured way) {
    const auto cost = redeploy::expected_cost(job.pauses, loop_.saved.pauses, way,
                                              static_cast<std::int64_t>(job.uid),
                                              static_cast<double>(loop_.snapshot.taken));
    return cost ? cost->pause_s : redeploy::measured_pause(way, true).pause_s;
  };
  return kRequeueTakes_s + of(redeploy::Measured::restart) +
         (job.companions.empty() ? 0 : of(job.way()));
}

/// Returns the move that pays: FlexTrain, equation 14, over the time that is left. The error says
/// why the job stays.
Result<TypeMove> TypeSwitcher::propose(const ElasticJob& job) const {
  const slurm::JobRecord* record = loop_.record_of(job.id);
  if (record == nullptr) return Error("Slurm does not show it");
  TypeMove move;
  move.from = type_held_by(*record);
  const auto stays = [&](const std::string& why) {
    return Error(
        fmt::format("it stays on {}: {}", move.from.empty() ? "its GPUs" : move.from, why));
  };
  if (const std::string why = why_never(job, *record); !why.empty()) return stays(why);
  if (const std::string why = why_not_now(job, *record); !why.empty()) return stays(why);
  const auto table = control::SpeedTable::parse(job.description.speeds());
  if (!table) return stays(table.error().message());
  const int gpus = gpus_asked_by(*record);
  // Each of its GPUs does an equal part of what all would do, were they of its type.
  const int total = job.kept_gpus();
  const auto part = [&](const std::string& type, int count) -> std::optional<double> {
    const auto all = table->speed(type, total);
    return all ? std::optional(*all * count / total) : std::nullopt;
  };
  std::optional<double> here = part(move.from, job.basic_gpus);
  for (const Companion& companion : job.companions)
    if (const auto its = part(companion.gpus.type, companion.gpus.count);
        its && here && !companion.is_leaving())
      *here += *its;
  if (!here)
    return stays(fmt::format("its table has no speed of {} with {}",
                             move.from.empty() ? "its GPUs" : move.from, count_of(gpus, "GPU")));
  const double left = left_s(job, *record, *table, *here), pause = pause_s(job);
  GpuQueue queue(loop_.snapshot, true, job.id);
  std::string not_idle;
  double best = 0;
  for (const std::string& type : job.spec.types) {
    const auto speed = table->speed(type, gpus);
    if (type == move.from || !speed || *speed <= *here || *speed <= best) continue;
    if (!is_idle(queue, demand_of(*record, type), type)) {
      not_idle += fmt::format("{}{} {}", not_idle.empty() ? "" : " and ", gpus, type);
      continue;
    }
    best = *speed;
    move.to = type;
  }
  if (move.to.empty())
    return stays(not_idle.empty()
                     ? "no other type of types= is faster than what it has, by its table"
                     : fmt::format("{} would be faster, and are not idle, or a pending job needs "
                                   "them",
                                   not_idle));
  const double times = best / *here, there = pause + left / times;
  const std::string words = fmt::format(
      "{} {} are {:.2f} times as fast as what it has: done in {} in place of {}, with a pause of {}",
      gpus, move.to, times, duration_words(there), duration_words(left), duration_words(pause));
  bool keeps_deadline = false;
  if (const std::time_t deadline = deadline_of(job.spec.deadline, *record); deadline != 0) {
    const auto until_s = static_cast<double>(deadline - loop_.snapshot.taken);
    keeps_deadline = left > until_s && there <= until_s;
  }
  const TypeChoice choice{.offers = {{move.to, 0, best, there, table->source_of(move.to)}},
                          .gain_s = left - there};
  // Equation 14; else only a gain that is worth a change, as for a job that waits.
  if (left <= times / (times - 1) * pause || (!keeps_deadline && !pays_to_move(choice)))
    return stays(words + ", which does not pay");
  move.why = words + (keeps_deadline ? ", which keeps its deadline" : "");
  move.started = record->start_time;
  move.demand = demand_of(*record, move.to);
  return move;
}

std::string TypeSwitcher::why(const ElasticJob& job, double) const {
  if (!job.spec.switches_type) return {};
  if (const auto found = loop_.moves.find(job.id); found != loop_.moves.end()) {
    const TypeMove& move = found->second;
    return fmt::format("it moves from {} to {}, {}: {}", move.from, move.to,
                       move.phase == TypeMove::Phase::clearing  ? "and its lent GPUs go back first"
                       : move.phase == TypeMove::Phase::leaving ? "and its workers save and leave"
                                                                : "and is requeued",
                       move.why);
  }
  const auto move = propose(job);
  return move ? fmt::format("it is moved to {} soon: {}", move->to, move->why)
              : move.error().message();
}

void TypeSwitcher::step(double now) {
  std::erase_if(called_off_, [&](const auto& each) {
    return static_cast<double>(loop_.snapshot.taken - each.second.at) >=
           loop_.config.switch_interval_s;
  });
  begin_one(now);
  for (auto it = loop_.moves.begin(); it != loop_.moves.end();)
    it = go_on(it->first, it->second, now) ? std::next(it) : loop_.moves.erase(it);
  for (auto& [id, job] : loop_.jobs)
    if (job.agent_words.last().has_left && !loop_.moves.contains(id))
      tell_to_stay(job, job.agent_words.last().requeue_order,
                   "slurmctld was started again meanwhile");
}

void TypeSwitcher::begin_one(double now) {
  if (!loop_.moves.empty() || loop_.config.type_interval_s <= 0 || now < due_) return;
  int looked_at = 0;
  for (auto& [id, job] : loop_.jobs) {
    if (!job.spec.switches_type || id <= looked_up_to_) continue;
    if (++looked_at > kLookedAt) return;
    looked_up_to_ = id;
    if (auto move = propose(job)) return begin(job, *std::move(move), now);
  }
  looked_up_to_ = 0;
  due_ = now + loop_.config.type_interval_s;
}

void TypeSwitcher::begin(ElasticJob& job, TypeMove move, double now) {
  move.began = now;
  move.by = now + grace_of(job, loop_.config) + kMoveSlack_s;
  loop_.book.withdraw_all(job.id);
  for (Companion& companion : job.companions)
    if (!companion.is_leaving())
      reclaimer_.reclaim(job, companion, now, "type", fmt::format("its job moves to {}", move.to));
  loop_.events.event(
      "type-move-begun",
      {{"job", job.id}, {"from", move.from}, {"to", move.to}, {"reason", move.why}},
      fmt::format("job {} moves from {} to {}: {}", job.id, move.from, move.to, move.why));
  loop_.moves.emplace(job.id, std::move(move));
  loop_.decision.ask();
}

bool TypeSwitcher::go_on(JobId id, TypeMove& move, double now) {
  const auto found = loop_.jobs.find(id);
  ElasticJob* job =
      found != loop_.jobs.end() && found->second.started == move.started ? &found->second : nullptr;
  switch (move.phase) {
    case TypeMove::Phase::clearing:
      return job != nullptr ? clear(*job, move, now) : call_off(id, job, move, "it has ended");
    case TypeMove::Phase::leaving: return leave(id, job, move, now);
    case TypeMove::Phase::requeued: return start(id, move, now);
  }
  return false;
}

bool TypeSwitcher::clear(ElasticJob& job, TypeMove& move, double now) {
  if (!job.agent.is_connected())
    return call_off(job.id, &job, move, "its swellrun is not connected");
  if (now > move.by) return call_off(job.id, &job, move, "its lent GPUs did not go back in time");
  for (Companion& companion : job.companions)  // those that have begun since
    if (!companion.is_leaving())
      reclaimer_.reclaim(job, companion, now, "type", fmt::format("its job moves to {}", move.to));
  if (!job.companions.empty() || job.agent_words.last().state != control::JobState::active)
    return true;
  // Greater than those of an earlier slurmctld.
  last_order_ = std::max<std::int64_t>(last_order_ + 1, loop_.snapshot.taken);
  move.order = last_order_;
  loop_.sessions.send(job.agent.connection(),
                      control::Requeue{move.order, kRequeuedBy_s, false,
                                       fmt::format("the job moves to {}", move.to)});
  move.phase = TypeMove::Phase::leaving;
  move.by = now + job.spec.grace_s + kMoveSlack_s;
  return true;
}

/// If swellrun is killed meanwhile, its job fails without a Bye: the training has not ended, and
/// the job is requeued all the same.
bool TypeSwitcher::leave(JobId id, ElasticJob* job, TypeMove& move, double now) {
  if (job == nullptr) {
    const slurm::JobRecord* record = loop_.record_of(id);
    if (record != nullptr && record->phase == slurm::JobPhase::completing && now <= move.by)
      return true;
    if (record == nullptr || record->state_text != "FAILED" || record->start_time != move.started)
      return call_off(id, job, move, "its run has ended");
    return requeue(id, job, move, now);
  }
  const control::Status& said = job->agent_words.last();
  const bool is_answer = said.requeue_order == move.order;
  if (is_answer && said.has_left) {
    GpuQueue queue(loop_.snapshot, true, id);
    if (!is_idle(queue, move.demand, move.to))
      return call_off(id, job, move, fmt::format("the {} are needed by others", move.to));
    return requeue(id, job, move, now);
  }
  if (is_answer && !said.not_requeued.empty()) return call_off(id, job, move, said.not_requeued);
  if (now > move.by) return call_off(id, job, move, "its workers did not leave in time");
  return true;
}

bool TypeSwitcher::requeue(JobId id, ElasticJob* job, TypeMove& move, double now) {
  loop_.slurm.forget();
  if (const Result<void> done = loop_.slurm.requeue(id); !done)
    return call_off(id, job, move, done.error().message());
  move.phase = TypeMove::Phase::requeued;
  move.by = move.requeued_at = now;
  return true;
}

/// Has the requeued job ask for the other type. If others take that meanwhile, it asks for the type
/// that it had.
bool TypeSwitcher::start(JobId id, TypeMove& move, double now) {
  const slurm::JobRecord* record = loop_.record_of(id);
  if (record == nullptr || record->phase == slurm::JobPhase::ended)
    return call_off(id, nullptr, move, "it has ended");
  if (record->phase == slurm::JobPhase::running && record->start_time != move.started) {
    const std::string type = type_held_by(*record);
    if (type == move.from)
      return call_off(id, nullptr, move, fmt::format("others took the {}", move.to));
    loop_.events.event("type-moved",
                       {{"job", id},
                        {"from", move.from},
                        {"to", type},
                        {"took_s", now - move.began},
                        {"reason", move.why}},
                       fmt::format("job {} runs on {} now, {} after it began to move", id, type,
                                   duration_words(now - move.began)));
    return false;
  }
  if (record->priority == 0 && record->phase == slurm::JobPhase::pending)
    return call_off(id, nullptr, move, "it is held");
  if (now >= move.requeued_at + kRequeuedFor_s)
    return call_off(id, nullptr, move, "it has not started in time");
  if (record->phase != slurm::JobPhase::pending || now < move.by) return true;
  const std::string& asked = type_asked_by(*record);
  if (move.asked_at == 0) return ask_for(*record, move.to, move, now);
  const bool is_late = now >= move.asked_at + kStarts_s;
  if (!is_late && record->waiting != slurm::Waiting::for_resources) return true;
  const std::string& other = asked == move.to ? move.from : move.to;
  GpuQueue queue(loop_.snapshot, false);
  for (const slurm::JobRecord* ahead : GpuQueue::in_order(loop_.snapshot)) {
    if (ahead->id == id) break;
    queue.place_as_asked(*ahead);
  }
  move.by = now + kAskAgain_s;
  if ((!is_late && is_idle(queue, *record, asked)) || !is_idle(queue, *record, other)) return true;
  return ask_for(*record, other, move, now);
}

bool TypeSwitcher::ask_for(const slurm::JobRecord& record, const std::string& type, TypeMove& move,
                           double now) {
  auto tag = control::Tag::find(record.admin_comment);
  if (!tag) return call_off(record.id, nullptr, move, "its tag is gone");
  const std::string why =
      type == move.to
          ? fmt::format("moved from {} to {} while it ran: {}", move.from, move.to, move.why)
          : fmt::format("back on {}, since others took the {} that it was to move to", move.from,
                        move.to);
  tag->set("chosen", control::as_word(why));
  tag->set("moved", std::to_string(loop_.snapshot.taken));
  const std::string comment = tag->put_into(record.admin_comment);
  const Result<bool> done = loop_.slurm.set_gpu_type(record.id, type, comment, true);
  move.by = now + kAskAgain_s;
  loop_.slurm.forget();
  if (!done) {
    loop_.events.say_once(fmt::format("type of job {}", record.id), done.error().message());
    return true;
  }
  if (!*done) return true;
  move.asked_at = now;
  if (loop_.tags != nullptr) loop_.tags->wrote(record.id, comment);
  loop_.events.event(
      "type-chosen",
      {{"job", record.id}, {"from", type_asked_by(record)}, {"to", type}, {"reason", why}},
      fmt::format("job {}, which was requeued, asks for {} now: {}", record.id, type, why));
  return true;
}

bool TypeSwitcher::call_off(JobId id, ElasticJob* job, const TypeMove& move,
                            const std::string& why) {
  called_off_[id] = {loop_.snapshot.taken, why};
  loop_.events.event(
      "type-move-called-off", {{"job", id}, {"from", move.from}, {"to", move.to}, {"reason", why}},
      fmt::format("job {} does not move from {} to {}: {}", id, move.from, move.to, why));
  if (job != nullptr && move.phase == TypeMove::Phase::leaving && job->agent.is_connected())
    tell_to_stay(*job, move.order, why);
  loop_.decision.ask();
  return false;
}

void TypeSwitcher::tell_to_stay(ElasticJob& job, std::int64_t order, const std::string& why) {
  if (!job.agent.is_connected()) return;
  job.agent_words.ask_to_stay();
  loop_.sessions.send(job.agent.connection(), control::Requeue{order, 0, true, why});
}

}  // namespace swell::controller
