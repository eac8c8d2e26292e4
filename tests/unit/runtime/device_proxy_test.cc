// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes between a GPU and the host by way of the program that has it: in large pieces, two at a
// time.
#include "runtime/device/device_proxy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <functional>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "runtime/device/device_state.h"
#include "runtime/transport/fetcher.h"
#include "runtime/wire/messages.h"
#include "runtime/wire/word_hash.h"
#include "support/tcp_peer.h"

using namespace swell;
using namespace swell::runtime;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kStaging = kMiB;

/// A count of the stand-in's for this process.
std::uint64_t count_of(const char* what) {
  void* const library = dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<unsigned long long (*)()>(dlsym(library, what))();
}

/// Returns whether `is_so` becomes true within 10 s.
template <typename Condition>
bool comes(const Condition& is_so) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Waits until the driver has copied that many bytes; false: 10 s have passed.
bool copies(std::uint64_t bytes) {
  return comes([=] { return count_of("stand_in_copied") >= bytes; });
}

/// A program with a slab, number 1, which serves in a thread; and its shim's hand.
class Program {
 public:
  explicit Program(std::uint64_t slab_bytes) {
    int ends[2] = {};
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    shim_ = Channel(Descriptor(ends[0]));
    channel_ = Channel(Descriptor(ends[1]));
    state_->stage_in({arena_->data() + kStaging, DeviceProxy::kStaging});
    thread_ = std::thread([this] {
      while (const auto message = channel_.receive()) {
        if (const int task = tasks_++; before_task) before_task(task);
        if (!state_->serve(channel_, *message, *arena_)) break;
      }
    });
    proxy.tasks().open(true);
    cr_assert(proxy.create(1, slab_bytes).ok());
    tasks_ = 0;
  }
  ~Program() {
    shim_.shut();
    thread_.join();
  }
  int tasks() const { return tasks_; }
  std::function<void(int)> before_task;  ///< called with the number of each task, from 0

 private:
  std::shared_ptr<const Arena> arena_ =
      std::make_shared<const Arena>(Arena::create(kStaging + DeviceProxy::kStaging).value());
  std::unique_ptr<DeviceState> state_ = DeviceState::open(0, SWELL_STAND_IN_CUDA).value();
  Channel shim_, channel_;
  std::thread thread_;
  std::atomic<int> tasks_ = 0;

