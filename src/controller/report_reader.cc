// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/report_reader.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include "control/speed_table.h"
#include "core/perf/coefficients.h"

namespace swell::controller {

namespace {

/// A report may come before Slurm's records show the companions that it speaks of: it is tried
/// again for so long.
constexpr double kReportKept_s = 5;

/// Whether the job has all these companions, and keeps them. A report that names others is of what
/// it was until a moment ago: it is neither used nor held against the job, which could as well have
/// reported nothing.
bool holds_all(const ElasticJob& job, const std::vector<JobId>& companions) {
  return std::all_of(companions.begin(), companions.end(), [&](JobId id) {
    return std::any_of(job.companions.begin(), job.companions.end(),
                       [&](const Companion& each) { return each.id == id && !each.is_leaving(); });
  });
}

/// A reason as it is whatever was measured.
std::string without_figures(std::string reason) {
  std::erase_if(reason, [](unsigned char c) { return std::isdigit(c) || c == '.' || c == '-'; });
  return reason;
}

}  // namespace

void ReportReader::receive(ElasticJob& job, const control::Profile& profile, double now) {
  job.reports.receive(profile, now);
}

/// Whether the job's report is taken. A report that is neither taken nor refused yet stays.
bool ReportReader::take_report(ElasticJob& job, double now) {
  const control::Profile& report = *job.reports.waiting();
  const Result<JobGpus> gpus = views_.gpus_of(job);
  const Result<void> taken =
      gpus ? job.training.take(report, gpus->basic, gpus->held, *gpus->machines, gpus->allocations)
           : Result<void>(gpus.error());
  if (!taken && now - job.reports.came() < kReportKept_s) return false;
  if (!taken && !holds_all(job, report.companions)) {
    job.reports.drop();
    return false;
  }
  loop_.decision.ask();
  job.trust.heard(job.training.speedup(), now, loop_.config.max_shortfall);
  if (taken) {
    job.reports.believe();
    return true;
  }
  // A report that nobody could judge, or that is incomplete, is not held against the job.
  const std::string& why = taken.error().message();
  const bool is_said = without_figures(why) == without_figures(job.reports.refused());
  job.reports.refuse(why, gpus.ok() && !job.training.is_incomplete(), now);
  if (is_said) return false;  // a program reports every few seconds, with other figures each time
  loop_.events.event("profile-refused", {{"job", job.id}, {"reason", why}},
                     fmt::format("job {}: its profile is not used: {}", job.id, why));
  return false;
}

void ReportReader::take_sheet(ElasticJob& job, const Json& model, double now) {
  job.description.forget_model();
  if (!is_object(model)) return;
  auto sheet = ModelSheet::read(model);
  if (sheet) {
    job.description.describe(std::move(*sheet), now);
    check_table(job);
  } else {
    const std::string& why = sheet.error().message();
    job.description.refuse_model(why);
    loop_.events.event("model-refused", {{"job", job.id}, {"reason", why}},
                       fmt::format("job {}: its model is not used: {}", job.id, why));
  }
}

/// Drops the table of a job that trains another model.
void ReportReader::check_table(ElasticJob& job) {
  const auto table = control::SpeedTable::parse(job.description.speeds());
  const std::string model = control::SpeedTable::word_of(job.description.model()->model().name);
  if (!table || table->model == model) return;
  const std::string why = fmt::format(
      "its table is of model {}, and it trains {}: submit with a table of {} (swell plan --grid --json)",
      table->model, model, model);
  job.description.refuse_speeds(why);
  loop_.events.event("table-refused", {{"job", job.id}, {"reason", why}},
                     fmt::format("job {}: {}", job.id, why));
}

void ReportReader::read(double now) {
  for (auto& [id, job] : loop_.jobs) {
    if (!job.reports.waiting() || !take_report(job, now)) continue;
    loop_.remember(job);
    const auto& speedup = job.training.speedup();
    const bool may_say = loop_.events.may_say(id, now), falls_short = !job.trust.may_grow(now);
    if (may_say) keep_profile(job);
    job.reports.drop();
    if (may_say)
      loop_.events.event("profile",
                         {{"job", id},
                          {"samples_per_s", job.training.rate()},
                          {"predicted_speedup", speedup ? speedup->predicted : 1},
                          {"measured_speedup", speedup ? speedup->measured : 1}},
                         fmt::format("job {}: {:.4g} samples a second{}{}", id, job.training.rate(),
                                     falls_short ? "; " : "", falls_short ? job.trust.why() : ""));
  }
}

void ReportReader::keep_profile(const ElasticJob& job) {
  if (loop_.history == nullptr) return;
  const control::Profile& report = *job.reports.waiting();
  history::Profile profile;
  profile.job = job.id;
  profile.generation = report.generation;
  profile.gpus = job.training.gpus();
  profile.samples_per_s = job.training.rate();
  if (const auto& speedup = job.training.speedup()) {
    profile.predicted = speedup->predicted;
    profile.measured = speedup->measured;
  }
  profile.profile = report.profile.dump();
  if (const auto coefficients = job.training.coefficients(); coefficients && views_.machines())
    profile.coefficients = perf::to_json(*coefficients, *views_.machines()).dump();
  loop_.history->add(std::move(profile));
}

}  // namespace swell::controller
