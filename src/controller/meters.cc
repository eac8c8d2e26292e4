// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/meters.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace swell::controller {

namespace {

const std::vector<double> kPauseBounds = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
const std::vector<double> kDecisionBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
const std::vector<double> kErrorBounds = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1};

/// Every value of a label is there from the start, so that rates know where they begin.
std::map<std::string, double> none_of(const std::vector<const char*>& labels) {
  std::map<std::string, double> counter;
  for (const char* label : labels) counter[label] = 0;
  return counter;
}

std::string text_in(const Json& line, const char* key) {
  const auto text = line.string_at(key);
  return text ? *text : std::string();
}

bool is_said(const Json& line, const char* key) {
  const auto said = line.bool_at(key);
  return said && *said;
}

double number_in(const Json& line, const char* key) {
  const auto number = line.number_at(key, 0, 1e9);
  return number ? *number : 0;
}

Json family(const char* name, const char* type, const char* help, Json samples) {
  return Json::object({{"name", name}, {"type", type}, {"help", help}, {"samples", samples}});
}

Json sample(Json value) {
  return Json::object({{"labels", Json::object()}, {"value", std::move(value)}});
}

Json samples_of(const std::map<std::string, double>& counter, const char* label) {
  Json samples = Json::array();
  for (const auto& [name, value] : counter)
    samples.append(Json::object({{"labels", Json::object({{label, name}})}, {"value", value}}));
  return samples;
}

Json sample_of(const Histogram& histogram, Json labels = Json::object()) {
  return Json::object({{"labels", std::move(labels)}, {"histogram", histogram.to_json()}});
}

}  // namespace

void Histogram::add(double value) {
  if (!std::isfinite(value)) return;
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
}

Json Histogram::to_json() const {
  Json counts = Json::array();
  long all = 0;
  for (const long count : counts_) counts.append(all += count);
  return Json::object(
      {{"bounds", array_of(bounds_)}, {"counts", counts}, {"sum", sum_}, {"count", all}});
}

Meters::Meters()
    : grants_(none_of({"offered", "taken", "refused", "expired"})),
      reclaims_(none_of({"basic-demand", "type", "rebalanced", "shortfall", "owner", "limit",
                         "drain", "agent", "excess", "preempted", "released", "lost"})),
      gpu_seconds_(none_of({"basic", "lent"})),
      wasted_(none_of({"pause", "waiting", "leaving"})),
      pauses_({{"live", Histogram(kPauseBounds)}, {"restart", Histogram(kPauseBounds)}}),
      decisions_(kDecisionBounds),
      errors_(kErrorBounds) {}

void Meters::heard(const std::string& kind, const Json& line) {
  static const std::map<std::string, const char*> kGrants = {{"grant", "offered"},
                                                             {"companion-started", "taken"},
                                                             {"grant-refused", "refused"},
                                                             {"grant-expired", "expired"}};
  // Besides "reclaim", which says its cause. Companions that leave already are not counted.
  static const std::map<std::string, const char*> kReclaims = {{"companion-preempted", "preempted"},
                                                               {"companion-excessive", "excess"},
                                                               {"companion-released", "released"},
                                                               {"companion-lost", "lost"}};
  if (const auto grant = kGrants.find(kind); grant != kGrants.end()) grants_[grant->second] += 1;
  if (kind == "reclaim") {
    const auto cause = reclaims_.find(text_in(line, "cause"));
    if (cause != reclaims_.end()) cause->second += 1;
  }
  if (const auto reclaim = kReclaims.find(kind);
      reclaim != kReclaims.end() && !is_said(line, "was_leaving"))
    reclaims_[reclaim->second] += 1;
  if (kind == "pause") paused(line);
  if (kind == "profile")
    if (const double predicted = number_in(line, "predicted_speedup"); predicted > 1)
      errors_.add(std::fabs(number_in(line, "measured_speedup") / predicted - 1));
}

/// How long it was is the job's word: it is not believed beyond the time and the GPU-seconds that
/// the job was seen to have and has not said to be wasted.
void Meters::paused(const Json& line) {
  const auto found = held_.find(static_cast<JobId>(number_in(line, "job")));
  if (found == held_.end()) return;
  Held& held = found->second;
  const double stopped_s = std::min(number_in(line, "stopped_s"), held.unwasted_s);
  const double gpu_s = std::min(stopped_s * held.gpus, held.unwasted_gpu_s);
  held.unwasted_s -= stopped_s;
  held.unwasted_gpu_s -= gpu_s;
  wasted_["pause"] += gpu_s;
  if (const auto mode = pauses_.find(text_in(line, "mode")); mode != pauses_.end())
    mode->second.add(stopped_s);
}

