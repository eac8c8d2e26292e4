// SPDX-License-Identifier: GPL-2.0-or-later
// swell plan: the scale table of one job.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <thread>

#include "control/input_file.h"
#include "core/cluster/presets.h"
#include "core/count_of.h"
#include "core/helpers.h"
#include "core/models/catalogue.h"
#include "core/perf/chunk_costs.h"
#include "core/perf/peak_memory.h"
#include "core/perf/profile_json.h"
#include "core/perf/roofline.h"
#include "core/perf/solve.h"
#include "core/plan/validate.h"
#include "core/planner/affinity.h"
#include "core/planner/combination.h"
#include "core/planner/incremental.h"
#include "core/planner/registry.h"
#include "core/planner/scheduled_plan.h"
#include "core/planner/symmetric.h"
#include "core/schedule/drawing.h"
#include "core/schedule/text.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/files.h"
#include "tools/job_word.h"
#include "tools/output.h"
#include "tools/plan_grid.h"

namespace swell::tools {

namespace {

struct Options {
  std::string job, model, cluster, plan, coefficients, profile, table;
  std::string solver = "incremental", consistency = "relaxed", schedule, drawing;
  int free_gpus = -1;
  int micro_batches = 0;
  int global_batch = 0;
  int sequence = 0;
  double seconds = 60;
  std::string sizes;
  bool grid = false, cells = false;
  bool json = false, one_chunk = false, all_rows = false;
  planner::RowFilter filter = planner::RowFilter::all();
};

constexpr double GiB = 1024.0 * 1024.0 * 1024.0;

/// A model to plan for, and its graph if it was given as a graph.
struct Planned {
  models::CatalogueEntry entry{};
  std::optional<models::Graph> graph;
  models::GraphChain chain;
};

/// Reads a graph as a chain of layers, which is the same for all GPU types of `cluster`.
Result<void> read_graph(const Options& options, const Json& json, const cluster::Cluster& cluster,
                        Planned& planned) {
  auto graph = models::graph_from_json(json);
  if (!graph) return graph.error().while_doing(options.model);
  if (options.global_batch > 0) graph->global_batch = options.global_batch;
  const int micro_batches =
      options.micro_batches > 0 ? options.micro_batches : planned.entry.micro_batches;
  const double samples = std::max(1, graph->global_batch / micro_batches);
  planned.chain = models::chain_of(*graph, perf::roofline_load(cluster.type(0), samples));
  planned.entry.model = planned.chain.model;
  planned.graph = *std::move(graph);
  return {};
}

Result<Planned> read_model(const Options& options, const cluster::Cluster& cluster) {
  Planned planned;
  models::CatalogueEntry& entry = planned.entry;
  if (is_file(options.model)) {
    auto json = read_json(control::model_file_at(options.model));
    if (!json) return json.error();
    entry.source = "file";
    if (models::is_graph(*json)) {
      if (auto good = read_graph(options, *json, cluster, planned); !good) return good.error();
    } else {
      auto model = models::model_from_json(*json);
      if (!model) return model.error().while_doing(options.model);
      entry.model = *model;
    }
  } else {
    auto found = models::find_model(options.model);
    if (!found) return found.error();
    entry = *found;
  }
  if (options.global_batch > 0) entry.model.global_batch = options.global_batch;
  if (options.micro_batches > 0) entry.micro_batches = options.micro_batches;
  if (options.sequence > 0) {
    if (planned.graph)
      return Error(fmt::format("--sequence {} cannot change a graph; export {} with it",
                               options.sequence, options.model));
    entry.model.sequence = options.sequence;
  }
  if (auto good = models::check(entry.model); !good) return good.error();
  if (auto good = models::check_planned_for(entry.model); !good)
    return good.error().while_doing("model " + entry.model.name);
  if (entry.model.global_batch % entry.micro_batches != 0)
    return Error(fmt::format("{} do not divide the global batch of {}",
                             count_of(entry.micro_batches, "micro-batch"),
                             entry.model.global_batch));
  return planned;
}

Result<cluster::Cluster> read_cluster(const std::string& name) {
  if (!is_file(name)) return cluster::preset(name);
  auto json = read_json(name);
  if (!json) return json.error();
  auto cluster = cluster::Cluster::from_json(*json);
  if (!cluster) return cluster.error().while_doing(name);
  return cluster;
}

/// Reads degrees as "PP-DP-TP", such as 1-4-4; the plan is over the cluster's first GPUs.
std::optional<models::CatalogueEntry> degrees_of(const std::string& text,
                                                 models::CatalogueEntry entry) {
  int read = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%d%n", &entry.pp, &entry.dp, &entry.tp, &read) != 3 ||
      read != static_cast<int>(text.size()))
    return std::nullopt;
  if (entry.pp < 1 || entry.dp < 1 || entry.tp < 1 || entry.tp > 64 || entry.pp > 4096 ||
      entry.dp > 4096)
    return std::nullopt;
  return entry;
}

Result<plan::Layout> symmetric_start(const models::CatalogueEntry& entry,
                                     const perf::PerformanceModel& perf) {
  const cluster::Cluster& cluster = perf.cluster();
  planner::Islands gpus;
  const int width = entry.tp * entry.model.cp;
  const std::int64_t all = std::int64_t{entry.pp} * entry.dp * width;
  std::int64_t left = all;
  for (const auto& gpu : planner::unused({}, cluster))
    if (left-- > 0)
      planner::add_to(gpus, gpu.node, cluster.type_of(gpu), plan::GpuMask{1} << gpu.index);
  planner::Evaluator evaluator(perf, entry.model.global_batch / entry.micro_batches);
  plan::Layout layout{entry.micro_batches, {}};
  for (int i = 0; i < entry.pp; ++i) {
    plan::StageLayout stage{0, width, {}};
    if (planner::take_groups(stage, gpus, width, entry.dp) < entry.dp)
      return Error(fmt::format(
          "the plan {}-{}-{} needs {} in groups of {} on one node; cluster {} has {} in all: give "
          "--plan PP-DP-TP that fits, or a larger --cluster",
          entry.pp, entry.dp, entry.tp, count_of(all, "GPU"), width, cluster.name(),
          cluster.gpu_count()));
    layout.stages.push_back(std::move(stage));
  }
  if (!evaluator.balance(layout)) {
    const perf::Combination degrees{entry.pp, entry.dp, entry.tp, entry.micro_batches};
    if (auto good = planner::check_combination(degrees, entry.model); !good)
      return good.error().while_doing(
          fmt::format("the plan {}-{}-{}", entry.pp, entry.dp, entry.tp));
    return Error(fmt::format(
        "the plan {}-{}-{} with {} does not fit: of {} and {} a micro-batch, some stage gets none, or more than the GPUs' memory holds: give more --micro-batches, or another --plan; --grid shows plans that fit",
        entry.pp, entry.dp, entry.tp, count_of(entry.micro_batches, "micro-batch"),
        count_of(entry.model.layers, "layer"),
        count_of(entry.model.global_batch / entry.micro_batches, "sample")));
  }
  return layout;
}

/// Returns the paper's plan for the model; where the cluster is too small for it, with half of its
/// replicas, or a quarter and so on, each of which keeps its samples of a micro-batch. Says so
/// then.
models::CatalogueEntry fitting(models::CatalogueEntry entry, const cluster::Cluster& cluster) {
  const auto gpus = [&entry] {
    return std::int64_t{entry.pp} * entry.dp * entry.tp * entry.model.cp;
  };
  const int published = entry.dp;
  const int micro_batches = entry.micro_batches;
  while (entry.dp % 2 == 0 && gpus() > cluster.gpu_count() &&
         entry.model.global_batch % (2 * entry.micro_batches) == 0) {
    entry.dp /= 2;
    entry.micro_batches *= 2;
  }
  if (entry.dp < published && gpus() <= cluster.gpu_count()) {
    write_text(fmt::format("the plan that runs now is taken to be {}-{}-{} over {}, with {}: the "
                           "paper's {}-{}-{} is larger than cluster {}; --plan gives another one\n",
                           entry.pp, entry.dp, entry.tp, count_of(gpus(), "GPU"),
                           count_of(entry.micro_batches, "micro-batch"), entry.pp, published,
                           entry.tp, cluster.name()),
               stderr);
    return entry;
  }
  entry.dp = published;
  entry.micro_batches = micro_batches;
  return entry;
}

Result<plan::Layout> read_current(const Options& options, const models::CatalogueEntry& entry,
                                  const perf::PerformanceModel& perf) {
  if (options.plan.empty()) return symmetric_start(fitting(entry, perf.cluster()), perf);
  if (const auto degrees = degrees_of(options.plan, entry)) return symmetric_start(*degrees, perf);
  if (!is_file(options.plan))
    return Error(fmt::format("\"{}\" is neither a file nor PP-DP-TP, such as 1-4-4", options.plan));
  auto json = read_json(options.plan);
  if (!json) return json.error();
  auto plan = plan::Plan::from_json(*json);
  if (!plan) return plan.error().while_doing(options.plan);
  if (auto good = plan::validate(*plan, entry.model, perf.cluster()); !good)
    return good.error().while_doing(options.plan);
  return plan::resolve(*plan, perf.cluster());
}

/// For each row its plan with chunks and a schedule, or why there is none. Shorter than the table
/// if the time was up.
using Scheduled = std::vector<Result<planner::ScheduledPlan>>;

Result<Scheduled> schedule_rows(const planner::ScaleTable& table,
                                const perf::PerformanceModel& perf, const std::string& name,
                                const std::function<bool()>& expired) {
  std::optional<schedule::Schedule> given;
  if (is_file(name)) {
    auto text = read_file(name);
    if (!text) return text.error();
    auto read = schedule::parse(*text);
    if (!read) return read.error().while_doing(name);
    given = *std::move(read);
  }
  const int more = static_cast<int>(std::thread::hardware_concurrency()) - 1;
  Helpers helpers(std::max(0, more),
                  [](std::function<void()> body) { return std::thread(std::move(body)); });
  Scheduled all;
  for (const planner::ScaleRow& row : table.rows) {
    if (!all.empty() && row.layout == table.rows[all.size() - 1].layout) {
      all.push_back(all.back());
      continue;
    }
    if (!all.empty() && expired()) break;
    all.push_back(given ? planner::with_schedule(perf, row.layout, *given)
                        : planner::best_scheduled(perf, row.layout, name, helpers, {expired}));
  }
  // An error in all rows is an error of the request.
  if (!all.empty() &&
      std::none_of(all.begin(), all.end(), [](const auto& one) { return one.ok(); }))
    return all.front().error();
  return all;
}

Json scheduled_json(const planner::ScheduledPlan& one, const perf::PerformanceModel& perf) {
  return Json::object(
      {{"schedule", one.found.name},
       {"text", schedule::to_text(one.found.schedule)},
       {"placement", one.placement},
       {"chunks", one.layout.chunks()},
       {"samples_per_s", perf.model().global_batch / one.found.prediction.seconds},
       {"best_named", one.found.best_named},
       {"peak_bytes", array_of(one.found.prediction.peak_bytes)},
       {"plan", plan::name_all(one.layout, perf.cluster(), perf.model()).to_json()}});
}

void print_scheduled(const Scheduled& scheduled, const planner::ScaleTable& table,
                     const perf::PerformanceModel& perf, const Options& options) {
  say("\n{:>5} {:>10} {:>8}  {:<17} {:<17} {:>8}  {}\n", "GPUs", "samples/s", "gain", "schedule",
      "placement", "peak GiB", "plan with chunks");
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    const planner::ScaleRow& row = table.rows[i];
    if (row.omitted != planner::RowRule::none && !options.all_rows) continue;
    if (!scheduled[i]) {
      say("{:>5} {}\n", row.gpus, scheduled[i].error().message());
      continue;
    }
    const planner::ScheduledPlan& one = *scheduled[i];
    const double rate = perf.model().global_batch / one.found.prediction.seconds;
    const auto& peaks = one.found.prediction.peak_bytes;
    say("{:>5} {:>10.2f} {:>7.2f}x  {:<17} {:<17} {:>8.0f}  {}\n", row.gpus, rate,
        rate / row.throughput, one.found.name, one.placement,
        *std::max_element(peaks.begin(), peaks.end()) / GiB,
        plan::name_all(one.layout, perf.cluster(), perf.model()).summary());
  }
  if (scheduled.size() < table.rows.size())
    say("time was up before schedules of the last {} (--time-limit)\n",
        count_of(table.rows.size() - scheduled.size(), "row"));
}

