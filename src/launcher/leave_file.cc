// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leave_file.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "control/socket.h"

namespace swell::launcher {

namespace {

constexpr std::string_view kPrefix = "swell-leaving-";

/// Removes folders of this user whose process has ended: "swell-leaving-PID-XXXXXX".
void tidy(const std::filesystem::path& where) {
  std::error_code error;
  for (auto each = std::filesystem::directory_iterator(where, error);
       !error && each != std::filesystem::directory_iterator(); each.increment(error)) {
    const std::string name = each->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const auto pid = static_cast<pid_t>(std::strtol(name.c_str() + kPrefix.size(), nullptr, 10));
    struct stat is {};
    if (pid <= 0 || lstat(each->path().c_str(), &is) != 0 || !S_ISDIR(is.st_mode) ||
        is.st_uid != geteuid() || kill(pid, 0) == 0 || errno != ESRCH)
      continue;
    std::error_code busy;
    std::filesystem::remove_all(each->path(), busy);
  }
}

}  // namespace

std::optional<LeaveFile> LeaveFile::make() {
  const char* set = std::getenv("TMPDIR");
  const std::string where = set != nullptr && *set == '/' ? set : "/tmp";
  tidy(where);
  std::string folder = where + "/" + std::string(kPrefix) + std::to_string(getpid()) + "-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return std::nullopt;
  return LeaveFile(std::move(folder));
}

LeaveFile::~LeaveFile() {
  std::error_code gone;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, gone);
}

void LeaveFile::set(int epoch, bool is_to_leave) const {
  if (!is_to_leave) unlink(path(epoch).c_str());
  else const control::Fd file(open(path(epoch).c_str(), O_CREAT | O_CLOEXEC, 0600));
}

}  // namespace swell::launcher
