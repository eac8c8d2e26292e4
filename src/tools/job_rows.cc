// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/job_rows.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "control/elastic_spec.h"
#include "control/messages.h"
#include "core/count_of.h"
#include "tools/output.h"
#include "tools/text_table.h"

namespace swell::tools {

namespace {

int count(const control::Tag& tag, const char* key) {
  return static_cast<int>(tag.number(key).value_or(0));
}

/// Lowers a row's maximum to a total that `sizes` or `step` of --elastic allow.
void bound(JobRow& row, const control::ElasticSpec& spec) {
  if (!row.max_gpus && spec.sizes.empty()) return;
  const int max = row.max_gpus.value_or(control::ElasticSpec::kNoLimit);
  const std::vector<int> totals = spec.totals(row.basic_gpus, max);
  int most = row.basic_gpus;
  for (const int total : totals)
    if (total <= max) most = std::max(most, total);
  row.max_gpus = totals.empty() ? max : most;
}

JobRow row_of(const slurm::JobRecord& record, const control::Tag& tag) {
  JobRow row;
  row.id = record.id;
  row.user = record.user.empty() ? std::to_string(record.uid) : record.user;
  row.name = record.name;
  row.spec = tag.get("elastic");
  row.basic_gpus = count(tag, "basic");
  const auto spec = control::ElasticSpec::parse(row.spec);
  row.wanted_gpus = count(tag, "wanted");
  if (!spec) row.max_gpus = row.basic_gpus;
  else if (spec->has_max())
    row.max_gpus = spec->max_total(std::max(row.basic_gpus, row.wanted_gpus), true);
  // While the job waits to run again, the tag describes its former run.
  const bool runs = record.phase == slurm::JobPhase::running;
  row.state = runs ? tag.get("state") : record.state_text;
  if (row.state.empty()) row.state = control::to_text(control::JobState::allocated);
  row.grants = count(tag, "grants");
  row.reclaims = count(tag, "reclaims");
  row.refusals = count(tag, "refused");
  row.refused_for = tag.get("why");
  if (spec) bound(row, *spec);
  if (record.phase == slurm::JobPhase::pending) return row;
  row.lent_gpus = count(tag, "lent");
  row.generation = count(tag, "generation");
  row.workers = count(tag, "workers");
  row.companions = control::companions_from(tag.get("companions"));
  const auto words = [&tag](const char* key) { return control::as_sentence(tag.get(key)); };
  row.deadline = words("deadline");
  row.no_growth = words("no_growth");
  row.decided_by = words("decided");
  row.decided_why = words("decided_why");
  row.taken_back = words("taken_back");
  row.paused = !tag.get("paused").empty();
  if (const int own = count(tag, "own_max"); own > 0)
    row.max_gpus = std::min(row.max_gpus.value_or(own), own);
  if (spec) bound(row, *spec);
  row.switched = words("switched");
  return row;
}

/// Shows the companions that Slurm runs, if the job's AdminComment has another number of GPUs.
void correct_lent(std::vector<JobRow>& rows, const slurm::Snapshot& snapshot) {
  std::map<std::int64_t, std::vector<control::CompanionWord>> running;
  for (const slurm::JobRecord& record : snapshot.jobs) {
    if (record.phase != slurm::JobPhase::running && record.phase != slurm::JobPhase::suspended)
      continue;
    const auto tag = control::Tag::find(record.admin_comment);
    const auto parent = tag ? tag->number("parent") : std::nullopt;
    for (const slurm::GpuAllocation& held : record.gpus)
      if (parent)
        running[*parent].push_back({record.id, held.node, held.gpus.indices, held.gpus.count});
  }
  for (JobRow& row : rows) {
    int lent = 0;
    for (const control::CompanionWord& each : running[row.id]) lent += each.gpus;
    if (lent == row.lent_gpus) continue;
    row.said_gpus = row.lent_gpus;
    row.lent_gpus = lent;
    row.companions = std::move(running[row.id]);
  }
}

/// Returns the error for a job that was asked for but is not shown.
Error not_shown(const slurm::Snapshot& snapshot, slurm::JobId id) {
  const auto found = std::find_if(snapshot.jobs.begin(), snapshot.jobs.end(),
                                  [&](const slurm::JobRecord& job) { return job.id == id; });
  if (found == snapshot.jobs.end()) return Error(fmt::format("there is no job {}", id));
  const auto tag = control::Tag::find(found->admin_comment);
  if (tag && tag->number("parent"))
    return Error(fmt::format("job {} is a companion of job {}, not an elastic job itself", id,
                             *tag->number("parent")));
  if (!tag || tag->get("elastic").empty())
    return Error(fmt::format("job {} is not elastic: it was submitted without --elastic", id));
  if (found->phase == slurm::JobPhase::ended)
    return Error(fmt::format("job {} has ended ({})", id, found->state_text));
  return Error(fmt::format("job {} belongs to another user", id));
}

std::string refusal_text(const JobRow& row) {
  return row.refusals == 0 ? "0" : fmt::format("{} ({})", row.refusals, row.refused_for);
}

std::string companion_text(const std::vector<control::CompanionWord>& companions) {
  std::string text;
  for (const control::CompanionWord& each : companions)
    text +=
        fmt::format("{}{} {}:{}", text.empty() ? "" : ", ", each.id, each.node, each.gpu_indices);
  return text.empty() ? "-" : text;
}

bool loads_swell(const slurm::ControllerConfig& slurmctld) {
  const std::string plugins = "," + slurmctld.job_submit_plugins + ",";
  return plugins.find(",swell,") != plugins.npos ||
         plugins.find(",job_submit/swell,") != plugins.npos;
}

}  // namespace

Result<std::vector<JobRow>> job_rows(const slurm::Snapshot& snapshot, const JobFilter& filter) {
  std::vector<JobRow> rows;
  for (const slurm::JobRecord& record : snapshot.jobs) {
    if (record.phase == slurm::JobPhase::ended || (filter.uid && record.uid != *filter.uid))
      continue;
    if (!filter.ids.empty() &&
        std::find(filter.ids.begin(), filter.ids.end(), record.id) == filter.ids.end())
      continue;
    const auto tag = control::Tag::find(record.admin_comment);
    if (tag && !tag->get("elastic").empty()) rows.push_back(row_of(record, *tag));
  }
  for (const slurm::JobId id : filter.ids)
    if (std::none_of(rows.begin(), rows.end(), [&](const JobRow& row) { return row.id == id; }))
      return not_shown(snapshot, id);
  correct_lent(rows, snapshot);
  std::sort(rows.begin(), rows.end(), [](const JobRow& a, const JobRow& b) { return a.id < b.id; });
  return rows;
}

std::string total_text(const JobRow& row) {
  return fmt::format("{}/{}", row.basic_gpus + row.lent_gpus,
                     row.max_gpus ? std::to_string(*row.max_gpus) : "-");
}

std::string no_jobs_text(const Result<slurm::ControllerConfig>& slurmctld) {
  if (!slurmctld || loads_swell(*slurmctld)) return "No elastic jobs.\n";
  return "No elastic jobs: slurmctld does not load Swell (swell is not in JobSubmitPlugins); an "
         "admin finds out more with: swell doctor\n";
}

std::string jobs_table(const std::vector<JobRow>& rows) {
  using Align = TextTable::Align;
  TextTable table({{"JOBID", Align::right},
                   {"USER"},
                   {"NAME"},
                   {"STATE"},
                   {"OWN", Align::right},
                   {"LENT", Align::right},
                   {"TOTAL/MAX", Align::right},
                   {"GENERATION", Align::right},
                   {"WORKERS", Align::right},
                   {"GRANTS", Align::right},
                   {"REFUSED", Align::right},
                   {"RECLAIMS", Align::right},
                   {"COMPANIONS (JOBID NODE:GPUS)"}});
  for (const JobRow& row : rows)
    table.add({std::to_string(row.id), row.user, row.name, row.state,
               std::to_string(row.basic_gpus), std::to_string(row.lent_gpus), total_text(row),
               std::to_string(row.generation), std::to_string(row.workers),
               std::to_string(row.grants), refusal_text(row), std::to_string(row.reclaims),
               companion_text(row.companions)});
  std::string text = table.text();
  for (const JobRow& row : rows)
    if (!row.decided_by.empty())
      text += line_of("Job {} (decision: {}): {}\n", row.id, row.decided_by, row.decided_why);
  for (const JobRow& row : rows)
    if (row.said_gpus)
      text += line_of(
          "Job {} is lent {} than the {} of its AdminComment; where that stays so, Slurm "
          "refuses to change it: swell doctor\n",
          row.id, row.lent_gpus > *row.said_gpus ? "more" : "less", *row.said_gpus);
  for (const JobRow& row : rows)
    if (row.wanted_gpus > 0)
      text += line_of("Job {} asked for {} and consented to run with {}\n", row.id,
                      count_of(row.wanted_gpus, "GPU"), row.basic_gpus);
  for (const JobRow& row : rows)
    if (!row.deadline.empty()) text += line_of("Job {}, deadline: {}\n", row.id, row.deadline);
  for (const JobRow& row : rows)
    if (row.paused) text += line_of("Job {} is paused by its owner\n", row.id);
  for (const JobRow& row : rows)
    if (!row.taken_back.empty())
      text += line_of("Job {}, lent GPUs were taken back last: {}\n", row.id, row.taken_back);
  for (const JobRow& row : rows)
    if (!row.switched.empty())
      text += line_of("Job {}, last live switch: {}\n", row.id, row.switched);
  for (const JobRow& row : rows)
    if (!row.no_growth.empty())
      text += line_of("Job {} takes no more GPUs: {}\n", row.id, row.no_growth);
  return text;
}

Json jobs_json(const std::vector<JobRow>& rows) {
  Json jobs = Json::array();
  for (const JobRow& row : rows) {
    Json companions = Json::array();
    for (const control::CompanionWord& each : row.companions)
      companions.append(Json::object({{"id", each.id},
                                      {"node", each.node},
                                      {"gpus", each.gpus},
                                      {"gpu_indices", each.gpu_indices}}));
    jobs.append(Json::object({{"id", row.id},
                              {"user", row.user},
                              {"name", row.name},
                              {"state", row.state},
                              {"elastic", row.spec},
                              {"basic_gpus", row.basic_gpus},
                              {"wanted_gpus", row.wanted_gpus},
                              {"lent_gpus", row.lent_gpus},
                              {"total_gpus", row.basic_gpus + row.lent_gpus},
                              {"max_gpus", row.max_gpus ? Json(*row.max_gpus) : Json()},
                              {"generation", row.generation},
                              {"workers", row.workers},
                              {"grants", row.grants},
                              {"refused", row.refusals},
                              {"refused_for", row.refused_for},
                              {"reclaims", row.reclaims},
                              {"companions", companions},
                              {"decided_by", row.decided_by},
                              {"decided_why", row.decided_why},
                              {"taken_back", row.taken_back},
                              {"deadline", row.deadline},
                              {"paused", row.paused},
                              {"switched", row.switched},
                              {"no_growth", row.no_growth}}));
  }
  return Json::object({{"jobs", jobs}});
}

}  // namespace swell::tools
