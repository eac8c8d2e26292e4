// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <sys/types.h>

#include "controller/config.h"

namespace swell::controller {

/// Notices that swell.conf has changed since it was read, so that lending can be drained without a
/// restart. One thread.
class ConfWatch {
 public:
  /// `path` is looked at now; what it says now counts as known.
  explicit ConfWatch(std::string path);

  /// Reads the file again where it is another than at the last call; costs one stat() where it is
  /// not.
  /// @return nothing: as before; else the file as it is now, or why it cannot be used.
  std::optional<Result<Config>> changed();

 private:
  struct Mark {
    ino_t inode = 0;
    off_t size = 0;
    std::time_t second = 0;
    long nanosecond = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  Mark look() const;

  std::string path_;
  Mark last_;
};

}  // namespace swell::controller
