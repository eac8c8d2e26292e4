// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace swell::tools {

/// Action of a subcommand, run once its options are read; returns the program's exit status.
using Action = std::function<int()>;

/// Refuses numbers that are not above 0. CLI::PositiveNumber's message shows the largest double.
inline CLI::Validator above_zero() {
  return {[](const std::string& text) {
            double value = 0;
            const bool is_above = CLI::detail::lexical_cast(text, value) && value > 0;
            return is_above ? std::string() : text + " is not above 0; give a number above 0";
          },
          "above 0", "above 0"};
}

/// Functions that each add one subcommand to the `swell` program; each has a file of its own.
Action add_doctor(CLI::App& app);
Action add_drain(CLI::App& app);
Action add_exporter(CLI::App& app);
Action add_history(CLI::App& app);
Action add_jobs(CLI::App& app);
Action add_max(CLI::App& app);
Action add_pause(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_predict(CLI::App& app);
Action add_profile(CLI::App& app);
Action add_replan(CLI::App& app);
Action add_resume(CLI::App& app);
Action add_top(CLI::App& app);
Action add_topo(CLI::App& app);
Action add_why(CLI::App& app);
Action add_speeds(CLI::App& app);
Action add_sim(CLI::App& app);

}  // namespace swell::tools
