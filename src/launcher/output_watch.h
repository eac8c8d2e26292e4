// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "launcher/options.h"
#include "launcher/output_names.h"

namespace swell::launcher {

/// Detects whether the steps of a run write anything, by the sizes of the files to which all of
/// them write: those of --output and --error, or those behind swellrun's own streams. Pipes,
/// terminals and files of single workers are not watched.
class OutputWatch {
 public:
  OutputWatch(const Options& options, const RunNames& names);

  /// Returns whether a file's size has changed since the last call.
  bool has_written();

 private:
  struct File {
    int fd = -1;       ///< used where `path` is empty
    std::string path;  ///< empty: `fd`
    std::optional<off_t> size;
  };
  std::vector<File> files_;
};

}  // namespace swell::launcher