void print_json(const planner::ScaleTable& table, const planner::NamedTable& named,
                const Scheduled& scheduled, const perf::PerformanceModel& perf,
                const Options& options, double took_ms) {
  Json line = Json::object({{"model", perf.model().name},
                            {"cluster", perf.cluster().name()},
                            {"solver", options.solver},
                            {"consistency", options.consistency},
                            {"complete", table.complete},
                            {"evaluated", table.evaluated},
                            {"took_ms", took_ms}});
  const Json written = named.to_json();
  for (const auto& [key, value] : members(written)) line.set(key.c_str(), value);
  std::vector<Json> rows = line.at("rows").items();
  for (std::size_t i = 0; i < scheduled.size(); ++i)
    if (scheduled[i]) rows[i].set("scheduled", scheduled_json(*scheduled[i], perf));
    else rows[i].set("not_scheduled", scheduled[i].error().message());
  write_json_line(line);
}

void print_table(const planner::NamedTable& table, const Options& options, bool complete) {
  say("{:>5} {:>5} {:>10} {:>8} {:>8}  {:<14} {:<44} {}\n", "GPUs", "used", "samples/s", "speedup",
      "modelled", "peak GiB", "plan", "why");
  int omitted = 0;
  bool any_indivisible = false;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const planner::NamedRow& row = table.rows[i];
    if (row.omitted != planner::RowRule::none) ++omitted;
    any_indivisible |= row.omitted == planner::RowRule::indivisible;
    if (row.omitted != planner::RowRule::none && !options.all_rows) continue;
    std::string peaks;
    for (const double peak : row.peak_bytes)
      peaks += fmt::format("{}{:.0f}", peaks.empty() ? "" : " ", peak / GiB);
    say("{:>5} {:>5} {:>10.2f} {:>7.2f}x {:>7.2f}x  {:<14} {:<44} {}\n", row.gpus,
        row.plan->gpu_count(), row.throughput, table.speedup(i), table.modelled_speedup(i), peaks,
        row.summary,
        row.omitted == planner::RowRule::none
            ? row.why
            : fmt::format("left out: {}", row.omitted == planner::RowRule::indivisible
                                              ? row.why
                                              : planner::words_for(row.omitted)));
  }
  if (omitted > 0 && !options.all_rows)
    say("{} {} left out, see --all-rows: the predictions contradict each other{} there is no "
        "significant gain{}\n",
        count_of(omitted, "row"), omitted == 1 ? "is" : "are", any_indivisible ? "," : ", or",
        any_indivisible ? ", or CP or EP excludes the number of GPUs" : "");
  if (!complete)
    say("the search reached its limits (--time-limit {:g} s): the best that was found so far\n",
        options.seconds);
}

