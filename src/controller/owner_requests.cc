// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/owner_requests.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <unistd.h>

#include "control/printable.h"
#include "control/tag.h"
#include "controller/companion_time.h"
#include "controller/waits.h"
#include "core/count_of.h"
#include "core/plan/validate.h"

namespace swell::controller {

namespace {

/// Why a job that somebody asks about is none of the controller's, from Slurm's record of it; null:
/// there is none.
std::string why_not_known(const slurm::JobRecord* found, const control::Ask& ask, bool is_all_shown,
                          uid_t uid,
                          const std::function<std::string(const slurm::JobRecord&)>& why_type) {
  if (found == nullptr)
    return fmt::format(
        "there is no job {0} (squeue); of an elastic job that ended long ago: swell history {0}",
        ask.job);
  if (!is_all_shown && found->uid != uid)
    return fmt::format("job {} belongs to another user", ask.job);
  const auto tag = control::Tag::find(found->admin_comment);
  if (tag && tag->number("parent"))
    return fmt::format(
        "job {} is a companion of job {}, and holds what that job is lent: swell {} {}", ask.job,
        *tag->number("parent"), ask.what, *tag->number("parent"));
  if (!tag || tag->get("elastic").empty())
    return fmt::format("job {} was submitted without --elastic, so it is lent nothing", ask.job);
  if (found->phase == slurm::JobPhase::ended)
    return fmt::format("job {} has ended ({}): swell history {}", ask.job, found->state_text,
                       ask.job);
  if (found->phase == slurm::JobPhase::pending) {
    const std::string type = ask.what == "why" ? why_type(*found) : "";
    return fmt::format("job {} waits still: it can be lent GPUs once it runs{}{}", ask.job,
                       type.empty() ? "" : "; ", type);
  }
  return fmt::format("job {} is {} just now: ask again", ask.job, found->state_text);
}

/// GPUs that a job keeps where it may have no more than `max`.
int kept_below(const ElasticJob& job, int max) {
  int kept = job.kept_gpus();
  for (const Companion* companion : job.companions_beyond(max)) kept -= companion->gpus.count;
  return kept;
}

/// Says which limit a job has from now on, and why where that is less than its owner asked for.
std::string limit_text(const ElasticJob& job, const Config& config) {
  // The max of a job without one depends on whether it is planned for, which may change: no
  // promise.
  const int wanted = job.limits.max_gpus(), of_spec = job.spec.max_total(job.asked_gpus(), true);
  const int of_site = config.max_gpus_per_job;
  if (wanted == 0) return "its limit is that of --elastic again";
  if (of_site > 0 && of_site < std::min(wanted, of_spec))
    return fmt::format(
        "it has at most {} all the same: the site gives no job more than that (MaxGPUsPerJob)",
        count_of(std::max(of_site, job.basic_gpus), "GPU"));
  if (of_spec < wanted)
    return fmt::format("it has at most {} all the same: that is the max of its --elastic",
                       count_of(of_spec, "GPU"));
  std::string text = fmt::format("it has at most {} from now on", count_of(wanted, "GPU"));
  const int has = job.basic_gpus + job.companions.lent_gpus();
  if (const int kept = kept_below(job, wanted); has > wanted && kept < wanted)
    text += fmt::format("; lent GPUs go back companion by companion, so that it keeps {} for now",
                        kept);
  return text;
}

}  // namespace

void OwnerRequests::handle(const control::Server::Event& event, const control::Ask& ask,
                           double now) {
  const auto refuse_it = [&](const std::string& why) {
    loop_.sessions.refuse(event.connection, why);
  };
  if (ask.version != control::kProtocolVersion)
    return refuse_it(fmt::format(
        "this swell speaks protocol {}, the controller {}: install the same version of Swell on "
        "every node",
        ask.version, control::kProtocolVersion));
  if (ask.what == "history") return history_.ask(event, ask);
  if (ask.what == "metrics") return answer_metrics(event.connection);
  const auto found = loop_.jobs.find(ask.job);
  const bool is_admin = event.uid == 0 || event.uid == geteuid();
  if (found == loop_.jobs.end())
    return refuse_it(why_not_known(
        loop_.record_of(ask.job), ask, is_admin, event.uid,
        [this](const slurm::JobRecord& pending) { return types_.why_type(pending); }));
  ElasticJob& job = found->second;
  if (event.uid != job.uid && !is_admin)
    return refuse_it(fmt::format("job {} belongs to another user", ask.job));
  Result<control::Answer> answered = answer(job, ask, now);
  if (!answered) return refuse_it(answered.error().message());
  if (ask.what != "why") {
    loop_.remember_at_once(job);
    loop_.decision.ask();
    loop_.events.event("asked", {{"job", job.id}, {"what", ask.what}, {"number", ask.number}},
                       fmt::format("job {}: {}", job.id, answered->text));
  }
  loop_.sessions.send(event.connection, std::move(*answered));
  loop_.sessions.close(event.connection);
}

void OwnerRequests::answer_metrics(control::ConnectionId connection) {
  Json metrics = loop_.meters.to_json(loop_.jobs);
  metrics.set("withheld", loop_.saved.health.shown(loop_.snapshot.taken));
  Json troubles = Json::object();
  for (const auto& [of, sentence] : loop_.events.troubles()) troubles.set(of.c_str(), sentence);
  if (loop_.history != nullptr)
    if (const std::string trouble = loop_.history->trouble(); !trouble.empty())
      troubles.set("history", trouble);
  metrics.set("troubles", troubles);
  loop_.sessions.send(connection, control::Answer{{}, std::move(metrics)});
  loop_.sessions.close(connection);
}

Result<control::Answer> OwnerRequests::answer(ElasticJob& job, const control::Ask& ask,
                                              double now) {
  if (ask.what == "why") return why(job, now);
  if (ask.what == "replan") return replan(job, ask, now);
  if (ask.what == "pause" || ask.what == "resume") {
    job.limits.pause(ask.what == "pause");
    if (job.limits.is_paused()) loop_.book.withdraw_all(job.id);
    return control::Answer{job.limits.is_paused()
                               ? "it is lent no more GPUs until it is resumed; what it has "
                                 "stays until others need it"
                               : "it may be lent GPUs again",
                           {}};
  }
  if (ask.what != "max")
    return Error(fmt::format(
        "\"{}\" is not known here; there are replan, pause, resume, max, why, history, metrics",
        ask.what));
  if (ask.number != 0 && ask.number < job.basic_gpus)
    return Error(fmt::format("at most {}: the job has {} of its own, which stay its own",
                             count_of(ask.number, "GPU"), job.basic_gpus));
  job.limits.set_max_gpus(ask.number);
  return control::Answer{limit_text(job, loop_.config), {}};
}

namespace {

/// The plan that is asked for: a whole one, or the one that runs under another schedule.
Result<plan::Plan> wanted_plan(const JobTraining& training, const control::Ask& ask) {
  if (ask.schedule.empty()) {
    auto plan = plan::Plan::from_json(ask.plan);
    if (!plan) return plan.error().while_doing("the plan");
    return plan;
  }
  std::optional<plan::Plan> plan = training.plan_now();
  if (!plan)
    return Error(
        "the plan that it runs is not known yet, so that a schedule alone says too little; give "
        "--plan with a \"schedule\", or wait for its profile");
  plan->schedule = ask.schedule;
  if (auto good = plan->check_schedule(); !good) return good.error();
  return *std::move(plan);
}

}  // namespace

Result<control::Answer> OwnerRequests::replan(ElasticJob& job, const control::Ask& ask,
                                              double now) {
  if (job.spec.mode != control::Mode::live)
    return Error("only jobs of live mode change their plan while they run: --elastic=mode=live");
  if (!job.agent.is_connected()) return Error("its swellrun is not connected");
  const control::Status& said = job.agent_words.last();
  if (!job.agent_words.is_settled())
    return Error(fmt::format(
        "GPUs are being lent to it or go back now (STATE {} of swell jobs), and its plan changes "
        "only when all of them train; run the command again once STATE is ACTIVE or ALLOCATED",
        to_text(said.state)));
  auto plan = wanted_plan(job.training, ask);
  if (!plan) return plan.error();
  const Result<JobGpus> gpus = views_.gpus_of(job);
  if (!gpus) return gpus.error();
  if (Result<void> fits = job.training.check_plan(*plan, gpus->basic, gpus->held, *gpus->machines,
                                                  gpus->allocations);
      !fits)
    return fits.error().while_doing("the plan");
  control::Replan told{plan->to_json(), "its owner wants it"};
  if (const std::size_t bytes = told.plan.dump().size(); bytes > control::kMaxDocument)
    return Error(
        fmt::format("the plan has {} bytes as JSON; at most {} can be sent, so use fewer "
                    "groups or a shorter schedule",
                    bytes, control::kMaxDocument));
  job.training.told().decide(std::move(*plan), said.generation);
  job.replans.owner_asked(job.companions);
  loop_.sessions.send(job.agent.connection(), std::move(told));
  job.ordered.ordered(now);
  return control::Answer{
      job.training.is_known()
          ? "it switches to that plan; `swell jobs` shows how it went"
          : "it is told to switch to that plan; it has reported no profile, so that its program alone "
            "knows whether these are its layers and samples; `swell jobs` shows how it went",
      {}};
}

control::Answer OwnerRequests::why(const ElasticJob& job, double now) {
  const int lent = job.companions.lent_gpus();
  const LastDecision& decision = job.decision;
  const planner::NamedTable& scale = decision.scale();
  control::Answer answer;
  // Sentences hold words of the job's agent and program: what they write begins no line.
  const auto say = [&text = answer.text](const std::string& sentence) {
    if (!text.empty()) text += '\n';
    text += control::printable(sentence, std::string_view::npos);
  };
  say(fmt::format("it has {} of its own and {} lent ones (decision: {}): {}",
                  count_of(job.basic_gpus, "GPU"), lent,
                  decision.by().empty() ? "?" : decision.by(),
                  decision.why().empty() ? "nothing was decided yet" : decision.why()));
  const auto plan = job.training.plan_now();
  // The one reported last may be for GPUs that have gone back since.
  if (plan && plan->gpu_count() == job.basic_gpus + lent) say("its plan: " + plan->summary());
  if (job.wanted_gpus > job.basic_gpus)
    say(fmt::format("its user asked for {} and consented to run with {}",
                    count_of(job.wanted_gpus, "GPU"), job.basic_gpus));
  if (!job.description.refused_speeds().empty()) say(job.description.refused_speeds());
  if (!job.description.chosen().empty()) say("its GPU type: " + job.description.chosen());
  if (const std::string moves = switcher_.why(job, now); !moves.empty()) say(moves);
  Json leaving = Json::array();
  for (const Companion& companion : job.companions) {
    if (!companion.is_leaving()) continue;
    say(fmt::format("companion {} with {} on {} goes back: {}", companion.id,
                    count_of(companion.gpus.count, "GPU"), companion.node,
                    companion.departure().reason()));
    leaving.append(
        Json::object({{"companion", companion.id}, {"reason", companion.departure().reason()}}));
  }
  if (leaving.size() == 0 && !job.lending.taken_back().empty())
    say("lent GPUs were taken back last: " + job.lending.taken_back());
  if (const slurm::JobRecord* record = loop_.record_of(job.id))
    for (const Companion& companion : job.companions)
      if (const auto [at, why] = end_of(companion, *record, loop_.snapshot);
          at != 0 && !companion.is_leaving())
        say(fmt::format("companion {} on {} goes back in {} s at the latest: {}", companion.id,
                        companion.node, std::max<std::time_t>(at - loop_.snapshot.taken, 0), why));
  if (decision.unlikely())
    say(fmt::format("not grown: {} of {} or more in {:.3g} h; chance {:.3g} of {:g}",
                    count_of(decision.unlikely()->submissions, "submission"),
                    count_of(loop_.config.arrivals.gpus, "GPU"),
                    loop_.config.arrivals.window_s / 3600, decision.unlikely()->chance,
                    loop_.config.arrivals.chance));
  const policy::ClusterView& seen = views_.view_of_round(now);
  const std::vector<LiveGrant> outstanding = loop_.book.outstanding();
  const control::Status& said = job.agent_words.last();
  if (!said.switched.empty()) say("live mode: " + said.switched);
  if (said.lost_generation > 0)
    say(fmt::format("the change that led to generation {} cost {:.2f} s of training",
                    said.lost_generation, said.lost_s));
  const StepsLeft& steps = job.agent_words.steps();
  std::optional<double> left_s = steps.left(now, job.training.step_s());
  if (left_s) *left_s *= job.training.step_s();
  if (steps.total() > 0)
    say(fmt::format("{} of {} are made{}", steps.made(), count_of(steps.total(), "step"),
                    left_s ? fmt::format("; at this pace it ends in {:.3g} h", *left_s / 3600)
                           : "; when it ends is not known"));
  const slurm::JobRecord* record = loop_.record_of(job.id);
  const std::time_t deadline = record != nullptr ? deadline_of(job.spec.deadline, *record) : 0;
  if (deadline != 0 && !job.deadline.words().empty())
    say(fmt::format("its deadline, {}: {}", control::Deadline{0, deadline}.text(),
                    job.deadline.words()));
  const redeploy::Measured way = job.way();
  const auto at = static_cast<double>(loop_.snapshot.taken);
  const auto cost = redeploy::expected_cost(job.pauses, loop_.saved.pauses, way,
                                            static_cast<std::int64_t>(job.uid), at);
  if (cost)
    say(fmt::format("a change of its plan, {}, is expected to cost {:.2f} s of training, by {}",
                    way == redeploy::Measured::live ? "live" : "by a restart", cost->pause_s,
                    !job.pauses.expected(way, at)     ? "those of other jobs"
                    : job.pauses.is_by_start(way, at) ? "the time from its start to its first step"
                                                      : "its own last ones"));
  const std::string waits = waits_for(job, {loop_.config, loop_.snapshot, loop_.jobs, outstanding,
                                            seen, loop_.draining, now, &loop_.saved.health});
  if (!waits.empty()) say("it takes no more now: " + waits);
  const planner::NamedRow *more = nullptr, *here = scale.at(job.basic_gpus + lent);
  for (const planner::NamedRow& row : scale.rows)
    if (row.omitted == planner::RowRule::none && row.gpus > job.basic_gpus + lent) more = &row;
  if (here != nullptr && more != nullptr)
    say(fmt::format("with {} it would do {:.2f} times as much as with {}, by {}{}{}",
                    count_of(more->gpus, "GPU"), more->throughput / here->throughput, here->gpus,
                    more->summary,
                    scale.source == planner::ScaleSource::unknown ? "" : "; predicted from ",
                    planner::words_for(scale.source)));
  else if (waits.empty() && !scale.rows.empty() && scale.rows.back().gpus <= job.basic_gpus + lent)
    say("there are no more GPUs that it could have now");
  if (const std::string omitted = scale.omitted(); !omitted.empty())
    say("left out of its scale table: " + omitted);
  if (const std::string own =
          fmt::format("its owner wants at most {}", count_of(job.limits.max_gpus(), "GPU"));
      job.limits.max_gpus() > 0 && !waits.starts_with(own))
    say(own);
  answer.details = Json::object({{"job", job.id},
                                 {"basic_gpus", job.basic_gpus},
                                 {"wanted_gpus", job.wanted_gpus},
                                 {"lent_gpus", lent},
                                 {"decided_by", decision.by()},
                                 {"decided_why", decision.why()},
                                 {"paused", job.limits.is_paused()},
                                 {"own_max", job.limits.max_gpus()},
                                 {"samples_per_s", job.training.rate()},
                                 {"leaving", leaving},
                                 {"taken_back", job.lending.taken_back()},
                                 {"scale", scale.rows_json()},
                                 {"scale_source", planner::name_of(scale.source)},
                                 {"waits_for", waits}});
  if (!job.description.chosen().empty()) answer.details.set("gpu_type", job.description.chosen());
  if (plan) answer.details.set("plan", plan->to_json());
  if (decision.unlikely()) answer.details.set("chance_to_pay", decision.unlikely()->chance);
  if (steps.total() > 0)
    answer.details.set("steps", steps.made()).set("total_steps", steps.total());
  if (left_s) answer.details.set("time_left_s", *left_s);
  if (deadline != 0) answer.details.set("deadline", control::Deadline{0, deadline}.text());
  if (job.deadline.slack_s()) answer.details.set("slack_s", *job.deadline.slack_s());
  if (cost) answer.details.set("expected_pause_s", cost->pause_s);
  if (const auto& speedup = job.training.speedup())
    answer.details.set("predicted_speedup", speedup->predicted)
        .set("measured_speedup", speedup->measured);
  return answer;
}

}  // namespace swell::controller
