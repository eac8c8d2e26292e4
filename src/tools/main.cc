// SPDX-License-Identifier: GPL-2.0-or-later
// The `swell` command: a table of subcommands, one file each.
#include <config.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <string>
#include <vector>

#include "core/near_name.h"
#include "tools/commands.h"
#include "tools/output.h"

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
    {"profile", swell::tools::add_profile}, {"speeds", swell::tools::add_speeds},
#ifdef SWELL_SIMULATOR
    {"sim", swell::tools::add_sim},
#endif
};

/// Exit status of a wrong command line.
constexpr int kUsage = 2;

using swell::tools::complain;

/// Prints that the command is wrong or missing, and which commands exist.
int name_commands(const char* wrong) {
  std::vector<std::string> names;
  for (const auto& subcommand : kSubcommands) names.emplace_back(subcommand.name);
  if (wrong == nullptr) {
    complain(fmt::format("which command? There are: {}; swell --help", fmt::join(names, ", ")));
    return kUsage;
  }
  const auto meant = swell::near_name(wrong, names);
  complain(fmt::format("there is no command \"{}\"{} There are: {}", wrong,
                       meant ? fmt::format("; did you mean \"{}\"?", *meant) : ".",
                       fmt::join(names, ", ")));
  return kUsage;
}

/// Returns CLI11's sentence for `problem`, and the words that `command` takes, if it takes any.
std::string usage_error(const CLI::App& command, const CLI::ParseError& problem) {
  std::string words, missing;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    std::string name = option->get_type_name();
    name.erase(std::min(name.find(':'), name.size()));  // removes the name of its check
    words += option->get_required() ? " " + name : fmt::format(" [{}]", name);
    if (option->get_expected_max() > 1) words += "...";
    if (option->get_required() && option->count() == 0 && missing.empty()) missing = name;
  }
  const bool lacks_word = problem.get_name() == "RequiredError" && !missing.empty();
  const std::string form =
      words.empty() ? "" : fmt::format("write \"swell {}{}\"; ", command.get_name(), words);
  return fmt::format("{0}: {1}; {2}swell {0} --help lists the options", command.get_name(),
                     lacks_word ? missing + " is missing" : problem.what(), form);
}

bool is_command(const char* word) {
  for (const auto& subcommand : kSubcommands)
    if (std::strcmp(subcommand.name, word) == 0) return true;
  return false;
}

int run(int argc, char** argv) {
  CLI::App app("Elastic training jobs on Slurm", "swell");
  app.set_version_flag("--version", "swell " PACKAGE_VERSION);
  app.require_subcommand(1);
  if (argc < 2) return name_commands(nullptr);
  if (argv[1][0] != '-' && !is_command(argv[1])) return name_commands(argv[1]);
  std::vector<swell::tools::Action> actions;
  for (const auto& subcommand : kSubcommands) actions.push_back(subcommand.add(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() != 0 && app.get_subcommands().size() == 1) {
      complain(usage_error(*app.get_subcommands().front(), problem));
      return kUsage;
    }
    std::ostringstream out, error;
    const int status = app.exit(problem, out, error);
    swell::tools::write_text(out.str());
    swell::tools::write_text(error.str(), stderr);
    return status == 0 ? 0 : kUsage;
  }
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (app.got_subcommand(kSubcommands[i].name)) return actions[i]();
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  swell::tools::hold_standard_files();
  int status = 1;
  try {
    status = run(argc, argv);
  } catch (const std::exception& problem) { swell::tools::complain(problem.what()); }
  return swell::tools::finish_output(status);
}
