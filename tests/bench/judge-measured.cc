// SPDX-License-Identifier: GPL-2.0-or-later
// Compares the simulator's judge with published measurements: `judge-measured --data FILE`. FILE is
// a CSV file of one of five forms, recognized by its columns. One row of each model gives the judge
// one factor on computation (or, for memory, on activations); all other rows are scored. Last line:
// JSON, errors as fractions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/cluster/presets.h"
#include "core/models/catalogue.h"
#include "sim/judge/fsdp.h"
#include "sim/judge/judge.h"
#include "sim/judge/memory.h"
#include "tools/predict/csv.h"

using namespace swell;
using namespace swell::sim;
using predict::Csv;

namespace {

/// One measured row: its configuration, and the judge's result for a factor.
struct Row {
  std::string model, name;
  std::string configuration;  ///< rows with equal configurations are not independent
  double measured = 0;
  double weight = 0;  ///< the row with the largest weight of a model is the fitted one
  std::function<double(double)> judged;
};

class Table {
 public:
  explicit Table(const Csv& csv) : csv_(csv) {}
  bool has(const char* column) const { return csv_.column(column).has_value(); }
  std::size_t rows() const { return csv_.rows(); }
  std::string text(std::size_t row, const char* column) const {
    return csv_.field(row, *csv_.column(column));
  }
  double number(std::size_t row, const char* column) const {
    return csv_.number(row, column, -1e15, 1e15).value();
  }
  int whole(std::size_t row, const char* column) const {
    return static_cast<int>(number(row, column));
  }

 private:
  const Csv& csv_;
};

models::Model gpt(const std::string& name, int layers, int hidden, int heads, int sequence,
                  int batch, int vocab = 51200) {
  return {name, layers, hidden, heads, heads, 4 * hidden, false, true, vocab, sequence, batch, {}};
}

/// Returns a symmetric plan over the first GPUs of a cluster, stage by stage.
plan::Layout symmetric(int pp, int dp, int tp, int layers, int samples, int micro_batches,
                       int per_node) {
  plan::Layout layout{micro_batches, {}};
  int next = 0;
  for (int i = 0; i < pp; ++i) {
    plan::StageLayout stage{layers / pp + (i < layers % pp ? 1 : 0), tp, {}};
    for (int j = 0; j < dp; ++j, next += tp)
      stage.groups.push_back(
          {next / per_node, 0, samples, ((plan::GpuMask{1} << tp) - 1) << (next % per_node)});
    layout.stages.push_back(std::move(stage));
  }
  return layout;
}

double iteration_s(const plan::Layout& layout, const cluster::Cluster& cluster,
                   const models::Model& model, const judge::Software& software, double factor) {
  return judge::execute(layout, cluster,
                        {model, software, std::vector<double>(cluster.types().size(), factor), {}})
      .seconds;
}

cluster::GpuType gpu_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (name == "a100_40gb") name = "a100-40g";
  if (name == "a100_80gb") name = "a100";
  return cluster::find_gpu_type(name).value_or(*cluster::find_gpu_type("a100"));
}

/// Reads vTrain's form: Megatron-DeepSpeed on nodes of 8 A100.
std::vector<Row> megatron(const Table& table) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const int tp = table.whole(i, "tp"), dp = table.whole(i, "dp"), pp = table.whole(i, "pp"),
              micro = table.whole(i, "micro_batch");
    const int layers = table.whole(i, "layers"), hidden = table.whole(i, "hidden"),
              seq = table.whole(i, "seq");
    const int batches = table.whole(i, "global_batch") / dp / micro;
    const auto model =
        gpt("", layers, hidden, table.whole(i, "heads"), seq, table.whole(i, "global_batch"));
    // A TP group over two nodes: its rings use all of their cards at once.
    const int per_node = std::max(8, tp), nodes = (tp * dp * pp + per_node - 1) / per_node;
    cluster::GpuType gpu = gpu_of(table.has("gpu") ? table.text(i, "gpu") : "a100");
    if (tp > 8) gpu.link_bytes_per_s = 104e9;
    const auto cluster =
        cluster::uniform_cluster("measured", gpu, nodes, per_node, 100e9 * per_node / 8);
    const auto layout = symmetric(pp, dp, tp, layers, micro, batches, per_node);
    const bool in_s = table.has("iter_time_s");
    judge::Software software = judge::Software::megatron_deepspeed();
    if (table.has("recompute") && table.text(i, "recompute") == "none")
      software.repeated_forward = 0;
    rows.push_back(
        {fmt::format("h{}-l{}-s{}", hidden, layers, seq),
         fmt::format("tp{} dp{} pp{} micro {} x{}", tp, dp, pp, micro, batches),
         fmt::format("h{} tp{} micro {}", hidden, tp, micro),
         in_s ? table.number(i, "iter_time_s") : table.number(i, "iter_time_ms") / 1e3,
         // Large micro-batches on whole GPUs measure computation, not launches or all-reduces.
         -1e6 * tp - 1e4 * pp + 10 * micro - 1e-3 * dp + 1e-6 * batches,
         [=](double factor) { return iteration_s(layout, cluster, model, software, factor); }});
  }
  return rows;
}

