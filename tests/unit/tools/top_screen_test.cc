// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/top_screen.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <sstream>

#include "unit/tools/site_builder.h"

using namespace swell;
using namespace swell::tools;
using swell::test::elastic_job;

namespace {

slurm::NodeRecord node(const std::string& name, int gpus, bool usable = true) {
  slurm::NodeRecord made;
  made.name = name;
  made.usable = usable;
  made.gpus = {{gpus, "h100", ""}};
  return made;
}

slurm::JobRecord on(slurm::JobRecord job, const std::string& node, int gpus) {
  job.gpus.push_back({node, {gpus, "h100", ""}});
  return job;
}

/// Two nodes of 4 GPUs: 2 are a job's own, 3 are lent to it, a job waits.
slurm::Snapshot queue() {
  slurm::Snapshot snapshot;
  snapshot.nodes = {node("n1", 4), node("n2", 4)};
  snapshot.jobs = {on(elastic_job(30, "elastic=max=8 basic=2 lent=3 state=ACTIVE"), "n1", 2),
                   on(elastic_job(31, "parent=30 grant=a"), "n2", 3), elastic_job(32, "")};
  snapshot.jobs[2].phase = slurm::JobPhase::pending;
  return snapshot;
}

std::vector<JobRow> rows() { return job_rows(queue(), {}).value(); }

const Json kNone;

std::vector<std::string> screen(const GpuUse& use, std::size_t width, std::size_t height,
                                const Json& metrics = kNone) {
  std::vector<std::string> lines;
  std::istringstream text(top_screen(use, rows(), metrics, width, height));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Test(top_screen, gpus_are_counted_by_what_they_do) {
  const GpuUse use = gpu_use(queue());
  cr_assert(use.all == 8 && use.busy == 5 && use.lent == 3 && use.idle() == 3);
  cr_assert_eq(use.waiting_jobs, 1);
}

Test(top_screen, jobs_still_running_on_a_closed_node_count) {
  slurm::Snapshot drained = queue();
  for (slurm::NodeRecord& each : drained.nodes) each.usable = false;
  const GpuUse use = gpu_use(drained);
  cr_assert(use.all == 5 && use.busy == 5 && use.lent == 3 && use.idle() == 0, "%d of %d busy",
            use.busy, use.all);
  cr_assert_eq(screen(use, 22, 2).at(1), std::string("[########++++++++++++]"));
}

Test(top_screen, shows_the_cluster_a_bar_and_each_job) {
  const auto lines = screen(gpu_use(queue()), 100, 40);
  cr_assert_eq(lines.at(0), std::string("Swell: 8 GPUs: 2 asked for (#), 3 lent (+), 3 idle (.); 1 "
                                        "elastic job, 1 job waiting"));
  cr_assert_eq(lines.at(1).size(), 100u);
  cr_assert_eq(std::count(lines[1].begin(), lines[1].end(), '#'), 24, "%s", lines[1].c_str());
  cr_assert_eq(std::count(lines[1].begin(), lines[1].end(), '+'), 37, "%s", lines[1].c_str());
  cr_assert_eq(lines.at(2), std::string("the controller does not answer"));
  cr_assert(lines.at(5).starts_with("   30  ann   llama  ACTIVE    2     3        5/8"), "%s",
            lines[5].c_str());
}

Test(top_screen, is_no_larger_than_the_terminal) {
  const auto lines = screen(gpu_use(queue()), 20, 5);
  cr_assert_eq(lines.size(), 5u);
  for (const std::string& line : lines) cr_assert_leq(line.size(), 20u, "%s", line.c_str());
  cr_assert(screen(gpu_use(queue()), 5, 2).at(1).empty(), "there is no room for a bar");
  cr_assert(screen({}, 80, 2).at(1).empty(), "there are no GPUs");
}

Test(top_screen, sums_what_the_controller_counts) {
  const Json metrics = Json::parse(R"({"families": [
    {"name": "swell_grants", "samples": [
      {"labels": {"outcome": "offered"}, "value": 5}, {"labels": {"outcome": "taken"}, "value": 3}]},
    {"name": "swell_reclaims", "samples": [
      {"labels": {"reason": "pending"}, "value": 1}, {"labels": {"reason": "shortfall"}, "value": 1}]},
    {"name": "swell_gpu_seconds", "samples": [
      {"labels": {"kind": "own"}, "value": 12600}, {"labels": {"kind": "lent"}, "value": 5400}]},
    {"name": "swell_wasted_gpu_seconds", "samples": [{"labels": {}, "value": 900}]}]})")
                           .value();
  cr_assert_eq(screen(gpu_use(queue()), 100, 3, metrics).at(2),
               std::string("grants 5 (3 taken), reclaims 2; lent 1.50 GPU-hours; goodput 95.0 %"));
}

Test(top_screen, names_the_nodes_on_which_companions_failed) {
  const Json metrics = Json::parse(R"({"families": [], "withheld": [
    {"node": "node3", "for_s": 3541}, {"node": "node7", "for_s": 61, "user": "ann"}]})")
                           .value();
  const auto lines = screen(gpu_use(queue()), 100, 40, metrics);
  cr_assert_eq(lines.at(3), std::string("not lent, as companions failed there: node3 (60 min), "
                                        "node7 (2 min, to ann)"));
  cr_assert(lines.at(6).starts_with("   30  ann"), "%s", lines[6].c_str());
}

Test(top_screen, programs_get_the_same_numbers) {
  const Json json = top_json(gpu_use(queue()), rows(), kNone);
  cr_assert_eq(json.at("gpus").dump(), std::string(R"({"all":8,"own":2,"lent":3,"idle":3})"), "%s",
               json.at("gpus").dump().c_str());
  cr_assert_eq(json.at("jobs").items().size(), 1u);
  cr_assert_not(is_object(json.at("metrics")));
}
