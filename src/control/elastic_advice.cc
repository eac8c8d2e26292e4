// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/elastic_advice.h"

#include "core/count_of.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

namespace swell::control {

namespace {

/// Returns the maximum as the user wrote it. REQUIRES: spec.has_max().
std::string max_words(const ElasticSpec& spec) {
  return spec.max_gpus ? fmt::format("max={}", *spec.max_gpus)
                       : fmt::format("max={}x", *spec.max_factor);
}

void about_types(const ElasticSpec& spec, const SiteFacts& site, std::vector<std::string>& said) {
  if (site.gpus_by_type.empty()) return;
  std::vector<std::string> known;
  for (const auto& [type, count] : site.gpus_by_type)
    if (!type.empty()) known.push_back(type);
  for (const std::string& type : spec.types) {
    if (site.gpus_by_type.contains(type)) continue;
    const auto meant = std::find_if(known.begin(), known.end(), [&](const std::string& each) {
      return strcasecmp(each.c_str(), type.c_str()) == 0;
    });
    said.push_back(
        meant != known.end()
            ? fmt::format("types={}: no node has GPUs of that name; write types={}", type, *meant)
            : fmt::format(
                  "types={}: no node has GPUs of that type; there are {}", type,
                  known.empty() ? "none with a type" : fmt::format("{}", fmt::join(known, "/"))));
  }
}

void about_sizes(const ElasticSpec& spec, int max, std::vector<std::string>& said) {
  if (!spec.has_max()) return;
  std::vector<int> above;
  std::copy_if(spec.sizes.begin(), spec.sizes.end(), std::back_inserter(above),
               [&](int size) { return size > max; });
  if (above.empty()) return;
  said.push_back(fmt::format("sizes={}: {} is never reached, since {} allows {}; write max={}",
                             fmt::join(spec.sizes, "/"), fmt::join(above, "/"), max_words(spec),
                             count_of(max, "GPU"), above.back()));
}

void about_step(const ElasticSpec& spec, int basic_gpus, std::vector<std::string>& said) {
  const int max = spec.max_total(basic_gpus, true);
  const std::int64_t next = std::int64_t{basic_gpus} + spec.step;
  if (!spec.has_max() || spec.step == 0 || max <= basic_gpus || next <= max) return;
  said.push_back(fmt::format("step={}: nothing is ever lent, since {} allows {}; write max={}",
                             spec.step, max_words(spec), count_of(max, "GPU"), next));
}

void about_deadline(const ElasticSpec& spec, const SiteFacts& site,
                    std::vector<std::string>& said) {
  if (!spec.deadline) return;
  if (!site.keeps_deadlines) {
    said.push_back(
        fmt::format("deadline={}: this site lends without a look at deadlines (Policy and "
                    "Objective of swell.conf), so that nothing is promised",
                    spec.deadline->text()));
    return;
  }
  said.push_back(
      fmt::format("deadline={}: GPUs that keep it are lent to the job before others, once its "
                  "program says how many steps it has (swellrun --steps) and its speed is known; "
                  "nothing is promised before",
                  spec.deadline->text()));
}

void about_max(const ElasticSpec& spec, int basic_gpus, const SiteFacts& site,
               std::vector<std::string>& said) {
  const int max = spec.max_total(basic_gpus, true);
  if (!spec.has_max() || max <= basic_gpus) return;
  int all = 0;
  for (const auto& [type, count] : site.gpus_by_type) all += count;
  if (site.max_gpus_per_job > 0 && max > site.max_gpus_per_job)
    said.push_back(fmt::format("{}: this site lends a job at most {} in all (MaxGPUsPerJob)",
                               max_words(spec), count_of(site.max_gpus_per_job, "GPU")));
  else if (all > 0 && max > all)
    said.push_back(fmt::format("{} is {}, and this cluster has {}", max_words(spec),
                               count_of(max, "GPU"), all));
}

}  // namespace

std::vector<std::string> advice(const ElasticSpec& spec, int basic_gpus, const SiteFacts& site) {
  std::vector<std::string> said;
  about_types(spec, site, said);
  about_sizes(spec, spec.max_total(basic_gpus, true), said);
  about_step(spec, basic_gpus, said);
  about_max(spec, basic_gpus, site, said);
  about_deadline(spec, site, said);
  if (spec.switches_type && !site.changes_gpu_types)
    said.emplace_back(
        "switch=requeue is not used: this version of Slurm does not let a waiting job change its GPU "
        "type (24.11 does)");
  if (site.max_grace_s > 0 && spec.grace_s > site.max_grace_s)
    said.push_back(fmt::format("grace={} is cut to {} s: this site gives no job more (MaxGrace)",
                               spec.grace_s, site.max_grace_s));
  else if (site.grace_s && spec.grace_s > *site.grace_s)
    said.push_back(fmt::format(
        "grace={}: where Slurm itself takes lent GPUs back, this site gives {} s (GraceTime); a checkpoint that "
        "takes longer is lost",
        spec.grace_s, *site.grace_s));
  if (site.draining)
    said.push_back("nothing is lent for now (Elasticity=drain); the job runs on what it asks for");
  return said;
}

}  // namespace swell::control
