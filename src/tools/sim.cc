// SPDX-License-Identifier: GPL-2.0-or-later
// swell sim: compares policies on a simulated cluster.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <thread>

#include "control/swell_conf.h"
#include "core/cluster/presets.h"
#include "core/count_of.h"
#include "core/policy/registry.h"
#include "sim/experiment.h"
#include "sim/report.h"
#include "sim/speeds.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/output.h"
#include "tools/sim_site.h"
#include "tools/text_table.h"

namespace swell::tools {

namespace {

struct Options {
  std::string cluster = "8x8:h100", trace, arrivals = "poisson", bandwidth = "full-ib",
              base = "fifo", mix = "3:1:1";
  std::string decision_time, remaining = "unknown", profiles = "before", profile_detail = "full",
                             backfill = "on", clocks = "on", redeployment = "live",
                             rivals_redeployment = "suika", json, csv, speeds, report, gpu_type;
  std::vector<std::string> policies, settings;
  double hours = 0, intensity = 1, rigid_share = 0, failures = 0, prediction_error = 0,
         max_shortfall = policy::Trust::kMaxShortfall, max_factor = 0, aggressiveness = -1,
         fairness = 0, launch_floor = 0, load = 0.8, cap_hours = 0, trace_gpus = 2490,
         consent_share = 0, deadline_share = 1, least_share = 0.5, lying_share = 0,
         growth_interval = control::SwellConf{}.growth_interval_s,
         grant_expiry = control::SwellConf{}.grant_expiry_s,
         profile_wait = control::SwellConf{}.profile_wait_s;
  int seeds = 1, first_seed = 1, jobs = 0, threads = 0, profile_steps = sim::Reporting{}.steps,
      days = 31;
  std::vector<double> deadlines;  ///< empty, or two numbers
  bool sample = false, leave_out_large = false, site = false, explain = false;
  bool page = false;  ///< a page by account instead of a table of policies
};

/// Share of a page's jobs that are not elastic. It is an assumption without a survey of users.
constexpr double kSiteRigidShare = 0.5;
/// This policy decides for jobs without a profile, as Swell does for unknown programs, and is quick
/// enough for a month of jobs.
constexpr const char* kSitePolicy = "fewest-first";

constexpr double kGeneratedHours = 8;
/// Users are warned of ratios that come from fewer jobs.
constexpr int kFewJobs = 30;
// Jobs an hour for each GPU: 60 jobs in 8 hours on 64 GPUs, as on Suika's testbed.
constexpr double kGeneratedJobs_h = 0.12;
constexpr double kCardBytes = 50e9;    // 400 Gbit/s
constexpr double kNoIbBytes = 1.25e9;  // 10 Gbit/s

double network_of(const std::string& name) {
  return name == "no-ib" ? kNoIbBytes : (name == "half-ib" ? 4 : 8) * kCardBytes;
}

Result<cluster::Cluster> read_cluster(const Options& options) {
  if (is_file(options.cluster)) {
    auto json = read_json(options.cluster);
    if (!json) return json.error();
    auto read = cluster::Cluster::from_json(*json);
    if (!read) return read.error().while_doing(options.cluster);
    return read;
  }
  auto made = cluster::preset(options.cluster);
  if (!made) return made;
  std::vector<cluster::Node> nodes = made->nodes();
  for (cluster::Node& node : nodes) node.network_bytes_per_s = network_of(options.bandwidth);
  return cluster::Cluster::make(made->name(), made->types(), std::move(nodes),
                                made->interconnect());
}

Result<sim::Mix> read_mix(const std::string& text) {
  sim::Mix mix{0, 0, 0, 0};
  int read = 0;
  const int found = std::sscanf(text.c_str(), "%lf:%lf:%lf%n:%lf%n", &mix.s, &mix.m, &mix.l, &read,
                                &mix.xl, &read);
  if (found < 3 || read != static_cast<int>(text.size()) || mix.s < 0 || mix.m < 0 || mix.l < 0 ||
      mix.xl < 0 || mix.s + mix.m + mix.l + mix.xl <= 0)
    return Error(fmt::format("--mix \"{}\" is not S:M:L or S:M:L:XL, such as 3:1:1", text));
  return mix;
}

/// Reads the cluster and the jobs of a page.
Result<Site> read_site(const Options& options) {
  if (options.site) return load_site(options.days, options.gpu_type, options.trace);
  auto cluster = read_cluster(options);
  if (!cluster) return cluster.error();
  return site_of_file(*std::move(cluster), options.trace);
}

/// `site`: null unless a page is made.
Result<sim::Experiment> read_experiment(const Options& options, const Site* site) {
  sim::Experiment made;
  if (site != nullptr) {
    made.cluster = site->cluster;
    made.trace = site->trace.jobs;
    made.workload.own_gpus = true;
  } else {
    auto cluster = read_cluster(options);
    if (!cluster) return cluster.error();
    made.cluster = std::make_shared<cluster::Cluster>(std::move(*cluster));
  }
  if (site == nullptr && !options.trace.empty()) {
    auto text = read_file(options.trace);
    if (!text) return text.error();
    auto trace = sim::trace_from_text(*text);
    if (!trace) return trace.error().while_doing(options.trace);
    if (options.sample)
      trace->leave_out_larger(options.trace_gpus, "the trace's cluster (--trace-gpus)");
    else trace->leave_out_larger(made.cluster->gpu_count(), "the cluster");
    if (trace->jobs.empty())
      return Error("no job of it can be simulated: " + trace->left_out_text())
          .while_doing(options.trace);
    if (!trace->left_out.empty())
      complain(fmt::format("{}: left out of the trace: {}", options.trace, trace->left_out_text()));
    made.trace = std::move(trace->jobs);
  }
  made.generator.diurnal = options.arrivals == "diurnal";
  made.generator.hours = options.hours > 0 ? options.hours : kGeneratedHours;
  made.generator.jobs_per_hour = kGeneratedJobs_h * made.cluster->gpu_count() * options.intensity;
  made.load = options.load * options.intensity;
  auto mix = read_mix(options.mix);
  if (!mix) return mix.error();
  made.workload.mix = *mix;
  made.workload.intensity = made.trace ? options.intensity : 1;
  made.workload.hours = options.hours;
  made.workload.cap_hours = options.cap_hours;
  made.workload.rigid_share = options.rigid_share;
  made.workload.consent_share = options.consent_share;
  made.least_share = options.least_share;
  if (options.deadlines.size() == 2) {
    made.workload.soonest = std::min(options.deadlines[0], options.deadlines[1]);
    made.workload.deadline_share = options.deadline_share;
    made.workload.latest = std::max(options.deadlines[0], options.deadlines[1]);
  }
  made.workload.max_jobs = options.jobs;
  made.workload.trace_gpus = options.trace_gpus;
  made.workload.sample = options.sample;
  made.policies = options.policies;
  made.base = options.base;
  made.backfill = options.backfill == "on";
  // A page is repeatable; in comparisons, the time of a policy's searches counts.
  made.fixed_decision_time =
      options.decision_time == "fixed" || (options.decision_time.empty() && site != nullptr);
  made.remaining_known = options.remaining == "known" ? 1 : options.remaining == "half" ? 0.5 : 0;
  made.profiles = options.profiles == "before"  ? sim::Profiles::before
                  : options.profiles == "alone" ? sim::Profiles::alone
                  : options.profiles == "full"  ? sim::Profiles::full
                                                : sim::Profiles::running;
  made.prediction_error = options.prediction_error;
  made.reporting = {options.profile_steps, options.profile_detail == "a2", options.lying_share};
  made.max_shortfall = options.max_shortfall;
  made.failures_per_day = options.failures;
  made.max_factor = options.max_factor;
  if (options.redeployment != "suika")
    made.redeployment =
        options.redeployment == "live" ? redeploy::Measured::live : redeploy::Measured::restart;
  made.rivals_as_measured = options.rivals_redeployment == "same";
  made.clocks.reset();
  if (options.clocks == "on")
    made.clocks = sim::Clocks{.growth_interval_s = options.growth_interval,
                              .grant_expiry_s = options.grant_expiry,
                              .profile_wait_s = options.profile_wait};
  made.aggressiveness = options.aggressiveness;
  made.fairness = options.fairness;
  auto settings = sim::read_settings(options.settings);
  if (!settings) return settings.error().while_doing("--set");
  made.settings = std::move(*settings);
  made.launch_floor_s = options.launch_floor;
  made.leave_out_large = options.leave_out_large;
  made.explain = options.explain;
  made.seeds = options.seeds;
  made.first_seed = options.first_seed;
  made.threads = options.threads > 0
                     ? options.threads
                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return made;
}

/// Checks that a word is a share: a number up to 1, and above 0 or, with `or_none`, at least 0.
auto share_check(bool or_none) {
  return [or_none](const std::string& word) -> std::string {
    double share = 0;
    const char* end = word.data() + word.size();
    const auto read = std::from_chars(word.data(), end, share);
    const bool good = read.ec == std::errc() && read.ptr == end && share <= 1 &&
                      (or_none ? share >= 0 : share > 0);
    if (good) return {};
    return fmt::format("\"{}\" is not a share; give a number {} to 1, such as 0.5", word,
                       or_none ? "from 0" : "above 0 and up");
  };
}

void show_progress(int done, int all) {
  constexpr int kWidth = 40;
  const int filled = kWidth * done / all;
  fmt::print(stderr, "\r[{}{}] {}/{}{}", std::string(static_cast<std::size_t>(filled), '#'),
             std::string(static_cast<std::size_t>(kWidth - filled), '.'), done, all,
             done == all ? "\r\033[K" : "");
}

std::string with_ci(const sim::Estimate& value, int digits) {
  return value.ci95 > 0 ? fmt::format("{:.{}f} ±{:.{}f}", value.mean, digits, value.ci95, digits)
                        : fmt::format("{:.{}f}", value.mean, digits);
}

void print_table(const sim::Results& results) {
  const sim::Metrics& first = results.metrics.front();
  using Align = TextTable::Align;
  std::vector<TextTable::Column> columns = {
      {"policy"},
      {"JCT [s]", Align::right},
      {"WJCT [s]", Align::right},
      {"p99 [s]", Align::right},
      {"makespan [h]", Align::right},
      {"GPUs used", Align::right},
      {"queue [s]", Align::right},
      {"most delay [s]", Align::right},
      {"moves", Align::right},
      {"slowed jobs", Align::right},
      {"p90 decision [ms]", Align::right},
      {fmt::format("JCT {}/this", results.policies.front()), Align::right}};
  const bool has_deadlines =
      std::any_of(results.metrics.begin(), results.metrics.end(),
                  [](const sim::Metrics& one) { return one.deadlines_kept.mean > 0; });
  if (has_deadlines) columns.push_back({"deadlines kept", Align::right});
  if (!results.to_swell.empty()) columns.push_back({"JCT this/swell [95 %]", Align::right});
  TextTable table(columns);
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    const sim::Metrics& one = results.metrics[i];
    std::vector<std::string> row = {
        results.policies[i],
        with_ci(one.avg_jct_s, 0),
        with_ci(one.avg_wjct_s, 0),
        fmt::format("{:.0f}", one.p99_jct_s.mean),
        fmt::format("{:.2f}", one.makespan_s.mean / 3600),
        fmt::format("{:.1f} %", 100 * one.gpu_utilization.mean),
        fmt::format("{:.0f}", one.avg_queue_s.mean),
        fmt::format("{:.0f}", one.max_delay_vs_fifo_s.mean),
        fmt::format("{:.0f}", one.reconfigurations.mean),
        fmt::format("{:.1f}", one.slower_than_basic.mean),
        fmt::format("{:.1f}", 1e3 * one.decision_p90_s),
        fmt::format("{:.2f}x", first.avg_jct_s.mean / one.avg_jct_s.mean)};
    if (has_deadlines) row.push_back(fmt::format("{:.1f} %", 100 * one.deadlines_kept.mean));
    if (!results.to_swell.empty()) {
      const sim::Ratio& ratio = results.to_swell[i].jct;
      row.push_back(ratio.low < ratio.high
                        ? fmt::format("{:.2f} [{:.2f}, {:.2f}]", ratio.mean, ratio.low, ratio.high)
                        : fmt::format("{:.2f}", ratio.mean));
    }
    table.add(std::move(row));
  }
  write_text(table.text());
}

std::string with_bounds(const sim::Ratio& ratio) {
  return ratio.low < ratio.high
             ? fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.mean, ratio.low, ratio.high)
             : fmt::format("{:.3f}", ratio.mean);
}

