// SPDX-License-Identifier: GPL-2.0-or-later
// The `swell` command: a table of subcommands, one file each.
#include <config.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "tools/commands.h"

namespace {

constexpr struct {
  const char* name;
  swell::tools::Action (*add)(CLI::App&);
} kSubcommands[] = {
    {"doctor", swell::tools::add_doctor},   {"drain", swell::tools::add_drain},
    {"jobs", swell::tools::add_jobs},       {"plan", swell::tools::add_plan},
    {"predict", swell::tools::add_predict}, {"topo", swell::tools::add_topo},
    {"why", swell::tools::add_why},         {"pause", swell::tools::add_pause},
    {"resume", swell::tools::add_resume},   {"max", swell::tools::add_max},
    {"replan", swell::tools::add_replan},   {"history", swell::tools::add_history},
    {"top", swell::tools::add_top},         {"exporter", swell::tools::add_exporter},
#ifdef SWELL_SIMULATOR
    {"sim", swell::tools::add_sim},
#endif
};

/// Exit status of a wrong command line.
constexpr int kUsage = 2;

int run(int argc, char** argv) {
  CLI::App app("Elastic training jobs on Slurm", "swell");
  app.set_version_flag("--version", "swell " PACKAGE_VERSION);
  app.require_subcommand(1);
  std::vector<swell::tools::Action> actions;
  for (const auto& subcommand : kSubcommands) actions.push_back(subcommand.add(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) { return app.exit(problem) == 0 ? 0 : kUsage; }
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (app.got_subcommand(kSubcommands[i].name)) return actions[i]();
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "swell: %s\n", problem.what());
    return 1;
  }
}