/// Writes the drawing of the last row, by its found schedule, else by its plan's own schedule.
Result<void> draw(const planner::ScaleTable& table, const Scheduled& scheduled,
                  const perf::PerformanceModel& perf, const std::string& path) {
  const bool has_schedule = scheduled.size() == table.rows.size() && scheduled.back().ok();
  const plan::Layout& layout = has_schedule ? scheduled.back()->layout : table.rows.back().layout;
  auto passes = has_schedule ? Result<schedule::Schedule>(scheduled.back()->found.schedule)
                             : plan::schedule_of(layout);
  if (!passes) return passes.error().while_doing(path);
  const auto svg = schedule::to_svg(*passes, perf::chunk_costs(perf, layout));
  if (!svg) return svg.error().while_doing(path);
  return write_file(path, *svg);
}

Result<std::unique_ptr<planner::Solver>> solver_for(const Options& options, int free_gpus) {
  if (options.consistency == "exact" && options.solver != "incremental" &&
      options.solver != "exhaustive")
    return Error(fmt::format("solver {} has no exact consistency; incremental and exhaustive have",
                             options.solver));
  if (options.solver != "incremental" || options.free_gpus < 0)
    return planner::make_solver(options.solver);
  // The user gave a number of GPUs: the solver must not stop at twice the job's size.
  planner::Incremental::Options all;
  all.max_free = std::max(1, free_gpus);
  return std::unique_ptr<planner::Solver>(std::make_unique<planner::Incremental>(all));
}

