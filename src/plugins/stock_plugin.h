// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace swell::plugins {

/// A plugin of Slurm's own, loaded; it stays so as long as the process lives.
struct StockPlugin {
  void* library = nullptr;  ///< null: there is none
  std::string path;
  std::string problem;  ///< why there is none
};

/// Loads Slurm's plugin of this file name ("sched_backfill.so") from a folder that this process has
/// loaded something from (PluginDir is among them), else from the plugin folder that configure
/// found. Plugins of that name that are Swell's own, the caller perhaps, are passed over.
StockPlugin load_stock_plugin(const std::string& file);

}  // namespace swell::plugins
