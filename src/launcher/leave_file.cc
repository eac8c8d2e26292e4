// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leave_file.h"

#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "control/socket.h"
#include "launcher/own_folder.h"

namespace swell::launcher {

Result<LeaveFile> LeaveFile::make() {
  auto folder = make_own_folder("leaving");
  if (!folder) return folder.error();
  return LeaveFile(std::move(*folder));
}

LeaveFile::~LeaveFile() {
  std::error_code gone;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, gone);
}

void LeaveFile::set(int generation, bool is_to_leave) const {
  if (!is_to_leave) unlink(path(generation).c_str());
  else const Descriptor file(open(path(generation).c_str(), O_CREAT | O_CLOEXEC, 0600));
}

}  // namespace swell::launcher
