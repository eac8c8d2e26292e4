// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/input_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/socket.h"

namespace swell::control {

namespace {

const char* kind_of(mode_t mode) noexcept {
  switch (mode & S_IFMT) {
    case S_IFIFO: return "a FIFO";
    case S_IFDIR: return "a folder";
    case S_IFSOCK: return "a socket";
    default: return "a device";
  }
}

Result<Descriptor> open_regular(const std::string& path) {
  const auto failed = [&] { return Error(fmt::format("{}: {}", path, std::strerror(errno))); };
  struct stat status {};
  // Opening a device can have an effect by itself: open the path only if it is a file now.
  if (stat(path.c_str(), &status) != 0) return failed();
  const auto other = [&] {
    return Error(fmt::format("{} is {}; a regular file is needed", path, kind_of(status.st_mode)));
  };
  if (!S_ISREG(status.st_mode)) return other();
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file || fstat(file.get(), &status) != 0) return failed();
  if (!S_ISREG(status.st_mode)) return other();
  return file;
}

}  // namespace

std::string model_file_at(const std::string& path) {
  const std::filesystem::path inside = std::filesystem::path(path) / "config.json";
  std::error_code ignored;
  return std::filesystem::is_regular_file(inside, ignored) ? inside.string() : path;
}

Result<void> check_regular(const std::string& path) {
  const auto file = open_regular(path);
  if (!file) return file.error();
  struct stat status {};
  if (fstat(file->get(), &status) == 0 && status.st_size == 0)
    return Error(fmt::format("{}: it is empty", path));
  return {};
}

Result<std::string> read_regular(const std::string& path, std::size_t max_bytes) {
  const auto file = open_regular(path);
  if (!file) return file.error();
  std::string text;
  char part[1 << 16];
  for (;;) {
    const ssize_t got = read(file->get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
    if (got == 0) return text;
    text.append(part, static_cast<std::size_t>(got));
    if (text.size() > max_bytes)
      return Error(
          fmt::format("{} has more than {} bytes; at most so many are read", path, max_bytes));
  }
}

}  // namespace swell::control