/// Reads MosaicML's form: FSDP. The names of its published configurations give the widths.
std::vector<Row> fsdp(const Table& table) {
  struct Shape {
    int layers, hidden, heads;
  };
  const std::map<std::string, Shape> shapes = {
      {"125m", {12, 768, 12}}, {"350m", {24, 1024, 16}}, {"760m", {24, 1536, 12}},
      {"1b", {24, 2048, 16}},  {"3b", {32, 2560, 20}},   {"7b", {32, 4096, 32}},
      {"13b", {40, 5120, 40}}, {"30b", {48, 7168, 56}},  {"70b", {80, 8192, 64}}};
  std::vector<Row> rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto found = shapes.find(table.text(i, "model"));
    if (found == shapes.end()) continue;
    const auto [layers, hidden, heads] = found->second;
    const int gpus = table.whole(i, "num_gpus"), seq = table.whole(i, "seq"),
              micro = table.whole(i, "micro_batch");
    const int accumulated = table.whole(i, "grad_accum");
    const bool repeats = table.text(i, "recompute") == "True";
    judge::FsdpRun run{
        gpt(found->first, layers, hidden, heads, seq, table.whole(i, "global_batch"), 50432),
        std::max(1, gpus / 8),
        std::min(gpus, 8),
        micro,
        accumulated,
        200e9};
    const auto gpu = gpu_of(table.text(i, "gpu"));
    judge::Software software = judge::Software::fsdp();
    software.repeated_forward = repeats ? software.repeated_forward : 0;
    const double measured =
        static_cast<double>(seq) * micro * accumulated / table.number(i, "tokens_per_s_per_gpu");
    rows.push_back(
        {found->first,
         fmt::format("{} gpus {} seq {} micro {}{}", gpus, table.text(i, "gpu"), seq, micro,
                     repeats ? " recompute" : ""),
         fmt::format("{} {} {} {} {} {}", found->first, gpus, table.text(i, "gpu"), seq, micro,
                     repeats),
         measured, -std::abs(std::log2(seq / 2048.0)) - 0.01 * gpus - (repeats ? 0.5 : 0),
         [=](double factor) { return judge::fsdp_iteration_s(run, software, gpu, factor); }});
  }
  return rows;
}

/// Reads ElasticFlow's form: data parallelism over up to 64 GPUs. Uses its GPT-2 (no other
/// transformer's size is published), with sequences of 128.
std::vector<Row> data_parallel(const Table& table) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const std::string name = table.text(i, "model");
    if (name != "gpt2" || table.text(i, "gpu") != "A100") continue;
    const int gpus = table.whole(i, "num_gpus"), batch = table.whole(i, "global_batch");
    const auto model = gpt(name, 12, 768, 12, 128, batch, 50257);
    const auto cluster =
        cluster::uniform_cluster("measured", gpu_of("a100"), (gpus + 7) / 8, 8, 100e9);
    if (batch / gpus < 1) continue;
    const auto layout = symmetric(1, gpus, 1, 12, batch / gpus, 1, 8);
    rows.push_back({fmt::format("{}-{}", name, batch), fmt::format("{} gpus", gpus),
                    fmt::format("{} {} {}", name, batch, gpus), 1 / table.number(i, "iters_per_s"),
                    -static_cast<double>(gpus), [=](double factor) {
                      return iteration_s(layout, cluster, model, judge::Software::data_parallel(),
                                         factor);
                    }});
  }
  return rows;
}

std::optional<models::Model> arena_model(const std::string& family, const std::string& params,
                                         int batch) {
  std::string size = params;
  std::transform(size.begin(), size.end(), size.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const auto entry = models::find_model(family + "-" + size);
  if (!entry || (family != "bert" && family != "moe")) return std::nullopt;
  models::Model model = entry->model;
  model.global_batch = batch;
  return model;
}

/// Reads Arena's form: the best plan over given GPUs, found by Alpa.
std::vector<Row> best_plans(const Table& table) {
  const std::map<std::string, double> networks = {
      {"a100", 6.9e9},
      {"a40", 4e9},
      {"a10", 5e9},
      {"v100", 12e9}};  // Arena's measured all-reduces, divided by 0.8
  std::vector<Row> rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto model = arena_model(table.text(i, "model"), table.text(i, "params"),
                                   table.whole(i, "global_batch"));
    if (!model) continue;
    const std::string type = table.text(i, "gpu_type");
    const int nodes = table.whole(i, "nodes"), per_node = table.whole(i, "gpus_per_node"),
              gpus = nodes * per_node;
    const auto network = networks.find(type);
    const auto cluster =
        cluster::uniform_cluster("measured", gpu_of(type == "a100" ? "a100-40g" : type), nodes,
                                 per_node, network != networks.end() ? network->second : 5e9);
    const models::Model trained = *model;
    rows.push_back(
        {fmt::format("{}-{}-{}", table.text(i, "model"), table.text(i, "params"), type),
         fmt::format("{}x{} batch {}", nodes, per_node, trained.global_batch),
         fmt::format("{} {} {} {} {}", trained.name, type, nodes, per_node, trained.global_batch),
         table.number(i, "iter_time_s"), -static_cast<double>(gpus) + 1e-4 * trained.global_batch,
         [=](double factor) {
           double best = 1e300,
                  any = 1e300;  // used if no plan fits: Alpa has further ways of sharding
           for (int tp = 1; tp <= per_node; tp *= 2)
             for (int pp = 1; pp * tp <= gpus && pp <= trained.layers; ++pp)
               for (int batches : {4, 8, 16, 32, 64, 128, 256}) {
                 if (gpus % (pp * tp) != 0 ||
                     trained.global_batch % (batches * (gpus / pp / tp)) != 0)
                   continue;
                 const int dp = gpus / pp / tp, samples = trained.global_batch / batches / dp;
                 const auto layout =
                     symmetric(pp, dp, tp, trained.layers, samples, batches, per_node);
                 const double seconds =
                     iteration_s(layout, cluster, trained, judge::Software::alpa(), factor);
                 any = std::min(any, seconds);
                 if (judge::fits(layout, cluster, trained, judge::Software::alpa()))
                   best = std::min(best, seconds);
               }
           return best < 1e300 ? best : any;
         }});
  }
  return rows;
}

