// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/sim_site.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "control/swell_conf.h"
#include "core/cluster/gpu_type.h"
#include "core/count_of.h"
#include "sim/accounts.h"
#include "slurm/live_slurm.h"
#include "tools/doctor/child_process.h"
#include "tools/files.h"
#include "tools/output.h"
#include "tools/text_table.h"
#include "tools/topo_cluster.h"

namespace swell::tools {

namespace {

/// Some databases take minutes for a month of jobs.
constexpr auto kPatience = std::chrono::seconds(600);
/// Maximum number of accounts with a row of their own.
constexpr std::size_t kAccounts = 20;
/// Share of GPUs in use above which few GPUs are idle for long.
constexpr double kFull = 0.9;

/// Returns the site's types that the catalogue lacks, each with the figures of `assumed`.
Result<std::vector<cluster::GpuType>> assumed_types(const cluster::Fabric& fabric,
                                                    const std::string& assumed) {
  std::vector<cluster::GpuType> types;
  if (assumed.empty()) return types;
  const auto known = cluster::find_gpu_type(assumed);
  if (!known)
    return Error(
        fmt::format("--gpu-type \"{}\" is not a type that swell sim knows, such as h100", assumed));
  std::map<std::string, bool> seen;
  for (int i = 0; i < fabric.size(); ++i) {
    const std::string& name = fabric.node(i).gpu_type;
    if (fabric.node(i).gpus == 0 || seen[name] || cluster::find_gpu_type(name)) continue;
    seen[name] = true;
    types.push_back(*known);
    types.back().name = name;
  }
  return types;
}

/// Returns where companions run by the site's swell.conf; empty if there is none yet. Adds a note
/// if the file exists and cannot be read.
sim::JobFilter companions_of_site(std::vector<std::string>& notes) {
  const auto slurmctld = slurm::load_controller_config();
  if (!slurmctld) return {};
  const std::string path = control::swell_conf_path(slurmctld->slurm_conf);
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  const auto conf = control::SwellConf::load(path);
  if (!conf) {
    notes.push_back(fmt::format("{}; jobs that Swell itself lent count as jobs of users",
                                conf.error().message()));
    return {};
  }
  return {conf->expansion_qos, conf->expansion_partition};
}

Result<sim::TraceFile> jobs_of_site(int days, std::vector<std::string>& notes) {
  // Times as seconds since 1970, whatever the time zone. -S also selects jobs that were submitted
  // before, and ran or waited at that time.
  const auto printed = doctor::output_of(
      {"env", "SLURM_TIME_FORMAT=%s", "sacct", "-aXP", "-S", fmt::format("now-{}days", days), "-E",
       "now", "-o", "JobIDRaw,Account,QOS,Partition,Submit,ElapsedRaw,AllocTRES,State"},
      kPatience);
  if (!printed)
    return Error(fmt::format("{}; swell sim --site reads jobs from Slurm's accounting; without it "
                             "add --trace FILE, with jobs that were printed elsewhere",
                             printed.error().message()))
        .while_doing("sacct");
  if (printed->find('\n') == printed->rfind('\n'))  // only the header line
    return Error(fmt::format("Slurm's accounting has no job of the last {}; take more with --days, "
                             "or jobs that were printed elsewhere with --trace FILE",
                             days == 1 ? std::string("day") : count_of(days, "day")))
        .while_doing("sacct");
  sim::JobFilter filter = companions_of_site(notes);
  filter.since_s = static_cast<double>(std::time(nullptr)) - days * 86400.0;
  auto trace = sim::trace_from_csv(*printed, filter);
  if (!trace) return trace.error().while_doing("sacct");
  return trace;
}

Result<sim::TraceFile> jobs_of_file(const std::string& path, const sim::JobFilter& filter) {
  const auto text = read_file(path);
  if (!text) return text.error();
  auto trace = sim::trace_from_text(*text, filter);
  if (!trace) return trace.error().while_doing(path);
  return trace;
}

/// Leaves out jobs larger than `cluster`. `source`: the origin of the jobs, for the error.
Result<Site> joined(cluster::Cluster cluster, sim::TraceFile trace, std::string which,
                    const std::string& source) {
  trace.leave_out_larger(cluster.gpu_count(), "the cluster");
  if (trace.jobs.empty())
    return Error("no job of it can be simulated: " + trace.left_out_text()).while_doing(source);
  return Site{std::make_shared<cluster::Cluster>(std::move(cluster)),
              std::move(trace),
              std::move(which),
              {}};
}

std::string minutes(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string hours(double gpu_s) { return fmt::format("{:.0f}", gpu_s / 3600); }

std::vector<std::string> cells(const sim::AccountRow& row, const std::string& name) {
  const bool elastic = row.elastic > 0, rigid = row.jobs > row.elastic;
  return {
      name,
      fmt::format("{}", row.jobs),
      hours(row.basic_gpu_s),
      hours(row.lent_gpu_s),
      elastic ? minutes(row.elastic_jct_without_s) : "-",
      elastic ? minutes(row.elastic_jct_with_s) : "-",
      elastic ? fmt::format("{:.2f}x", row.elastic_jct_without_s / row.elastic_jct_with_s) : "-",
      rigid ? minutes(row.rigid_wait_without_s) : "-",
      rigid ? minutes(row.rigid_wait_with_s) : "-",
      rigid ? minutes(row.most_rigid_delay_s) : "-"};
}

/// Returns rows for the largest accounts, one for the number of others, and one for all jobs.
std::string account_table(const std::vector<sim::AccountRow>& rows) {
  using Align = TextTable::Align;
  TextTable table({{"account"},
                   {"jobs", Align::right},
                   {"GPU-hours", Align::right},
                   {"lent", Align::right},
                   {"elastic: without", Align::right},
                   {"with Swell", Align::right},
                   {"faster", Align::right},
                   {"rigid wait: without", Align::right},
                   {"with Swell", Align::right},
                   {"most delay", Align::right}});
  const std::size_t accounts = rows.size() - 1;
  for (std::size_t i = 0; i < std::min(accounts, kAccounts); ++i)
    table.add(cells(rows[i], rows[i].account.empty() ? "(no account)" : rows[i].account));
  if (accounts > kAccounts) table.add({fmt::format("and {} more", accounts - kAccounts)});
  table.add(cells(rows.back(), "all"));
  return table.text();
}

}  // namespace

Result<Site> load_site(int days, const std::string& gpu_type, const std::string& trace_file) {
  auto fabric = load_fabric({});
  if (!fabric) return fabric.error();
  const auto types = assumed_types(fabric->fabric, gpu_type);
  if (!types) return types.error();
  auto cluster = fabric->fabric.to_cluster("site", *types);
  if (!cluster)
    return Error(cluster.error().message() +
                 "; name a type that is like it by --gpu-type, such as --gpu-type h100");
  if (cluster->gpu_count() == 0)
    return Error("no node of this cluster has GPUs in its Gres; give --cluster and --trace");
  auto trace = trace_file.empty() ? jobs_of_site(days, fabric->notes)
                                  : jobs_of_file(trace_file, companions_of_site(fabric->notes));
  if (!trace) return trace.error();
  const std::string which =
      !trace_file.empty()
          ? "of " + trace_file
          : "submitted in the last " + (days == 1 ? std::string("day") : count_of(days, "day"));
  auto site = joined(*std::move(cluster), *std::move(trace), which,
                     trace_file.empty() ? "sacct" : trace_file);
  if (site) site->notes = std::move(fabric->notes);
  return site;
}

Result<Site> site_of_file(cluster::Cluster cluster, const std::string& trace_file) {
  auto trace = jobs_of_file(trace_file, {});
  if (!trace) return trace.error();
  return joined(std::move(cluster), *std::move(trace), "of " + trace_file, trace_file);
}

std::string site_page(const Site& site, const sim::Experiment& experiment,
                      const sim::Results& results) {
  const cluster::Cluster& cluster = *site.cluster;
  std::vector<std::string> types;
  for (const cluster::GpuType& type : cluster.types()) types.push_back(type.name);
  std::string page =
      line_of("{} {}, on {} of {} ({}).\n", count_of(results.jobs, "GPU job"), site.which,
              count_of(cluster.gpu_count(), "GPU"), count_of(cluster.nodes().size(), "node"),
              fmt::format("{}", fmt::join(types, ", ")));
  if (!site.trace.left_out.empty())
    page += line_of("Left out{}: {}.\n",
                    experiment.workload.hours > 0 ? " of the whole trace, not only of --hours" : "",
                    site.trace.left_out_text());
  if (results.without_plan > 0)
    page += line_of("Left out: {} on whose number of GPUs no model of the mix has a plan.\n",
                    results.without_plan);
  page += line_of(
      "Assumed: {:.0f} % of the jobs are elastic (--rigid-share), each trains a "
      "published model (swell-sim(1), --mix) on its own GPUs, as long as it took.\n",
      100 * (1 - experiment.workload.rigid_share));
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    if (results.policies[i] == "fifo") continue;
    const sim::Outcome& with = results.outcomes[i].front();
    const sim::Metrics& metrics = results.metrics[i];
    const double used_without = results.fifo.front().used_gpu_s /
                                (results.fifo.front().makespan_s * results.fifo.front().gpus);
    page += line_of(
        "\nPolicy {}{}: GPUs in use {:.0f} % instead of {:.0f} %; {:.0f} GPU-hours lent; {} "
        "resizes.\n",
        results.policies[i],
        results.policies[i] == "fewest-first" ? ", which lends first to jobs with the fewest GPUs"
                                              : "",
        100 * metrics.gpu_utilization.mean, 100 * used_without, with.lent_gpu_s / 3600,
        with.reconfigurations);
    if (used_without >= kFull)
      page += line_of(
          "Without Swell jobs have {:.0f} % of the GPUs already, so there is little to lend. Where "
          "jobs end a little sooner or later, others start in another order: single jobs "
          "end much later or sooner by that alone.\n",
          100 * used_without);
    page +=
        "elastic: mean time from submission to end; rigid wait: mean wait of jobs that are not "
        "elastic; most delay: the longest by which one of these ended later than without Swell\n";
    page += account_table(sim::account_rows(results.workload, with, results.fifo.front()));
  }
  return page;
}

}  // namespace swell::tools
