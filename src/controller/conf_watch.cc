// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/conf_watch.h"

#include <sys/stat.h>
#include <utility>

namespace swell::controller {

ConfWatch::ConfWatch(std::string path) : path_(std::move(path)), last_(look()) {}

ConfWatch::Mark ConfWatch::look() const {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

std::optional<Result<Config>> ConfWatch::changed() {
  const Mark now = look();
  if (now == last_) return std::nullopt;
  last_ = now;
  return load_config(path_);
}

}  // namespace swell::controller