/// Reads Arena's form of peak memory under data parallelism.
std::vector<Row> memory(const Table& table) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto model = arena_model(table.text(i, "model"), table.text(i, "params"),
                                   table.whole(i, "global_batch"));
    const int gpus = table.whole(i, "num_gpus");
    const double measured = table.number(i, "mem_gb") * 1e9;
    if (!model || measured <= 0 || model->global_batch < gpus) continue;
    const auto layout = symmetric(1, gpus, 1, model->layers, model->global_batch / gpus, 1, 8);
    const models::Model trained = *model;
    rows.push_back({fmt::format("{}-{}", table.text(i, "model"), table.text(i, "params")),
                    fmt::format("{} gpus batch {}", gpus, trained.global_batch),
                    fmt::format("{} {} {}", trained.name, gpus, trained.global_batch), measured,
                    static_cast<double>(trained.global_batch) / gpus, [=](double factor) {
                      const judge::Memory peak = judge::peak(layout, 0, layout.stages[0].groups[0],
                                                             trained, judge::Software::alpa());
                      return peak.state + peak.gradients +
                             factor * (peak.activations + peak.logits);
                    }});
  }
  return rows;
}

/// Returns the factor with which the judge's result equals the measurement, or the nearest one.
double factor_of(const Row& row) {
  double low = 0.01, high = 100;
  for (int step = 0; step < 40; ++step) {
    const double middle = std::sqrt(low * high);
    (row.judged(middle) < row.measured ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--data" && i + 1 < argc) path = argv[++i];
    if (std::string(argv[i]) == "--verbose") verbose = true;
  }
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr,
                 "judge-measured: cannot read \"%s\"; use judge-measured --data FILE [--verbose]\n",
                 path.c_str());
    return 1;
  }
  std::stringstream text;
  text << file.rdbuf();
  const auto csv = Csv::parse(text.str());
  if (!csv) {
    std::fprintf(stderr, "judge-measured: %s: %s\n", path.c_str(), csv.error().message().c_str());
    return 1;
  }
  const Table table(*csv);
  const auto rows = table.has("sharding")      ? fsdp(table)
                    : table.has("iters_per_s") ? data_parallel(table)
                    : table.has("mem_gb")      ? memory(table)
                    : table.has("plan")        ? best_plans(table)
                                               : megatron(table);
  std::map<std::string, std::size_t> fitted;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [found, is_new] = fitted.try_emplace(rows[i].model, i);
    if (!is_new && rows[i].weight > rows[found->second].weight) found->second = i;
  }
  double sum = 0, worst = 0;
  int scored = 0;
  std::set<std::string> configurations;
  for (const auto& [model, own] : fitted) {
    const double factor = factor_of(rows[own]);
    double model_sum = 0, bias = 0;
    int count = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].model != model || i == own) continue;
      const double judged = rows[i].judged(factor), off = judged / rows[i].measured - 1;
      if (verbose)
        std::printf("  %-18s %-40s %9.4f %9.4f %+6.1f %%\n", model.c_str(), rows[i].name.c_str(),
                    rows[i].measured, judged, 100 * off);
      model_sum += std::abs(off);
      bias += off;
      worst = std::max(worst, std::abs(off));
      configurations.insert(rows[i].configuration);
      ++count;
    }
    sum += model_sum;
    scored += count;
    if (count > 0)
      std::printf("%-20s %4d rows, mean %5.1f %%, bias %+5.1f %%, factor %.3f from %s\n",
                  model.c_str(), count, 100 * model_sum / count, 100 * bias / count, factor,
                  rows[own].name.c_str());
  }
  std::printf("%zu independent configurations\n", configurations.size());
  std::printf(
      "{\"rows\":%d,\"mean_abs_error\":%.4f,\"max_abs_error\":%.4f,\"configurations\":%zu}\n",
      scored, scored > 0 ? sum / scored : 0, worst, configurations.size());
  return scored > 0 ? 0 : 1;
}
