// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/arena.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace swell::runtime {

namespace {

Error failed(const char* what, std::uint64_t bytes) {
  return Error(fmt::format("{} of {} bytes: {}", what, bytes, std::strerror(errno)));
}

}  // namespace

Result<Arena> Arena::create(std::uint64_t bytes) {
  bytes = Extents::rounded(bytes);
  if (bytes == 0 || bytes > std::uint64_t{1} << 50)
    return Error(fmt::format("an arena of {} bytes; 1 byte to 1 PiB are possible", bytes));
  Descriptor fd(memfd_create("swell-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return failed("making an arena", bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("sealing an arena", bytes);
  return map(std::move(fd), bytes);
}

Result<Arena> Arena::map(Descriptor fd, std::uint64_t bytes) {
  struct stat found {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error("what was passed as an arena is not sealed against shrinking");
  if (fstat(fd.get(), &found) != 0 || static_cast<std::uint64_t>(found.st_size) != bytes)
    return Error(
        fmt::format("an arena of {} bytes was announced; the file has {}", bytes, found.st_size));
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (data == MAP_FAILED) return failed("mapping an arena", bytes);
  return Arena(std::move(fd), static_cast<std::byte*>(data), bytes);
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Arena::release(std::uint64_t offset, std::uint64_t count) const noexcept {
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(Extents::rounded(count)));
}

namespace {

/// Calls madvise() for the whole pages around a range. Systems before Linux 5.14 do not know the
/// advice; there each page is allocated at its first use.
void advise(std::byte* data, std::uint64_t offset, std::uint64_t count, int advice) noexcept {
  const std::uint64_t begin = offset / Extents::kPage * Extents::kPage;
  madvise(data + begin, Extents::rounded(offset + count) - begin, advice);
}
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // <linux/mman.h> of newer systems

}  // namespace

Result<void> Arena::populate(std::uint64_t offset, std::uint64_t count) const {
  if (fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(count)) != 0 &&
      errno != EOPNOTSUPP)
    return failed("taking memory for a part", count);
  advise(data_, offset, count, kPopulateWrite);
  return {};
}

void Arena::look_ahead(std::uint64_t offset, std::uint64_t count) const noexcept {
  advise(data_, offset, count, kPopulateRead);
}

std::uint64_t Arena::used_bytes() const noexcept {
  struct stat found {};
  return fstat(fd_.get(), &found) == 0 ? static_cast<std::uint64_t>(found.st_blocks) * 512 : 0;
}

std::optional<std::uint64_t> Extents::take(std::uint64_t bytes) {
  if (bytes == 0 || bytes > UINT64_MAX - kPage) return std::nullopt;
  bytes = rounded(bytes);
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if (at->second < bytes) continue;
    const auto [offset, length] = *at;
    free_.erase(at);
    if (length > bytes) free_[offset + bytes] = length - bytes;
    taken_ += bytes;
    return offset;
  }
  return std::nullopt;
}

void Extents::give(std::uint64_t offset, std::uint64_t bytes) {
  bytes = rounded(bytes);
  taken_ -= bytes;
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin())
    if (auto before = std::prev(after); before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  free_[offset] = bytes;
}

}  // namespace swell::runtime
