// SPDX-License-Identifier: GPL-2.0-or-later
// swell topo import: reads measured times of collectives and writes a communication table.
#include "tools/topo_import.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "tools/files.h"
#include "tools/output.h"
#include "tools/predict/collectives_csv.h"

namespace swell::tools {

namespace {

struct Options {
  std::string file, net, output = "swell_collectives.json";
};

int run(const Options& options) {
  const auto text = read_file(options.file);
  if (!text) return fail(text.error());
  const auto table = predict::collective_table(*text, options.net);
  if (!table) return fail(table.error().while_doing(options.file));
  if (auto written = write_file(options.output, ascii_text(table->to_json()) + "\n"); !written)
    return fail(written.error());
  if (options.output == "-") return 0;
  struct Summary {
    int series = 0;
    double least = 0, most = 0;
  };
  std::map<std::pair<std::string, cluster::Collective>, Summary> summaries;
  for (const cluster::CollectiveSeries& each : table->series()) {
    Summary& summary = summaries[{each.type, each.what}];
    const double least = each.sizes.front().bytes;
    summary.least = summary.series == 0 ? least : std::min(summary.least, least);
    summary.most = std::max(summary.most, each.sizes.back().bytes);
    ++summary.series;
  }
  for (const auto& [key, summary] : summaries)
    say("{}: {} of {} shapes, {:.0f} to {:.0f} bytes\n", key.first, cluster::to_string(key.second),
        summary.series, summary.least, summary.most);
  say("written to {}\n", options.output);
  return 0;
}

}  // namespace

Action add_topo_import(CLI::App& topo) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      topo.add_subcommand("import", "Make a communication table of measured times of collectives");
  command->add_option("FILE", options->file, "CSV, or a table that this command wrote")->required();
  command
      ->add_option("--net", options->net,
                   "The network, of GPU types that were measured over several")
      ->type_name("NAME");
  command->add_option("-o,--output", options->output, "The file to write; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  return [options] { return run(*options); };
}

}  // namespace swell::tools