 public:
  DeviceProxy proxy{shim_, arena_, kStaging, "GPU-0", 2 * kMiB};
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

Test(device_proxy, the_next_piece_is_copied_while_one_is_used) {
  constexpr std::uint64_t kCount = 2 * DeviceProxy::kBuffer + kMiB;
  Program program(kCount + kMiB);
  Values in{random_bytes(kCount)}, out;
  const Run run{0, DevicePlace::of(1, 0), kCount};
  // A copy is not made before the next piece is given, or before the last one is used.
  std::atomic<int> used = 0, early = 0;
  program.before_task = [&](int task) {
    const int needed = task < 3 ? std::min(task + 2, 3) : task;
    if (!comes([&] { return used >= needed; })) ++early;
  };
  cr_assert(program.proxy
                .write({&run, 1},
                       [&](std::span<std::byte> piece) {
                         ++used;
                         cr_assert(copies(in.at), "the piece before is copied meanwhile");
                         return in.give(piece);
                       })
                .ok());
  cr_assert_eq(count_of("stand_in_copied"), kCount);
  cr_assert(program.proxy
                .read({&run, 1},
                      [&](std::span<const std::byte> piece) {
                        ++used;
                        const std::uint64_t next = out.bytes.size() + piece.size();
                        cr_assert(copies(kCount + std::min(next + 1, kCount)),
                                  "so is the next one");
                        return out.take(piece);
                      })
                .ok());
  cr_assert(out.bytes == in.bytes);
  const std::vector<std::size_t> pieces{DeviceProxy::kBuffer, DeviceProxy::kBuffer, kMiB};
  cr_assert(in.pieces == pieces && out.pieces == pieces);
  cr_assert_eq(program.tasks(), 6);
  cr_assert_eq(early, 0, "no piece waits for the copy of another");
  cr_assert_eq(count_of("stand_in_copied_staged"), 0, "the buffers are registered");
}

Test(device_proxy, many_small_runs_are_one_task) {
  Program program(4 * kMiB);
  // Columns of a matrix: 64 of 1,024 bytes of each row.
  std::vector<Run> runs;
  for (std::uint64_t row = 0; row < 4096; ++row)
    runs.push_back({0, DevicePlace::of(1, row * 1024 + 128), 64});
  Values in{random_bytes(4096 * 64)}, out;
  cr_assert(
      program.proxy.write(runs, [&](std::span<std::byte> piece) { return in.give(piece); }).ok());
  const auto take = [&](std::span<const std::byte> piece) { return out.take(piece); };
  cr_assert(program.proxy.read(runs, take).ok());
  cr_assert(out.bytes == in.bytes);
  cr_assert_eq(program.tasks(), 2);
  cr_assert_eq(count_of("stand_in_copies"), 2, "and one copy of the driver's, of two dimensions");
  // Each is where it belongs, and nothing is beside it.
  out = {};
  const Run row{0, DevicePlace::of(1, 5 * 1024), 1024};
  cr_assert(program.proxy.read({&row, 1}, take).ok());
  for (std::size_t i = 0; i < 1024; ++i)
    cr_assert_eq(out.bytes[i], i >= 128 && i < 192 ? in.bytes[5 * 64 + i - 128] : std::byte{0});
}

Test(device_proxy, an_error_on_either_side_ends_it) {
  Program program(3 * DeviceProxy::kBuffer);
  const Run inside{0, DevicePlace::of(1, 0), 3 * DeviceProxy::kBuffer};
  const Run outside[] = {{0, DevicePlace::of(1, 0), DeviceProxy::kBuffer},
                         {0, DevicePlace::of(2, 0), 1}};
  int calls = 0;
  const auto counts = [&](std::span<const std::byte>) -> Result<void> {
    return (++calls, Result<void>());
  };
  const auto fails = [](std::span<const std::byte>) -> Result<void> {
    return Error("the peer left");
  };
  cr_assert_eq(program.proxy.read({&inside, 1}, fails).error().message(), "the peer left");
  cr_assert_eq(program.proxy.write({&inside, 1}, fails).error().message(), "the peer left");
  cr_assert_not(program.proxy.read(outside, counts).ok());
  cr_assert_eq(calls, 1, "what was there has come");
  cr_assert_not(program.proxy.write(outside, counts).ok());
  cr_assert(program.proxy.read({&inside, 1}, counts).ok(), "and the proxy is of use as before");
}

Test(device_proxy, a_checksum_is_made_on_the_gpu_where_its_driver_can) {
  constexpr std::uint64_t kCount = 3 * kMiB + 5;
  Program program(4 * kMiB);
  Values in{random_bytes(kCount)};
  const Run run{0, DevicePlace::of(1, 0), kCount};
  cr_assert(
      program.proxy.write({&run, 1}, [&](std::span<std::byte> piece) { return in.give(piece); })
          .ok());
  const std::uint64_t before = count_of("stand_in_copied");
  cr_assert(Sink::device(program.proxy).hash_of({&run, 1}, Checksum::words).ok());
  cr_assert_lt(count_of("stand_in_copied") - before, 64 * 1024, "the bytes stay on the GPU");
}

Test(device_proxy, the_kernel_of_checksums_is_compiled_before_a_switch_needs_it) {
  Program program(4 * kMiB);
  cr_assert_eq(count_of("stand_in_modules"), 1);
  const Run run{0, DevicePlace::of(1, 0), kMiB};
  cr_assert(Sink::device(program.proxy).hash_of({&run, 1}, Checksum::words).ok());
  cr_assert_eq(count_of("stand_in_modules"), 1);
}

Test(device_proxy, the_gpu_s_checksum_is_the_host_s) {
  // Small launches of the stand-in execute the kernel's PTX; large ones do what it does.
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{8191}, 40'000 + kMiB / 16, DeviceProxy::kBuffer + 12'345}) {
    Program program(count + 2 * kMiB);
    Values in{random_bytes(count)};
    const Run whole{0, DevicePlace::of(1, 3), count};
    cr_assert(
        program.proxy.write({&whole, 1}, [&](std::span<std::byte> piece) { return in.give(piece); })
            .ok());
    // Runs of odd lengths, out of order, the last of which is what is left.
    std::vector<Run> runs;
    for (std::uint64_t at = 0, bytes = 1; at < count; at += bytes, bytes = bytes * 3 + 2)
      runs.insert(runs.begin(), {at, DevicePlace::of(1, 3 + at), std::min(bytes, count - at)});
    WordHash host(runs);
    for (const Run& run : runs) host.add(in.bytes.data() + run.from, run.bytes);
    const std::uint64_t before = count_of("stand_in_launched");
    cr_assert_eq(Sink::device(program.proxy).hash_of(runs, Checksum::words).value(), host.value(),
                 "%lu bytes", count);
    cr_assert_gt(count_of("stand_in_launched"), before);
    cr_assert_eq(program.proxy.why_not_hashed(), "");
  }
}

