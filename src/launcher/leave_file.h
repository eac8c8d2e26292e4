// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/result.h"

namespace swell::launcher {

/// Tells programs and the scripts around them that they were asked to leave: from then on the file
/// of their generation (SWELL_LEAVING_FILE) exists. Its folder has mode 0700 and is removed by the
/// destructor.
class LeaveFile {
 public:
  /// See make_own_folder(). The error says why it cannot be made.
  static Result<LeaveFile> make();
  LeaveFile(LeaveFile&& other) noexcept : folder_(std::move(other.folder_)) {
    other.folder_.clear();
  }
  LeaveFile& operator=(LeaveFile&&) = delete;
  ~LeaveFile();

  std::string path(int generation) const { return folder_ + "/" + std::to_string(generation); }
  void set(int generation, bool is_to_leave) const;

 private:
  explicit LeaveFile(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace swell::launcher
