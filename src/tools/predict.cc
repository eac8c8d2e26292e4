// SPDX-License-Identifier: GPL-2.0-or-later
// swell predict: compares the performance model's predictions with measured iteration times.
#include <filesystem>
#include <fmt/format.h>
#include <memory>

#include "tools/commands.h"
#include "tools/files.h"
#include "tools/output.h"
#include "tools/predict/accuracy.h"
#include "tools/predict/collectives_csv.h"

namespace swell::tools {

namespace {

struct Options {
  std::vector<std::string> data;
  std::string allreduce;
  std::string fit_rows = "one-per-model";
  int gpus_per_node = 8;
  bool json = false;
};

constexpr const char* kTableName = "vtrain_allreduce_lut.csv";

Result<std::vector<predict::TrainingRun>> read_runs(const std::vector<std::string>& paths) {
  std::vector<predict::TrainingRun> all;
  for (const std::string& path : paths) {
    auto text = read_file(path);
    if (!text) return text.error();
    auto runs = predict::training_runs_from_csv(*text);
    if (!runs) return runs.error().while_doing(path);
    all.insert(all.end(), runs->begin(), runs->end());
  }
  return all;
}

/// Reads the given communication table, or else the one next to the data. Returns an empty table if
/// there is neither.
Result<cluster::CollectiveTable> read_table(const Options& options) {
  std::string path = options.allreduce;
  if (path.empty()) {
    const auto beside = std::filesystem::path(options.data.front()).parent_path() / kTableName;
    std::error_code ignored;
    if (!std::filesystem::exists(beside, ignored)) return cluster::CollectiveTable();
    path = beside.string();
  }
  auto text = read_file(path);
  if (!text) return text.error();
  auto table = predict::collective_table(*text, "");
  if (!table) return table.error().while_doing(path);
  return table;
}

void print_table(const predict::Accuracy& accuracy) {
  say("{:<18} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7}  {}\n", "model", "rows", "mean", "p50", "p90",
      "max", "bias", "fitted on");
  for (const auto& one : accuracy.models)
    say("{:<18} {:>5} {:>6.1f}% {:>6.1f}% {:>6.1f}% {:>6.1f}% {:>+6.1f}%  {}\n", one.model,
        one.rows, 100 * one.mean, 100 * one.p50, 100 * one.p90, 100 * one.worst, 100 * one.bias,
        one.fitted);
  say("{:<18} {:>5} {:>6.2f}% {:>7} {:>6.1f}%\n", "all", accuracy.rows, 100 * accuracy.mean, "",
      100 * accuracy.p90);
}

int run(const Options& options) {
  auto runs = read_runs(options.data);
  if (!runs) return fail(runs.error());
  const auto gpu = cluster::find_gpu_type(runs->front().gpu);
  if (!gpu)
    return fail(Error(fmt::format("GPU type \"{}\" is not in the catalogue", runs->front().gpu)));
  for (const auto& one : *runs)
    if (one.gpu != runs->front().gpu)
      return fail(Error(
          fmt::format("rows of GPU types \"{}\" and \"{}\" are mixed; one type at a time is fitted",
                      runs->front().gpu, one.gpu)));
  const auto table = read_table(options);
  if (!table) return fail(table.error());
  const predict::MachineModel model(*gpu, *table, options.gpus_per_node);
  const auto accuracy = predict::predict_others(
      *runs,
      options.fit_rows == "first" ? predict::first_rows(*runs) : predict::choose_rows(*runs, model),
      model);
  if (!accuracy) return fail(accuracy.error());
  if (options.json) write_json_line(predict::to_json(*accuracy));
  else print_table(*accuracy);
  return 0;
}

}  // namespace

Action add_predict(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "predict",
      "Fit on one measured run of each model, predict the others, and report the errors");
  sub->add_option("--data", options->data, "CSV files of measured iteration times")->required();
  sub->add_option(
      "--allreduce", options->allreduce,
      fmt::format(
          "Measured times of collectives, for swell topo import (default: {} beside the data)",
          kTableName));
  sub->add_option("--fit-rows", options->fit_rows,
                  "Rows to fit on: of each model the one that tells most, or the first")
      ->check(CLI::IsMember({"one-per-model", "first"}))
      ->capture_default_str();
  sub->add_option("--gpus-per-node", options->gpus_per_node, "GPUs of one node")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_flag("--json", options->json, "One line of JSON, errors as fractions");
  return [options] { return run(*options); };
}

}  // namespace swell::tools