Test(device_proxy, without_kernels_the_host_makes_the_same_checksum_and_says_why) {
  setenv("STAND_IN_NO_KERNELS", "1", 1);
  Program program(4 * kMiB);
  Values in{random_bytes(2 * kMiB + 3)};
  const Run run{0, DevicePlace::of(1, 0), in.bytes.size()};
  cr_assert(
      program.proxy.write({&run, 1}, [&](std::span<std::byte> piece) { return in.give(piece); })
          .ok());
  WordHash host({&run, 1});
  host.add(in.bytes.data(), in.bytes.size());
  cr_assert_eq(Sink::device(program.proxy).hash_of({&run, 1}, Checksum::words).value(),
               host.value());
  cr_assert_eq(program.proxy.why_not_hashed(),
               "GPU 0: compiling the checksum's kernel: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)");
}

Test(device_proxy, state_from_another_node_is_checked_whatever_its_shim_s_version) {
  constexpr std::uint64_t kCount = kMiB + 3;
  const std::string key = "a key of one job";
  const auto source = std::make_shared<const Arena>(Arena::create(2 * kMiB).value());
  const auto values = random_bytes(kCount);
  std::copy(values.begin(), values.end(), source->data() + 8);
  for (const bool is_old : {false, true}) {
    for (const bool is_wrong : {false, true}) {
      Program program(4 * kMiB);
      const auto listening = listen_tcp("127.0.0.1").value();
      std::thread shim([&] {
        Channel channel = support::accept_with(listening.get(), key).value();
        std::string request = channel.receive().value().body;
        cr_assert_eq(request[1], 2, "the words' checksum is asked for");
        if (is_old) request[1] = 1;  // it sees no more than that there is to be one
        const auto allowed = [](const Run&) { return true; };
        cr_assert(serve_bytes(channel, request, Sink::arena(*source), allowed).ok());
      });
      Prepare plan;
      plan.from.push_back({{}, {"another", "", address_of(listening.get()), 0, ""}, {}});
      Placement placement;
      placement.fetches.push_back(
          {0, Memory::arena, Memory::device, {{8, DevicePlace::of(1, 16), kCount}}});
      if (is_wrong)  // the first bytes are not there in the end
        placement.fetches[0].runs.push_back({16, DevicePlace::of(1, 16), 8});
      Fetcher::Self self{"h", "", key, source};
      self.proxy = std::shared_ptr<DeviceProxy>(std::shared_ptr<void>(), &program.proxy);
      auto fetcher = Fetcher::open(self, plan, placement.fetches).value();
      const std::uint64_t before = count_of("stand_in_copied");
      const auto moved = fetcher.fetch_all(placement, 0, Verify::network,
                                           {[](const Fetch&) { return false; }, {}});
      shim.join();
      cr_assert_eq(moved.ok(), !is_wrong, "%s", moved ? "" : moved.error().message().c_str());
      if (!is_old && !is_wrong)
        cr_assert_lt(count_of("stand_in_copied") - before, kCount + 64 * 1024,
                     "nothing is read back");
    }
  }
}
