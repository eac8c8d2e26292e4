// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes between a GPU and the host by way of the program that has it: in large pieces, two at a
// time.
#include "runtime/device_hand.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "runtime/device_state.h"
#include "runtime/messages.h"

using namespace swell;
using namespace swell::runtime;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kStaging = kMiB;

/// A count of the stand-in's for this process.
std::uint64_t count_of(const char* what) {
  void* const library = dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<unsigned long long (*)()>(dlsym(library, what))();
}

/// Waits until the driver has copied that many bytes; false: 10 s have passed.
bool copies(std::uint64_t bytes) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (count_of("stand_in_copied") < bytes) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A program with a slab, number 1, which serves in a thread; and its shim's hand.
class Program {
 public:
  explicit Program(std::uint64_t slab_bytes) {
    int ends[2] = {};
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    shim_ = Channel(Descriptor(ends[0]));
    channel_ = Channel(Descriptor(ends[1]));
    state_->stage_in({arena_->data() + kStaging, DeviceHand::kStaging});
    thread_ = std::thread([this] {
      while (const auto message = channel_.receive()) {
        ++tasks_;
        if (!state_->serve(channel_, *message, *arena_)) break;
      }
    });
    hand.open(true);
    cr_assert(hand.create(1, slab_bytes).ok());
    tasks_ = 0;
  }
  ~Program() {
    shim_.shut();
    thread_.join();
  }
  int tasks() const { return tasks_; }

 private:
  std::shared_ptr<const Arena> arena_ =
      std::make_shared<const Arena>(Arena::create(kStaging + DeviceHand::kStaging).value());
  std::unique_ptr<DeviceState> state_ = DeviceState::open(0, SWELL_STAND_IN_CUDA).value();
  Channel shim_, channel_;
  std::thread thread_;
  std::atomic<int> tasks_ = 0;

 public:
  DeviceHand hand{shim_, arena_, kStaging, "GPU-0", 2 * kMiB};
};

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  return bytes;
}

/// Copies `bytes`, piece by piece, in and out.
struct Values {
  std::vector<std::byte> bytes;
  std::size_t at = 0;
  std::vector<std::size_t> pieces = {};
  Result<void> give(std::span<std::byte> piece) {
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.size(), piece.begin());
    at += piece.size();
    pieces.push_back(piece.size());
    return {};
  }
  Result<void> take(std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    pieces.push_back(piece.size());
    return {};
  }
};

}  // namespace

Test(device_hand, the_next_piece_is_copied_while_one_is_used) {
  constexpr std::uint64_t kCount = 2 * DeviceHand::kBuffer + kMiB;
  Program program(kCount + kMiB);
  Values in{random_bytes(kCount)}, out;
  const Run run{0, DevicePlace::of(1, 0), kCount};
  cr_assert(program.hand
                .write({&run, 1},
                       [&](std::span<std::byte> piece) {
                         cr_assert(copies(in.at), "the piece before is copied meanwhile");
                         return in.give(piece);
                       })
                .ok());
  cr_assert_eq(count_of("stand_in_copied"), kCount);
  cr_assert(program.hand
                .read({&run, 1},
                      [&](std::span<const std::byte> piece) {
                        const std::uint64_t next = out.bytes.size() + piece.size();
                        cr_assert(copies(kCount + std::min(next + 1, kCount)),
                                  "so is the next one");
                        return out.take(piece);
                      })
                .ok());
  cr_assert(out.bytes == in.bytes);
  const std::vector<std::size_t> pieces{DeviceHand::kBuffer, DeviceHand::kBuffer, kMiB};
  cr_assert(in.pieces == pieces && out.pieces == pieces);
  cr_assert_eq(program.tasks(), 6);
  cr_assert_eq(count_of("stand_in_copied_staged"), 0, "the buffers are registered");
}

Test(device_hand, many_small_runs_are_one_task) {
  Program program(4 * kMiB);
  // Columns of a matrix: 64 of 1,024 bytes of each row.
  std::vector<Run> runs;
  for (std::uint64_t row = 0; row < 4096; ++row)
    runs.push_back({0, DevicePlace::of(1, row * 1024 + 128), 64});
  Values in{random_bytes(4096 * 64)}, out;
  cr_assert(
      program.hand.write(runs, [&](std::span<std::byte> piece) { return in.give(piece); }).ok());
  const auto take = [&](std::span<const std::byte> piece) { return out.take(piece); };
  cr_assert(program.hand.read(runs, take).ok());
  cr_assert(out.bytes == in.bytes);
  cr_assert_eq(program.tasks(), 2);
  // Each is where it belongs, and nothing is beside it.
  out = {};
  const Run row{0, DevicePlace::of(1, 5 * 1024), 1024};
  cr_assert(program.hand.read({&row, 1}, take).ok());
  for (std::size_t i = 0; i < 1024; ++i)
    cr_assert_eq(out.bytes[i], i >= 128 && i < 192 ? in.bytes[5 * 64 + i - 128] : std::byte{0});
}

Test(device_hand, an_error_on_either_side_ends_it) {
  Program program(3 * DeviceHand::kBuffer);
  const Run inside{0, DevicePlace::of(1, 0), 3 * DeviceHand::kBuffer};
  const Run outside[] = {{0, DevicePlace::of(1, 0), DeviceHand::kBuffer},
                         {0, DevicePlace::of(2, 0), 1}};
  int calls = 0;
  const auto counts = [&](std::span<const std::byte>) -> Result<void> {
    return (++calls, Result<void>());
  };
  const auto fails = [](std::span<const std::byte>) -> Result<void> {
    return Error("the peer left");
  };
  cr_assert_eq(program.hand.read({&inside, 1}, fails).error().message(), "the peer left");
  cr_assert_eq(program.hand.write({&inside, 1}, fails).error().message(), "the peer left");
  cr_assert_not(program.hand.read(outside, counts).ok());
  cr_assert_eq(calls, 1, "what was there has come");
  cr_assert_not(program.hand.write(outside, counts).ok());
  cr_assert(program.hand.read({&inside, 1}, counts).ok(), "and the hand is of use as before");
}
