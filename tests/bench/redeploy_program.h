// SPDX-License-Identifier: GPL-2.0-or-later
// The program that redeploy stops and continues elsewhere: a process of a few layers whose state
// can be checked. It resumes from files or takes part in a live switch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace bench {

inline constexpr int kLayers = 6;
/// Layers of each rank, before the switch and after it.
inline const std::vector<std::vector<int>> kOld = {{0, 1, 2}, {3, 4, 5}},
                                           kNew = {{0, 1}, {3, 4}, {2, 5}};

/// How the state moves from the old programs to the new ones.
enum class Way { disk, restart, copies, arenas, gpu };

/// Times reported by a program, in a page that both processes map.
struct Clock {
  std::atomic<std::int64_t> first_ns, last_ns, steps;
};

/// Returns CLOCK_MONOTONIC.
std::int64_t now_ns();

/// Prints the reason on stderr, and exits with 1.
[[noreturn]] void die(const std::string& what);

/// Maps the start of a file for reading and writing; calls die() if it cannot.
template <typename T>
T* map_shared(int fd, std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) die("mmap");
  return static_cast<T*>(at);
}

/// Trains the layers `layers` of `bytes` each until SIGUSR1 or the runtime stops it, and writes its
/// times into the Clock of `clock_fd`. State that does not move live is saved in `folder`. Returns
/// the exit status.
int program(Way way, std::size_t bytes, const std::string& folder, int clock_fd,
            const std::vector<int>& layers);

/// Runs a worker under swellrun: the number of workers determines its layers.
int worker(std::size_t bytes, const std::string& folder);

/// Prints the pause between the two generations of such workers. Returns 1 if the second has not
/// begun to train.
int print_pause(const std::string& folder);

}  // namespace bench