/// Prints what consent to fewer GPUs costs, if any job gave it and a policy honours it.
void print_consent(const sim::Results& results) {
  using Align = TextTable::Align;
  TextTable table({{"JCT with consent / without"},
                   {"consenting jobs", Align::right},
                   {"mean [95 %]", Align::right},
                   {"weighted [95 %]", Align::right},
                   {"each: median", Align::right},
                   {"95 %", Align::right},
                   {"worst 5 %", Align::right},
                   {"worst", Align::right}});
  bool any = false;
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    const auto& cost = results.consent[i];
    if (!cost) continue;
    any = true;
    table.add({results.policies[i], fmt::format("{}", cost->jobs.size()),
               with_bounds(cost->all.jct), with_bounds(cost->all.wjct),
               fmt::format("{:.2f}", cost->median), fmt::format("{:.2f}", cost->p95),
               fmt::format("{:.2f}", cost->worst_twentieth), fmt::format("{:.2f}", cost->worst)});
  }
  if (any) write_text("\n" + table.text());
}

/// Prints the costs and the gains of each policy's decisions.
void print_explanations(const sim::Results& results, int first_seed) {
  using Align = TextTable::Align;
  for (std::size_t i = 0; i < results.explanations.size(); ++i) {
    const sim::Explanation& made = results.explanations[i];
    say("\n{}: of a job's time, on average {:.0f} s without GPUs, {:.0f} s at a standstill for changes "
        "of plan, {:.0f} s in training\n",
        results.policies[i], made.waited_s, made.still_s, made.trained_s);
    if (made.sums.empty()) continue;
    TextTable sums({{"decision"},
                    {"times", Align::right},
                    {"jobs lost [s]", Align::right},
                    {"jobs gained [s]", Align::right},
                    {"others waited [s]", Align::right},
                    {"standstill [s]", Align::right},
                    {"idle [GPU s]", Align::right},
                    {"why"}});
    for (const sim::ChangeSum& sum : made.sums)
      sums.add({text_of(sum.kind), fmt::format("{}", sum.changes),
                fmt::format("{:.0f}", sum.lost_s), fmt::format("{:.0f}", sum.gained_s),
                fmt::format("{:.0f}", sum.others_s), fmt::format("{:.0f}", sum.still_s),
                fmt::format("{:.0f}", sum.idle_gpu_s), text_of(sim::Cause{sum.why})});
    write_text("\n" + sums.text());
    TextTable costliest({{"cost [s]", Align::right},
                         {"others [s]", Align::right},
                         {"idle [GPU s]", Align::right},
                         {"seed", Align::right},
                         {"job", Align::right},
                         {"at [s]", Align::right},
                         {"for [s]", Align::right},
                         {"decision"},
                         {"GPUs"},
                         {"promised", Align::right},
                         {"was", Align::right},
                         {"plan"},
                         {"why"}});
    for (const auto& [seed, change] : made.costliest)
      costliest.add(
          {fmt::format("{:.0f}", change.cost_s()), fmt::format("{:.0f}", change.others_delay_s),
           fmt::format("{:.0f}", change.idle_gpu_s),
           fmt::format("{}", static_cast<std::size_t>(first_seed) + seed),
           fmt::format("{}", change.job), fmt::format("{:.0f}", change.at_s),
           fmt::format("{:.0f}", change.until_s - change.at_s), text_of(change.kind),
           fmt::format("{} to {}", change.gpus_before, change.gpus_after),
           change.promised > 0 ? fmt::format("{:.2f}x", change.promised) : "-",
           fmt::format("{:.2f}x", change.real),
           fmt::format("{} to {}", change.plan_before, change.plan_after), text_of(change.cause)});
    write_text("\n" + costliest.text());
  }
}

