// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/// The memory of a stand-in's GPUs, which all processes share that name the same file. Memory
/// counts while any of them has it open or mapped, so that memory of a killed process is free at
/// once, and what a shim keeps by its descriptor is not.
namespace stand_in {

class Gpus {
 public:
  static constexpr int kMost = 16;  ///< GPUs of a machine

  /// Makes the file. context_bytes: what the context of each process takes of its GPU.
  static void make(const std::string& file, std::uint64_t bytes, std::uint64_t context_bytes = 0) {
    const Contents contents{bytes, context_bytes, {}};
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(&contents), sizeof contents);
  }

  explicit Gpus(const std::string& file) : fd_(open(file.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0 || pread(fd_, &contents_, sizeof contents_, 0) != sizeof contents_) std::abort();
  }
  ~Gpus() { close(fd_); }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  std::uint64_t bytes() const { return contents_.bytes; }
  std::uint64_t context_bytes() const { return contents_.context_bytes; }
  /// The most that was ever taken of a GPU at one time.
  std::uint64_t most(int gpu) const { return contents_.most.at(static_cast<std::size_t>(gpu)); }

  /// Returns the bytes of a GPU that are taken now.
  std::uint64_t taken(int gpu) const {
    const std::string name = "/memfd:" + name_of(gpu) + " ";
    std::map<std::uint64_t, std::uint64_t> files;  // by inode
    std::error_code ended;
    for (const auto& process : std::filesystem::directory_iterator("/proc", ended)) {
      const std::string folder = process.path();
      if (folder.find_first_not_of("0123456789", 6) != std::string::npos) continue;
      std::ifstream maps(folder + "/maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.find(name) == std::string::npos) continue;
        char* rest = nullptr;
        const std::uint64_t begin = std::strtoull(line.c_str(), &rest, 16),
                            end = std::strtoull(rest + 1, &rest, 16);
        std::string words = rest;  // " MODE OFFSET DEVICE INODE NAME"
        for (int i = 0; i < 3; ++i) words = words.substr(words.find(' ', 1));
        std::uint64_t& size = files[std::strtoull(words.c_str(), nullptr, 10)];
        size = std::max(size, end - begin);
      }
      for (const auto& each : std::filesystem::directory_iterator(folder + "/fd", ended)) {
        const std::string target = std::filesystem::read_symlink(each.path(), ended).string() + " ";
        struct stat found {};
        if (target.starts_with(name) && stat(each.path().c_str(), &found) == 0)
          files[found.st_ino] = static_cast<std::uint64_t>(found.st_size);
      }
    }
    std::uint64_t sum = 0;
    for (const auto& [inode, size] : files) sum += size;
    return sum;
  }

  /// A file for so many bytes of a GPU; -1: it has not as much left. One process after the other.
  int take(int gpu, std::uint64_t bytes) {
    flock(fd_, LOCK_EX);
    int made = -1;
    if (const std::uint64_t sum = taken(gpu) + bytes; sum <= contents_.bytes) {
      made = memfd_create(name_of(gpu).c_str(), MFD_CLOEXEC);
      if (made < 0 || ftruncate(made, static_cast<off_t>(bytes)) != 0) std::abort();
      std::uint64_t most = 0;
      const off_t at = static_cast<off_t>(offsetof(Contents, most)) +
                       static_cast<off_t>(sizeof most) * static_cast<off_t>(gpu);
      if (pread(fd_, &most, sizeof most, at) == sizeof most && sum > most &&
          pwrite(fd_, &sum, sizeof sum, at) != sizeof sum)
        std::abort();
    }
    flock(fd_, LOCK_UN);
    return made;
  }

 private:
  struct Contents {
    std::uint64_t bytes, context_bytes;
    std::array<std::uint64_t, kMost> most;
  };
  std::string name_of(int gpu) const {
    struct stat found {};
    fstat(fd_, &found);
    return "stand-in-gpu-" + std::to_string(gpu) + "-of-" + std::to_string(found.st_ino);
  }
  const int fd_;
  Contents contents_{};
};

}  // namespace stand_in