/// Tells the user if launching kernels, which predictions from data sheets count with --grid only,
/// would make the current plan at least a fifth slower.
void say_launches(const perf::PerformanceModel& perf, const plan::Layout& current,
                  perf::Coefficients coefficients, const models::Model& model,
                  const cluster::Cluster& cluster) {
  perf::expect_launches(coefficients, model, cluster);
  const perf::PerformanceModel with(model, cluster, coefficients);
  if (const double slower = with.throughput(current); slower < 0.8 * perf.throughput(current))
    write_text(fmt::format(
        "predicted without the time to start kernels, with which the first plan does {:.2f} "
        "samples/s: swell plan --grid counts it\n",
        slower));
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration<double>(options.seconds);
  const auto cluster = read_cluster(options.cluster);
  if (!cluster) return fail(cluster.error());
  const auto planned = read_model(options, *cluster);
  if (!planned) return fail(planned.error());
  const models::CatalogueEntry* entry = &planned->entry;
  perf::Coefficients coefficients =
      planned->graph ? perf::expected_coefficients(
                           *planned->graph, planned->chain, *cluster,
                           static_cast<double>(entry->model.global_batch) / entry->micro_batches)
                     : perf::expected_coefficients(entry->model, *cluster);
  if (!options.coefficients.empty()) {
    auto json = read_json(options.coefficients);
    if (!json) return fail(json.error());
    auto read = perf::coefficients_from_json(*json, *cluster);
    if (!read) return fail(read.error().while_doing(options.coefficients));
    coefficients = *read;
  }
  std::optional<plan::Plan> observed;
  if (!options.profile.empty()) {
    auto json = read_json(options.profile);
    if (!json) return fail(json.error());
    const auto profile = perf::profile_from_json(*json, *cluster);
    if (!profile) return fail(profile.error().while_doing(options.profile));
    auto solved = perf::solve(*profile, *cluster, {}, entry->model);
    if (!solved) return fail(solved.error().while_doing(options.profile));
    coefficients = *solved;
    if (auto good = plan::validate(profile->plan, entry->model, *cluster); !good)
      return fail(good.error().while_doing(options.profile));
    observed = profile->plan;
  }
  planner::ScaleSource source = options.coefficients.empty() && options.profile.empty()
                                    ? planner::ScaleSource::data_sheets
                                    : planner::ScaleSource::running_job;
  // The controller plans in the same way for jobs without a profile.
  if (options.grid && source == planner::ScaleSource::data_sheets && !planned->graph)
    perf::expect_launches(coefficients, entry->model, *cluster);
  std::optional<perf::NodeCosts> costs;
  if (!options.table.empty()) {
    auto json = read_json(options.table);
    if (!json) return fail(json.error());
    auto read = perf::NodeCosts::from_json(*json, entry->model, *cluster);
    if (!read) return fail(read.error().while_doing(options.table));
    costs = *std::move(read);
    costs->fit(coefficients);
    if (!options.grid) source = planner::ScaleSource::one_device;
  }
  const perf::NodeCosts* known = costs ? &*costs : nullptr;
  const perf::PerformanceModel perf(entry->model, *cluster, coefficients, perf::Sends::ignored,
                                    known);
  if (options.grid)
    return print_grid(perf, {entry->micro_batches, options.sizes, source, known, options.cells,
                             options.json, [end] { return Clock::now() >= end; }});
  auto current = observed && options.plan.empty() ? plan::resolve(*observed, *cluster)
                                                  : read_current(options, *entry, perf);
  if (!current) return fail(current.error());

  planner::Problem problem{perf, *current, planner::unused(*current, *cluster)};
  problem.consistency =
      options.consistency == "exact" ? planner::Consistency::exact : planner::Consistency::relaxed;
  problem.takes_chunks = !options.one_chunk;
  if (options.free_gpus >= 0 && options.free_gpus < static_cast<int>(problem.free.size())) {
    problem.free = planner::affinity_order(*current, problem.free, *cluster);
    problem.free.resize(static_cast<std::size_t>(options.free_gpus));
  }
  const auto solver = solver_for(options, static_cast<int>(problem.free.size()));
  if (!solver) return fail(solver.error());

  auto table = (*solver)->solve(problem, {[end] { return Clock::now() >= end; }});
  planner::add_modelled(table, perf);
  planner::filter_rows(table, options.filter);
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  Scheduled scheduled;
  if (!options.schedule.empty()) {
    auto made = schedule_rows(table, perf, options.schedule, [end] { return Clock::now() >= end; });
    if (!made) return fail(made.error());
    scheduled = *std::move(made);
  }
  if (!options.drawing.empty())
    if (const auto drawn = draw(table, scheduled, perf, options.drawing); !drawn)
      return fail(drawn.error());
  const planner::NamedTable named = planner::name_all(table, perf, source, planner::Detail::whole);
  if (options.json) {
    print_json(table, named, scheduled, perf, options, took.count());
  } else {
    print_table(named, options, table.complete);
    if (source == planner::ScaleSource::data_sheets && !planned->graph)
      say_launches(perf, *current, coefficients, entry->model, *cluster);
    if (!scheduled.empty()) print_scheduled(scheduled, table, perf, options);
  }
  return 0;
}

}  // namespace