void Meters::pass(double now, const JobTable& jobs) {
  const double passed_s = last_ < 0 ? 0 : std::max(now - last_, 0.0);
  last_ = now;
  std::erase_if(held_, [&](const auto& each) { return !jobs.contains(each.first); });
  for (const auto& [id, job] : jobs) {
    int lent = 0, leaving = 0;
    for (const Companion& companion : job.companions)
      (companion.is_leaving() ? leaving : lent) += companion.gpus.count;
    gpu_seconds_["basic"] += passed_s * job.basic_gpus;
    gpu_seconds_["lent"] += passed_s * (lent + leaving);
    // No worker trains there any more, or yet.
    const int used = std::max(
        job.agent_words.last().workers * job.agent_words.gpus_per_worker() - job.basic_gpus, 0);
    const int waiting = std::max(lent - used, 0);
    const int left = std::min(leaving, std::max(lent + leaving - used, 0));
    wasted_["waiting"] += passed_s * waiting;
    wasted_["leaving"] += passed_s * left;
    const auto [found, is_new] = held_.try_emplace(id);
    Held& held = found->second;
    held.gpus = job.basic_gpus + lent + leaving;
    if (is_new) continue;
    held.unwasted_s += passed_s;
    held.unwasted_gpu_s += passed_s * (held.gpus - waiting - left);
  }
}

Json Meters::to_json(const JobTable& jobs) const {
  std::map<std::string, double> states;
  for (const control::JobState state :
       {control::JobState::allocated, control::JobState::warming, control::JobState::ready,
        control::JobState::switching, control::JobState::active, control::JobState::draining})
    states[to_text(state)] = 0;
  std::map<std::string, double> decided =
      none_of({"planned", "by data sheet", "worker by worker", "not at all", "not yet"});
  int companions = 0, lent = 0, basic = 0;
  for (const auto& [id, job] : jobs) {
    states[to_text(job.agent_words.last().state)] += 1;
    decided[job.decision.by().empty() ? "not yet" : job.decision.by()] += 1;
    basic += job.basic_gpus;
    lent += job.companions.lent_gpus();
    for ([[maybe_unused]] const Companion& companion : job.companions) ++companions;
  }
  Json pauses = Json::array();
  for (const auto& [mode, histogram] : pauses_)
    pauses.append(sample_of(histogram, Json::object({{"mode", mode}})));
  Json families = Json::array();
  families.append(family("swell_elastic_jobs", "gauge", "Elastic jobs that run, by Swell's state.",
                         samples_of(states, "state")));
  families.append(family("swell_decided_jobs", "gauge",
                         "Elastic jobs that run, by the kind of decision that they get.",
                         samples_of(decided, "by")));
  families.append(family("swell_companions", "gauge", "Companion jobs that run.",
                         Json::array({sample(companions)})));
  families.append(family("swell_lent_gpus", "gauge", "GPUs that elastic jobs are lent.",
                         Json::array({sample(lent)})));
  families.append(family("swell_basic_gpus", "gauge", "GPUs of elastic jobs that are their own.",
                         Json::array({sample(basic)})));
  families.append(family("swell_gpu_seconds", "counter",
                         "GPU-seconds that elastic jobs held, their own and lent ones.",
                         samples_of(gpu_seconds_, "kind")));
  families.append(family(
      "swell_wasted_gpu_seconds", "counter",
      "GPU-seconds of them in which nothing was trained: pauses of whole jobs, lent GPUs that wait "
      "for their workers or to be given back.",
      samples_of(wasted_, "cause")));
  families.append(family("swell_grants", "counter", "Grants, by what became of them.",
                         samples_of(grants_, "outcome")));
  families.append(
      family("swell_reclaims", "counter",
             "Companions that went back before their job's program ended, each once, by "
             "cause.",
             samples_of(reclaims_, "cause")));
  families.append(family("swell_pause_seconds", "histogram",
                         "Time for which training stood still to change its GPUs or its plan.",
                         pauses));
  families.append(family("swell_decision_seconds", "histogram",
                         "Time that the policy took for a decision.",
                         Json::array({sample_of(decisions_)})));
  families.append(family(
      "swell_prediction_error_ratio", "histogram",
      "Measured over predicted speed-up of a job by what it is lent, minus 1, without its sign.",
      Json::array({sample_of(errors_)})));
  return Json::object({{"families", families}});
}

}  // namespace swell::controller
