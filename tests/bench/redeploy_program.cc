// SPDX-License-Identifier: GPL-2.0-or-later
#include "redeploy_program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/api/swell.h"

namespace bench {

namespace {

namespace fs = std::filesystem;

constexpr long kStep_ns = 5000000;  // computation of a step

volatile std::sig_atomic_t asked_to_leave = 0;

double value(int layer, std::size_t element) { return layer + 1e-9 * static_cast<double>(element); }

/// Reads or writes a whole file.
void transfer(const std::string& path, double* memory, std::size_t bytes, bool is_write, Way way) {
  const int fd = open(path.c_str(), is_write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0600);
  if (fd < 0) die(path);
  for (std::size_t done = 0; done < bytes;) {
    char* at = reinterpret_cast<char*>(memory) + done;
    const ssize_t count = is_write ? write(fd, at, bytes - done) : read(fd, at, bytes - done);
    if (count <= 0) die(path);
    done += static_cast<std::size_t>(count);
  }
  if (is_write && way == Way::disk && fsync(fd) != 0) die(path);
  close(fd);
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "redeploy: %s\n", what.c_str());
  std::exit(1);
}

int program(Way way, std::size_t bytes, const std::string& folder, int clock_fd,
            const std::vector<int>& layers) {
  signal(SIGUSR1, [](int) { asked_to_leave = 1; });
  auto* clock = map_shared<Clock>(clock_fd, sizeof(Clock));
  const bool is_live = way == Way::copies || way == Way::arenas || way == Way::gpu;
  const bool is_swells = way == Way::arenas || way == Way::gpu;
  const std::size_t elements = bytes / sizeof(double);
  swell_session_t* session = nullptr;
  if (swell_open(nullptr, &session) != 0) die(swell_last_error(nullptr));
  std::vector<double*> memory(kLayers, nullptr);
  const auto name_of = [](int layer) { return "layer" + std::to_string(layer); };
  for (const int layer : layers) {
    if (!is_swells) {
      void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) die("memory");
      memory[static_cast<std::size_t>(layer)] = static_cast<double*>(at);
    }
    if (!is_live) continue;
    const std::string name = name_of(layer);
    swell_tensor_t tensor{};
    tensor.field_mask = SWELL_TENSOR_LAYER | (way == Way::copies ? SWELL_TENSOR_ADDRESS : 0) |
                        (way == Way::gpu ? SWELL_TENSOR_DEVICE : 0);
    tensor.name = name.c_str();
    tensor.dtype = SWELL_F64;
    tensor.dims = 1;
    tensor.shape[0] = static_cast<std::int64_t>(elements);
    tensor.layer = layer;
    tensor.address = memory[static_cast<std::size_t>(layer)];
    if (swell_register(session, &tensor) != 0) die(swell_last_error(session));
  }
  swell_generation_t generation{};
  if (is_live && swell_adopt(session, &generation) != 0) die(swell_last_error(session));
  bool is_new =
      is_live ? generation.fresh != 0 : !fs::exists(folder + "/" + name_of(layers.front()));
  for (const int layer : layers) {
    double*& at = memory[static_cast<std::size_t>(layer)];
    if (is_swells) {
      void* its = nullptr;
      if (swell_address(session, name_of(layer).c_str(), 0, &its, nullptr) != 0) die("address");
      at = static_cast<double*>(its);
    }
    if (is_new)
      for (std::size_t i = 0; i < elements; ++i) at[i] = value(layer, i);
    else if (!is_live) transfer(folder + "/" + name_of(layer), at, bytes, false, way);
  }
  for (std::uint64_t step = generation.step + 1;; ++step) {
    const timespec pace{0, kStep_ns};
    nanosleep(&pace, nullptr);
    const std::int64_t now = now_ns();
    if (clock->steps == 0) clock->first_ns = now;
    clock->last_ns = now;
    ++clock->steps;
    // After the clock was read: check one value in each page.
    if (clock->steps == 1 && !is_new)
      for (const int layer : layers)
        for (std::size_t i = 0; i < elements; i += 509)
          if (memory[static_cast<std::size_t>(layer)][i] != value(layer, i)) die("wrong state");
    if (asked_to_leave != 0) {
      for (const int layer : layers)
        transfer(folder + "/" + name_of(layer), memory[static_cast<std::size_t>(layer)], bytes,
                 true, way);
      return 0;
    }
    if (!is_live) continue;
    const int action = swell_step(session, step);
    if (action < 0) die(swell_last_error(session));
    if (action != 0) return 0;
  }
}

int worker(std::size_t bytes, const std::string& folder) {
  const char *rank = std::getenv("RANK"), *world = std::getenv("WORLD_SIZE"),
             *generation = std::getenv("SWELL_GENERATION");
  if (rank == nullptr || world == nullptr || generation == nullptr)
    die("it is started by swellrun");
  const auto& layers = std::atoi(world) == static_cast<int>(kOld.size()) ? kOld : kNew;
  const std::string clock = fmt::format("{}/clock.{}.{}", folder, generation, rank);
  const int fd = open(clock.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Clock)) != 0) die(clock);
  return program(Way::restart, bytes, folder, fd,
                 layers.at(static_cast<std::size_t>(std::atoi(rank))));
}

int print_pause(const std::string& folder) {
  const auto clock_of = [&](int generation, std::size_t rank) -> const Clock* {
    const int fd = open(fmt::format("{}/clock.{}.{}", folder, generation, rank).c_str(), O_RDWR);
    return fd >= 0 ? map_shared<Clock>(fd, sizeof(Clock)) : nullptr;
  };
  std::int64_t last = INT64_MAX, first = 0;
  for (std::size_t rank = 0; rank < kNew.size(); ++rank) {
    const Clock* clock = clock_of(1, rank);
    if (clock == nullptr || clock->steps < 2) return 1;
    first = std::max<std::int64_t>(first, clock->first_ns);
  }
  for (std::size_t rank = 0; rank < kOld.size(); ++rank)
    last = std::min<std::int64_t>(last, clock_of(0, rank)->last_ns);
  std::printf("%.4f\n", static_cast<double>(first - last) / 1e9);
  return 0;
}

}  // namespace bench