int run(const Options& options) {
  std::optional<Site> site;
  if (options.page) {
    auto loaded = read_site(options);
    if (!loaded) return fail(loaded.error());
    site = *std::move(loaded);
    for (const std::string& note : site->notes) complain(note);
  }
  auto experiment = read_experiment(options, site ? &*site : nullptr);
  if (!experiment) return fail(experiment.error());
  if (auto good = sim::check_policies(experiment->policies, experiment->settings); !good)
    return fail(good.error());
  if (isatty(STDERR_FILENO) != 0) experiment->progress = show_progress;
  const auto results = sim::run(*experiment);
  if (!results) return fail(results.error());
  const auto left_out = sim::left_out(*experiment->cluster, experiment->workload.mix.xl > 0);
  if (options.leave_out_large && !left_out.empty())
    complain(fmt::format("left out of the mix, since they need more GPUs than the cluster's {}: {}",
                         experiment->cluster->gpu_count(), fmt::join(left_out, ", ")));
  if (site && options.json != "-") {
    write_text(site_page(*site, *experiment, *results));
  } else if (options.json != "-") {
    say("{} on {} of {}, {}\n", sim::jobs_text(*results, *experiment),
        count_of(experiment->cluster->gpu_count(), "GPU"), experiment->cluster->name(),
        count_of(options.seeds, "seed"));
    print_table(*results);
    print_consent(*results);
    print_explanations(*results, options.first_seed);
    say("\n{}\n", sim::redeployment_text(*experiment));
  }
  if (options.json != "-") {
    if (results->jobs < kFewJobs)
      complain(fmt::format(
          "these ratios are of {}; with fewer than {} they say little: take more jobs, or more --seeds",
          count_of(results->jobs, "job"), kFewJobs));
  }
  const bool repeatable = experiment->fixed_decision_time;
  if (!options.json.empty())
    if (auto written =
            write_file(options.json, sim::results_json(*results, repeatable).dump() + "\n");
        !written)
      return fail(written.error());
  if (!options.csv.empty())
    if (auto written = write_file(options.csv, sim::results_csv(*results)); !written)
      return fail(written.error());
  if (!options.speeds.empty()) {
    const auto speeds =
        sim::speeds_of(results->workload, *experiment->cluster,
                       static_cast<std::uint64_t>(options.first_seed), options.max_factor);
    if (auto written = write_file(options.speeds, sim::speeds_csv(speeds)); !written)
      return fail(written.error());
  }
  if (!options.report.empty())
    if (auto written = write_file(options.report, sim::results_html(*results, *experiment));
        !written)
      return fail(written.error());
  return 0;
}

}  // namespace

