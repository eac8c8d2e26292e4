// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/own_folder.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "core/number.h"

namespace swell::launcher {

namespace {

namespace fs = std::filesystem;

/// Returns the prefix of the folders whose pids are of this node and PID namespace, since other
/// nodes may have the same TMPDIR.
std::string prefix_of(std::string_view kind) {
  struct stat pids {};
  stat("/proc/self/ns/pid", &pids);
  const std::size_t place = std::hash<std::string>()(fmt::format("{}/{}", boot_id(), pids.st_ino));
  return fmt::format("swell-{}-{}-{:08x}-", kind, geteuid(), place & 0xffffffff);
}

/// Returns TMPDIR if a folder with this prefix can be made in it, and the path of a socket `below`
/// bytes below that folder is not too long.
std::optional<std::string> usable_tmpdir(const std::string& prefix, std::size_t below) {
  constexpr std::size_t kMaxPath = 107, kMaxPid = 10;  // bytes of a socket's path, and of a pid
  const char* set = std::getenv("TMPDIR");
  if (set == nullptr || *set != '/' || access(set, W_OK | X_OK) != 0) return std::nullopt;
  const std::size_t size =
      std::strlen(set) + prefix.size() + kMaxPid + std::strlen("/-XXXXXX") + below;
  if (below != kAnyLength && size > kMaxPath) return std::nullopt;
  return set;
}

/// Removes this user's folders whose process is gone: "swell-KIND-UID-PLACE-PID-RANDOM".
void remove_leftovers(const std::string& folder, const std::string& prefix) {
  std::error_code ignored;
  for (auto each = fs::directory_iterator(folder, ignored);
       !ignored && each != fs::directory_iterator(); each.increment(ignored)) {
    const std::string name = each->path().filename();
    struct stat found {};
    if (!name.starts_with(prefix) || lstat(each->path().c_str(), &found) != 0 ||
        !S_ISDIR(found.st_mode) || found.st_uid != geteuid())
      continue;
    const std::string rest = name.substr(prefix.size());
    const auto pid = read_number<int>(rest.substr(0, rest.find('-')));
    std::error_code kept;
    if (pid && *pid > 0 && kill(*pid, 0) != 0 && errno == ESRCH) fs::remove_all(each->path(), kept);
  }
}

Result<std::string> make_in(const std::string& base, const std::string& prefix) {
  remove_leftovers(base, prefix);
  std::string folder = fmt::format("{}/{}{}-XXXXXX", base, prefix, getpid());
  if (mkdtemp(folder.data()) == nullptr)
    return Error(fmt::format("{}: {}", folder, std::strerror(errno)));
  return folder;
}

}  // namespace

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot;
}

Result<std::string> make_own_folder(std::string_view kind, const std::string& base,
                                    std::size_t below) {
  const std::string prefix = prefix_of(kind);
  if (!base.empty()) return make_in(base, prefix);
  if (const auto tmpdir = usable_tmpdir(prefix, below))
    if (auto made = make_in(*tmpdir, prefix)) return made;
  return make_in("/tmp", prefix);
}

}  // namespace swell::launcher
