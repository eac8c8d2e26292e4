// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace swell::plugins {

/// A plugin of Slurm that was loaded; it stays loaded while the process lives.
struct StockPlugin {
  void* library = nullptr;  ///< null: not loaded
  std::string path;
  std::string problem;  ///< why it is not loaded
};

/// Loads Slurm's plugin of this file name ("sched_backfill.so") from a folder from which this
/// process has loaded something (PluginDir is among them), otherwise from the plugin folder that
/// configure found. Skips plugins of that name that belong to Swell, such as the caller.
StockPlugin load_stock_plugin(const std::string& file);

}  // namespace swell::plugins
