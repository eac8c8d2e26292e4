// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/files.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/no_signals.h"
#include "control/input_file.h"
#include "control/write_all.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

using control::write_all;

mode_t mask() {
  const mode_t now = umask(0);
  umask(now);
  return now;
}

/// Part of a new file's name, after the name of the file that it replaces and before the six
/// letters of mkostemp().
constexpr const char* kFreshMark = ".swell-new-";
constexpr std::size_t kFreshLetters = 6;

/// Attempts to lock a new file before one without lock is used: some file systems count no links.
constexpr int kTries = 3;

/// Maximum number of leftovers to look at, since other users may have planted any number.
constexpr int kMaxLooks = 64;

/// Time for which a FIFO's reader is waited for.
constexpr auto kReaderTime = std::chrono::seconds(2);

/// Makes a new file beside `path`, and sets `name` to its name. Its lock shows that its writer
/// lives. Returns -1 and sets errno if it cannot be made.
int open_fresh(const std::string& path, std::string& name) {
  for (int left = kTries;; --left) {
    name = path + kFreshMark + std::string(kFreshLetters, 'X');
    const int file = mkostemp(name.data(), O_CLOEXEC);
    struct stat status {};
    // Before the file is locked, another writer may take it for a leftover and remove it: then
    // tries again.
    if (file < 0 || flock(file, LOCK_EX) != 0 || fstat(file, &status) != 0 || status.st_nlink > 0 ||
        left == 1)
      return file;
    close(file);
  }
}

/// Removes a regular file of this user, or of the owner of `like`, whose writer has ended; a link
/// is never followed.
void remove_dead(const std::string& name, const struct stat* like) {
  const auto is_own = [&](const struct stat& status) {
    return S_ISREG(status.st_mode) && status.st_nlink == 1 &&
           (status.st_uid == geteuid() || (like != nullptr && status.st_uid == like->st_uid));
  };
  struct stat status {};
  if (lstat(name.c_str(), &status) != 0 || !is_own(status)) return;
  const int file = open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  if (fstat(file, &status) == 0 && is_own(status) && flock(file, LOCK_EX | LOCK_NB) == 0)
    unlink(name.c_str());
  close(file);
}

/// Removes files of writers that were killed before they could replace `path`.
void remove_leftovers(const std::string& path, const struct stat* like) {
  const std::filesystem::path whole(path);
  const std::string begin = whole.filename().string() + kFreshMark;
  const std::filesystem::path folder = whole.has_parent_path() ? whole.parent_path() : ".";
  std::error_code problem;
  std::filesystem::directory_iterator each(folder, problem);
  int looks = 0;
  for (; !problem && each != std::filesystem::directory_iterator() && looks < kMaxLooks;
       each.increment(problem)) {
    const std::string name = each->path().filename().string();
    if (name.size() != begin.size() + kFreshLetters || !name.starts_with(begin)) continue;
    remove_dead(each->path().string(), like);
    ++looks;
  }
}

bool is_fifo(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  if (path != "-") return control::read_regular(path);
  std::string text;
  char part[1 << 16];
  while (const std::size_t got = std::fread(part, 1, sizeof part, stdin)) {
    text.append(part, got);
    if (text.size() > control::kMaxInput)
      return Error(fmt::format("standard input has more than {} bytes; no more are read",
                               control::kMaxInput));
  }
  if (std::ferror(stdin) != 0) return Error("standard input cannot be read");
  return text;
}

Result<Json> read_json(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.error();
  auto json = Json::parse(*text);
  if (!json) return json.error().while_doing(path);
  return json;
}

bool is_file(const std::string& name) {
  std::error_code ignored;
  return name == "-" || std::filesystem::exists(name, ignored);
}

Result<void> write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    write_text(text);
    return {};
  }
  // Opening a FIFO that nobody reads would block, maybe for ever.
  const auto try_open = [&] {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
  };
  const auto until = std::chrono::steady_clock::now() + kReaderTime;
  int file = try_open();
  while (file < 0 && errno == ENXIO && is_fifo(path) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    file = try_open();
  }
  if (file < 0) {
    const int why = errno;
    return Error(fmt::format("{}: {}", path,
                             why == ENXIO && is_fifo(path)
                                 ? "nobody reads this FIFO; start its reader first"
                                 : std::strerror(why)));
  }
  fcntl(file, F_SETFL, 0);
  const bool good = write_all(file, text);
  const int why = errno;
  if (close(file) == 0 && good) return {};
  return Error(fmt::format("{}: {}", path, std::strerror(good ? errno : why)));
}

Result<void> replace_file(const std::string& path, const std::string& text,
                          const struct stat* like) {
  const NoSignals whole;
  remove_leftovers(path, like);
  std::string fresh;
  const int file = open_fresh(path, fresh);
  if (file < 0) return Error(fmt::format("a new file beside {}: {}", path, std::strerror(errno)));
  const mode_t mode = like != nullptr ? like->st_mode & 07777 : 0666 & ~mask();
  bool good = write_all(file, text) &&
              (like == nullptr || fchown(file, like->st_uid, like->st_gid) == 0) &&
              fchmod(file, mode) == 0;
  int why = errno;
  const int lock = fcntl(file, F_DUPFD_CLOEXEC, 0);  // keeps the lock until the file is in place
  // A file server may report only at close() that the data could not be written.
  if (close(file) != 0) {
    good = false;
    why = errno;
  }
  if (good && rename(fresh.c_str(), path.c_str()) != 0) {
    good = false;
    why = errno;
  }
  if (!good) unlink(fresh.c_str());
  if (lock >= 0) close(lock);
  if (good) return {};
  return Error(fmt::format("{}: {}", path, std::strerror(why)));
}

}  // namespace swell::tools
