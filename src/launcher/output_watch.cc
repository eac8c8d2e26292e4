// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/output_watch.h"

#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace swell::launcher {

OutputWatch::OutputWatch(const Options& options, const RunNames& names) {
  const auto watch = [&](const std::optional<std::string>& name, int fd) {
    if (!name) return files_.push_back({fd, "", std::nullopt});
    if (auto path = shared_output(*name, names))
      files_.push_back({-1, std::move(*path), std::nullopt});
  };
  watch(options.output, STDOUT_FILENO);
  // srun writes errors to the file of --output, too.
  if (options.error || !options.output) watch(options.error, STDERR_FILENO);
}

bool OutputWatch::has_written() {
  bool has_changed = false;
  for (File& file : files_) {
    struct stat found {};
    const int failed = file.path.empty() ? fstat(file.fd, &found) : stat(file.path.c_str(), &found);
    if (failed != 0 || !S_ISREG(found.st_mode)) continue;
    has_changed = has_changed || (file.size && *file.size != found.st_size);
    file.size = found.st_size;
  }
  return has_changed;
}

}  // namespace swell::launcher