/// Prints the plan that a job runs, as `swell replan --plan` takes it.
int print_running(const std::string& word) {
  const Result<slurm::JobId> job = job_of(word);
  if (!job) return fail(job.error());
  control::Ask ask;
  ask.what = "why";
  ask.job = *job;
  const Result<control::Answer> answer = ask_controller(ask);
  if (!answer) return fail(answer.error());
  if (!answer->details.has("plan"))
    return fail(Error(fmt::format(
        "job {} has reported no plan: programs with mode=live report theirs after some steps; "
        "\"swell why {}\" says what is known of it",
        *job, *job)));
  write_json(answer->details.at("plan"));
  return 0;
}

Action add_plan(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("plan", "The best plan of a job for more and more GPUs");
  sub->add_option(
      "--model", options->model,
      "A model of the catalogue, a JSON file, a HuggingFace config.json or a folder with one, or a "
      "graph that "
      "python -m swell.graph wrote");
  sub->add_option("--cluster", options->cluster, "A preset such as 8x8-h100, or a JSON file");
  sub->add_option("--job", options->job, "Print the plan that this job runs, and nothing else")
      ->type_name("JOBID")
      ->check(wrong_job_word)
      ->excludes("--model")
      ->excludes("--cluster");
  sub->add_option(
      "--plan", options->plan,
      "What runs now: a JSON file, or PP-DP-TP over the first GPUs (default: the paper's for that model, with fewer replicas where the cluster is smaller)");
  sub->add_option("--free", options->free_gpus,
                  "How many free GPUs to use, nearest first (default: as many as the job has)")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--solver", options->solver, "How to search")
      ->check(CLI::IsMember({"incremental", "exhaustive", "symmetric", "dp-only", "metis", "grid",
                             "incremental-pruned", "grid-pruned"}))
      ->capture_default_str();
  sub->add_option("--consistency", options->consistency,
                  "exact: only the pipeline degree and the layers of stages change")
      ->check(CLI::IsMember({"exact", "relaxed"}))
      ->capture_default_str();
  sub->add_flag("--grid", options->grid,
                "For a job that does not run yet: the best plan on 1, 2, 4, ... GPUs of each type")
      ->excludes("--plan")
      ->excludes("--free")
      ->excludes("--job");
  sub->add_flag("--cells", options->cells,
                "With --grid: also the proxy plan of each number of stages")
      ->needs("--grid");
  sub->add_option("--sizes", options->sizes,
                  "With --grid: the numbers of GPUs, such as 4/8/12 (default: powers of two)")
      ->needs("--grid");
  sub->add_flag("--one-chunk", options->one_chunk,
                "The program cannot run plans with chunks, which exact plans have where they pay");
  sub->add_flag("--all-rows", options->all_rows,
                "Also print the rows that are left out, and why; --json has them anyway");
  sub->add_option("--level", options->filter.level,
                  "Leave out rows where one prediction rises by this share and the other one falls "
                  "by it; 0: none")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--apart", options->filter.apart,
                  "Leave out rows whose two speed-ups have a larger ratio; 0: none")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  sub->add_option("--significant", options->filter.significant,
                  "Leave out rows that gain no more than this share; 0: none")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--schedule", options->schedule,
                  "Also the best chunks under a pipeline schedule: search, a name, or a file");
  sub->add_option("--draw", options->drawing,
                  "Write a drawing of one iteration of the last row to this SVG file")
      ->type_name("FILE");
  sub->add_option("--coefficients", options->coefficients,
                  "JSON file of solved coefficients (default: expected from data sheets)");
  sub->add_option("--profile", options->profile,
                  "JSON file of what a running plan was seen to do: coefficients and plan")
      ->excludes("--coefficients");
  sub->add_option("--table", options->table,
                  "JSON file of what one device of a type takes for the model's parts, which "
                  "python -m swell.profile wrote; data sheets where it says nothing")
      ->excludes("--coefficients")
      ->excludes("--profile");
  sub->add_option("--micro-batches", options->micro_batches, "Micro-batches of one iteration")
      ->check(CLI::PositiveNumber);
  sub->add_option("--global-batch", options->global_batch, "Samples of one iteration")
      ->check(CLI::PositiveNumber);
  sub->add_option("--sequence", options->sequence,
                  "Tokens of one sample (default: the longest that the model takes)")
      ->check(CLI::Range(1, 1 << 24));
  sub->add_option("--time-limit,--time", options->seconds,
                  "Seconds after which the best so far is taken")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_flag("--json", options->json, "One line of JSON");
  sub->callback([sub, options] {
    for (const char* needed : {"--model", "--cluster"})
      if (options->job.empty() && sub->count(needed) == 0) throw CLI::RequiredError(needed);
  });
  return [options] { return options->job.empty() ? run(*options) : print_running(options->job); };
}

}  // namespace swell::tools
