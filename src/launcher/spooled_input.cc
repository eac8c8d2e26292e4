// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/spooled_input.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace swell::launcher {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWriters_s = 2;  // most pipes' writers end within this time, or never
constexpr double kFile_s = 60;
constexpr const char* kMayBeProgram =
    "its program may be read from standard input, which cannot be read again: write it to a file, "
    "or swellrun --input=none";

bool write_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(fd, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

/// Returns whether all writers of a pipe have ended: then no more data comes.
bool writers_end(int fd, double within_s) {
  const auto until = Clock::now() + std::chrono::duration<double>(within_s);
  for (;;) {
    pollfd polled{fd, 0, 0};  // POLLHUP comes without being asked for
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = poll(&polled, 1, static_cast<int>(std::max<std::int64_t>(0, left)));
    if (ready > 0) return (polled.revents & POLLHUP) != 0;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

}  // namespace

Result<SpooledInput> SpooledInput::read_from(int fd, double timeout_s) {
  Descriptor memory(memfd_create("standard input", MFD_CLOEXEC));
  if (!memory) return Error(fmt::format("no memory for standard input: {}", std::strerror(errno)));
  const auto until = Clock::now() + std::chrono::duration<double>(timeout_s);
  std::size_t total = 0;
  char bytes[65536];
  for (;;) {
    pollfd polled{fd, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = poll(&polled, 1, static_cast<int>(std::max<std::int64_t>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error("standard input has no end");
    const ssize_t count = ::read(fd, bytes, sizeof bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return Error(fmt::format("standard input: {}", std::strerror(errno)));
    if (count == 0) return SpooledInput(std::move(memory));
    total += static_cast<std::size_t>(count);
    if (total > kMaxBytes)
      return Error(fmt::format("standard input has more than {} MiB", kMaxBytes >> 20));
    if (!write_all(memory.get(), bytes, static_cast<std::size_t>(count)))
      return Error(fmt::format("standard input: {}", std::strerror(errno)));
  }
}

Descriptor SpooledInput::open() const {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", memory_.get());
  return Descriptor(::open(path, O_RDONLY | O_CLOEXEC));
}

void SpooledInput::become_standard_input() const {
  const Descriptor own = open();
  if (own) {
    dup2(own.get(), STDIN_FILENO);
    return;
  }
  lseek(memory_.get(), 0, SEEK_SET);  // without /proc
  dup2(memory_.get(), STDIN_FILENO);
}

InputPlan plan_input(const std::optional<std::string>& option, int standard_input) {
  if (option == "none") return {};
  Descriptor file;
  int fd = standard_input;
  if (option && *option != "all") {
    // srun replaces %t and so on in names, and knows tasks by number.
    if (is_number(*option) || option->find('%') != option->npos) return {{}, kMayBeProgram};
    struct stat named {};
    if (stat(option->c_str(), &named) != 0) return {};  // srun reports it
    // What a FIFO's writer sends to this process, srun would miss.
    if (S_ISFIFO(named.st_mode)) return {{}, kMayBeProgram};
    file = Descriptor(::open(option->c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) return {};
    fd = file.get();
  }
  struct stat is {};
  if (fstat(fd, &is) != 0 || S_ISCHR(is.st_mode)) return {};
  const bool is_file = S_ISREG(is.st_mode);
  if (!is_file && !(S_ISFIFO(is.st_mode) && writers_end(fd, kWriters_s)))
    return {{}, kMayBeProgram};
  const off_t at = is_file ? lseek(fd, 0, SEEK_CUR) : 0;
  if (is_file && is.st_size - at > static_cast<off_t>(SpooledInput::kMaxBytes))
    return {{}, kMayBeProgram};
  auto spooled = SpooledInput::read_from(fd, kFile_s);
  if (spooled) return {std::move(*spooled), ""};
  if (is_file) lseek(fd, at, SEEK_SET);  // srun reads all of it
  return {{}, fmt::format("{}: {}", spooled.error().message(), kMayBeProgram)};
}

}  // namespace swell::launcher