Action add_sim(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "sim", "Simulate policies on a cluster, with jobs from a trace or made up");
  CLI::Option* site = sub->add_flag(
      "--site", options->site,
      "This cluster and the jobs of its last month, from slurmctld and sacct: what Swell would "
      "have brought, by account");
  CLI::Option* days =
      sub->add_option("--days", options->days, "With --site: days of jobs that are read")
          ->check(CLI::Range(1, 3660))
          ->needs(site)
          ->capture_default_str();
  sub->add_option("--gpu-type", options->gpu_type,
                  "With --site: type for GPUs whose own the catalogue lacks, such as h100")
      ->needs(site);
  CLI::Option* cluster = sub->add_option("--cluster", options->cluster,
                                         "NODESxGPUS:TYPE, such as 8x8:h100, or a JSON file")
                             ->excludes(site)
                             ->capture_default_str();
  CLI::Option* trace = sub->add_option(
      "--trace", options->trace,
      "What sacct -P or sacct --json prints, a published trace, or a table with submit_s, num_gpus "
      "and duration_s (default: made-up jobs)");
  sub->add_option("--arrivals", options->arrivals, "How made-up jobs arrive")
      ->check(CLI::IsMember({"poisson", "diurnal"}))
      ->capture_default_str();
  sub->add_option("--load", options->load, "GPU-time that made-up jobs ask for, of what there is")
      ->check(CLI::Range(0.01, 10.0))
      ->capture_default_str();
  sub->add_option("--policy", options->policies,
                  "Policies, separated by commas: fifo, sjf, or one that lends or places (a page "
                  "by account: fewest-first)")
      ->delimiter(',');
  sub->add_option("--seeds", options->seeds, "Repetitions with other samples of the trace")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sub->add_option("--first-seed", options->first_seed, "The first seed")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->add_option("--hours", options->hours,
                  "Only what is submitted in the first hours (made-up jobs: 8)")
      ->check(above_zero());
  sub->add_option("--cap-hours", options->cap_hours, "Cut longer jobs of the trace to this")
      ->check(above_zero());
  sub->add_option("--intensity", options->intensity, "Divides submission intervals")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  sub->add_option("--bandwidth", options->bandwidth,
                  "Network cards of each node: 8 or 4 x 400 Gbit/s, or 10 Gbit/s Ethernet")
      ->check(CLI::IsMember({"full-ib", "half-ib", "no-ib"}))
      ->capture_default_str();
  sub->add_option("--aggressiveness", options->aggressiveness,
                  "Expansion aggressiveness lambda of policies that have it")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--fairness", options->fairness,
                  "Discount of policies that have it for jobs lent more than their share")
      ->check(CLI::Range(0.0, 10.0));
  sub->add_option("--set", options->settings,
                  "POLICY.PARAMETER=NUMBER: one of a policy's own numbers; a wrong one lists them")
      ->type_size(1)
      ->allow_extra_args(false);
  sub->add_option("--launch-floor", options->launch_floor,
                  "Seconds to launch one layer's kernels, all passes (default: 0.00075)")
      ->check(CLI::Range(1e-6, 1.0));
  sub->add_flag("--leave-out-large", options->leave_out_large,
                "Leave models out of the mix that need more GPUs than the cluster has");
  sub->add_option("--prediction-error", options->prediction_error,
                  "Relative error injected into each prediction, one for each plan")
      ->check(CLI::Range(0.0, 1.0));
  sub->add_option("--max-shortfall", options->max_shortfall,
                  "Share of a promised gain that may be missing, as MaxShortfall of swell.conf")
      ->check(CLI::Range(0.1, 1.0))
      ->capture_default_str();
  sub->add_option(
         "--max-factor", options->max_factor,
         "A job has up to so many times its GPUs, as by max=4x; 0: as many as pay, without max=")
      ->check(CLI::Range(0.0, 10000.0))
      ->capture_default_str();
  CLI::Option* rigid_share =
      sub->add_option("--rigid-share", options->rigid_share,
                      "Share of jobs that are not elastic (of a page by account: 0.5)")
          ->check(CLI::Range(0.0, 1.0));
  sub->add_option("--consent-share", options->consent_share,
                  "Share of elastic jobs that start with fewer GPUs where the policy honours it")
      ->check(share_check(true));
  sub->add_option("--deadlines", options->deadlines,
                  "Elastic jobs have a deadline, as many times their time on their basic demand "
                  "after their submission as drawn between two numbers, such as 0.8 2")
      ->expected(2)
      ->check(CLI::Range(0.05, 1000.0));
  sub->add_option("--deadline-share", options->deadline_share,
                  "Share of elastic jobs that have a deadline")
      ->check(share_check(false))
      ->capture_default_str();
  sub->add_option("--least-share", options->least_share,
                  "Share of the GPUs they want for which such jobs are submitted")
      ->check(share_check(false))
      ->capture_default_str();
  sub->add_option("--base", options->base, "Queue order under lending policies")
      ->check(CLI::IsMember({"fifo", "sjf"}))
      ->capture_default_str();
  sub->add_option("--backfill", options->backfill,
                  "Start jobs behind the head of the queue where that delays none")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  sub->add_option("--mix", options->mix, "Small, middle, large (and XL) jobs in relation")
      ->capture_default_str();
  CLI::Option* sample =
      sub->add_flag("--sample", options->sample,
                    "A sample of the trace, in proportion to the cluster, not every job")
          ->excludes(site);
  sub->add_option("--trace-gpus", options->trace_gpus,
                  "GPUs of the cluster that the trace is from, for --sample")
      ->check(above_zero())
      ->needs(sample)
      ->capture_default_str();
  sub->add_option("--failures", options->failures, "Failures of each node a day")
      ->check(CLI::Range(0.0, 100.0));
  sub->add_option(
         "--decision-time", options->decision_time,
         "As long as each decision took here, or always 0.5 s: repeatable (default: fixed for "
         "a page by account, else measured)")
      ->check(CLI::IsMember({"measured", "fixed"}));
  sub->add_option("--remaining", options->remaining,
                  "Whether jobs say how much they have left to do, or half of them do")
      ->check(CLI::IsMember({"known", "half", "unknown"}))
      ->capture_default_str();
  sub->add_option("--profiles", options->profiles,
                  "When rivals that replace the scheduler have a job's profile: before it is "
                  "submitted, for nothing; from one GPU, or all that the job asks for, before it "
                  "starts; or once it has run, as policies that lend")
      ->check(CLI::IsMember({"before", "alone", "full", "running"}))
      ->capture_default_str();
  sub->add_option("--profile-steps", options->profile_steps,
                  "Iterations on one plan after which a job's profile is there")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sub->add_option(
         "--profile-detail", options->profile_detail,
         "What programs report: all that they do, or what Suika's appendix A.2 needs alone")
      ->check(CLI::IsMember({"full", "a2"}))
      ->capture_default_str();
  sub->add_option("--lying-share", options->lying_share,
                  "Share of jobs whose profile hides what more GPUs would cost them")
      ->check(share_check(true))
      ->capture_default_str();
  sub->add_option("--clocks", options->clocks,
                  "Whether swell.conf's clocks hold for the policies that slurmctld runs, and they "
                  "lend to jobs without a profile as it does")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  sub->add_option(
         "--redeployment", options->redeployment,
         "What moves cost under such policies: as Swell's own were measured on a real cluster, "
         "live or by restarts, or as a model of Suika's figures says")
      ->check(CLI::IsMember({"live", "restart", "suika"}))
      ->capture_default_str();
  sub->add_option("--rivals-redeployment", options->rivals_redeployment,
                  "The cost of moves under all other policies: by a model of Suika's figures, "
                  "or as --redeployment says")
      ->check(CLI::IsMember({"suika", "same"}))
      ->capture_default_str();
  sub->add_option("--growth-interval", options->growth_interval,
                  "Seconds between two growths of a job: GrowthInterval of swell.conf")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  sub->add_option("--grant-expiry", options->grant_expiry,
                  "Seconds that an offer stands: GrantExpiry of swell.conf")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  sub->add_option(
         "--profile-wait", options->profile_wait,
         "Seconds for which a job without a profile is not grown: ProfileWait of swell.conf")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  sub->add_option("--jobs", options->jobs, "At most so many jobs")->check(above_zero());
  sub->add_option("--threads", options->threads, "Simulations at a time (default: one a core)")
      ->check(CLI::Range(1, 1024));
  sub->add_flag(
         "--explain", options->explain,
         "Print the ten decisions of each policy that cost most, with what was predicted and "
         "what came of it, and all by their reasons")
      ->excludes(site);
  sub->add_option("--json", options->json,
                  "Write results as one JSON object to a file; - is standard output");
  sub->add_option("--csv", options->csv, "Write one line a job, policy and seed to a file");
  sub->add_option("--speeds", options->speeds,
                  "Write to a file how fast each job of the first seed is on how many GPUs");
  sub->add_option("--report", options->report,
                  "Write a page to look at, HTML without anything from outside");
  trace->excludes(days);
  return [options, rigid_share, cluster] {
    options->page = options->site || (options->policies.empty() && !options->trace.empty());
    if (options->policies.empty() && !options->page)
      return fail(
          Error("--policy is required, such as --policy fifo,swell; --site, or --cluster and "
                "--trace, print a page by account without it"));
    if (options->page && options->sample)
      return fail(Error("--sample compares policies: give --policy, too, such as fifo,swell"));
    if (options->page && !options->site && cluster->count() == 0)
      return fail(
          Error("give the cluster on which these jobs ran by --cluster, such as --cluster "
                "8x8:h100, or --site for the one that Slurm has here"));
    if (options->policies.empty()) options->policies = {kSitePolicy};
    if (options->page && rigid_share->count() == 0) options->rigid_share = kSiteRigidShare;
    return run(*options);
  };
}

}  // namespace swell::tools
