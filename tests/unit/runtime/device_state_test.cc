// SPDX-License-Identifier: GPL-2.0-or-later
// What a program answers to a shim that asks for what cannot be: slabs and places outside of what
// there is.
#include "runtime/device/device_state.h"

#include <criterion/criterion.h>
#include <cstdio>
#include <dlfcn.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "runtime/wire/messages.h"

using namespace swell;
using namespace swell::runtime;

namespace {

constexpr std::uint64_t kUnit = std::uint64_t{2} << 20, kArena = std::uint64_t{1} << 20;
using Do = DeviceTask::Kind;

std::uint64_t place(std::uint64_t slab, std::uint64_t offset) {
  return DevicePlace::of(slab, offset);
}

/// A program with one slab, number 1, of kUnit bytes, and its arena of kArena bytes; and the end of
/// the connection that is its shim's.
struct Program {
  Program() {
    int ends[2] = {};
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    shim = Channel(Descriptor(ends[0]));
    channel = Channel(Descriptor(ends[1]));
    cr_assert_eq(asks({Do::create, 1, kUnit, {}}), "");
  }
  /// Returns why the program did not do a task; empty: it did.
  std::string asks(const DeviceTask& task, int fd = -1) { return asks(write(task), fd); }
  std::string asks(const std::string& body, int fd = -1) {
    cr_assert(shim.send(kTaskOp, body, fd).ok());
    const Message message = channel.receive().value();
    cr_assert(state->serve(channel, message, arena).ok());
    const Message said = shim.receive(within(std::chrono::seconds(10))).value();
    cr_assert_eq(said.op, static_cast<std::uint16_t>(Op::task_done));
    ByteReader reader(said.body);
    const bool done = reader.get<std::uint8_t>() != 0;
    const std::string why = reader.text(4096);
    cr_assert(reader.done());
    cr_assert_eq(done, why.empty());
    return why;
  }
  std::string asks(Do kind, const Run& run) { return asks({kind, 0, 0, {run}}); }

  /// Memory of the GPU that is no slab.
  static std::uint64_t take_own(std::size_t bytes) {
    void* const driver = dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW);
    const auto push = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxPushCurrent_v2"));
    const auto take =
        reinterpret_cast<int (*)(unsigned long long*, std::size_t)>(dlsym(driver, "cuMemAlloc_v2"));
    unsigned long long address = 0;
    cr_assert_eq(push(reinterpret_cast<void*>(1)), 0);
    cr_assert_eq(take(&address, bytes), 0);
    return address;
  }

  std::unique_ptr<DeviceState> state = DeviceState::open(0, SWELL_STAND_IN_CUDA).value();
  Arena arena = Arena::create(kArena).value();
  Channel shim, channel;
};

std::string not_mapped(std::uint64_t bytes, std::uint64_t at) {
  return std::to_string(bytes) + " bytes at " + std::to_string(at) +
         " are in no memory of the GPU that is mapped here";
}

std::string not_in_arena(std::uint64_t bytes, std::uint64_t at) {
  return std::to_string(bytes) + " bytes at " + std::to_string(at) + " are outside of the arena";
}

}  // namespace

Test(device_state, a_place_outside_of_its_slabs_is_refused_with_one_sentence) {
  Program program;
  const std::uint64_t all = ~std::uint64_t{0};
  const struct {
    std::uint64_t at, bytes;
  } kOutside[] = {
      {place(2, 0), 1},          // no such slab
      {place(0, 0), 1},          // nor this
      {place(1, kUnit), 1},      // begins behind the end
      {place(1, kUnit - 8), 9},  // ends one byte behind it
      {place(1, kUnit + 1), 0},  // nothing, but from outside
      {place(1, 8), all},        // the sum of place and bytes is too large for its type
      {place(1, 8), all - 7},    // or 0
      {all / 2, 1},
  };
  for (const auto& [at, bytes] : kOutside) {
    cr_assert_eq(program.asks(Do::copy, {at, place(1, 0), bytes}), not_mapped(bytes, at));
    cr_assert_eq(program.asks(Do::copy, {place(1, 0), at, bytes}),
                 not_mapped(bytes, bytes > kUnit ? place(1, 0) : at));
    cr_assert_eq(program.asks(Do::to_host, {at, 0, bytes}), not_mapped(bytes, at));
    cr_assert_eq(program.asks(Do::to_device, {0, at, bytes}), not_mapped(bytes, at));
  }
  cr_assert_eq(program.asks(Do::copy, {place(1, 0), place(1, kUnit - 8), 8}), "", "it serves on");
}

Test(device_state, only_registered_own_memory_is_read_and_written) {
  Program program;
  const std::uint64_t own = program.take_own(4096);
  const auto at = [&](std::uint64_t offset) { return DevicePlace::own(own + offset); };
  const auto refused = [&](std::uint64_t place, std::uint64_t bytes) {
    char text[128];
    std::snprintf(text, sizeof text,
                  "%lu bytes at address 0x%lx of the GPU are of no tensor that is registered here",
                  bytes, DevicePlace::address(place));
    return std::string(text);
  };
  cr_assert_eq(program.asks(Do::to_host, {at(0), 0, 8}), refused(at(0), 8));
  cr_assert(program.state->add_own(own + 1024, 2048).ok());
  const struct {
    std::uint64_t at, bytes;
  } kOutside[] = {{at(1023), 1}, {at(1024), 2049}, {at(3072), 1}, {at(1032), ~std::uint64_t{0}}};
  for (const auto& [where, bytes] : kOutside) {
    cr_assert_eq(program.asks(Do::to_host, {where, 0, bytes}), refused(where, bytes));
    cr_assert_eq(program.asks(Do::to_device, {0, where, bytes}), refused(where, bytes));
    cr_assert_eq(program.asks(Do::copy, {where, place(1, 0), bytes}), refused(where, bytes));
  }
  program.arena.data()[0] = std::byte{7};
  cr_assert_eq(program.asks(Do::to_device, {0, at(1024), 1}), "");
  cr_assert_eq(program.asks(Do::copy, {at(1024), place(1, 8), 1}), "");
  cr_assert_eq(program.asks(Do::to_host, {place(1, 8), 1, 1}), "");
  cr_assert_eq(static_cast<int>(program.arena.data()[1]), 7);
}

// As of PyTorch's expandable segments, which have 20 MiB each.
Test(device_state, more_pieces_are_shared_than_the_program_may_have_files) {
  constexpr int kPieces = 64;
  const auto gpu = Device::open(0, SWELL_STAND_IN_CUDA).value();
  const auto state = DeviceState::open(0, SWELL_STAND_IN_CUDA).value();
  std::vector<Slab> pieces;
  while (pieces.size() < kPieces) {
    pieces.push_back(Slab::create(gpu, kUnit).value());
    cr_assert(state->add_own(pieces.back().address(), kUnit).ok());
  }
  const int next = dup(STDERR_FILENO);
  close(next);
  rlimit files{};
  cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = static_cast<rlim_t>(next) + 8;
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
  int shared = 0;
  const auto good = state->each_own_share([&](const OwnShare& share) -> Result<void> {
    shared += share.fd != nullptr && share.bytes == kUnit ? 1 : 0;
    return {};
  });
  cr_assert(good.ok(), "%s", good.ok() ? "" : good.error().message().c_str());
  cr_assert_eq(shared, kPieces);
}

Test(device_state, a_place_outside_of_the_arena_is_refused_with_one_sentence) {
  Program program;
  const std::uint64_t all = ~std::uint64_t{0};
  const std::uint64_t size = program.arena.bytes();
  const struct {
    std::uint64_t at, bytes;
  } kOutside[] = {{size, 1}, {size - 8, 9}, {size + 1, 0}, {all, 1}, {all - 7, 8}};
  for (const auto& [at, bytes] : kOutside) {
    cr_assert_eq(program.asks(Do::to_host, {place(1, 0), at, bytes}), not_in_arena(bytes, at));
    cr_assert_eq(program.asks(Do::to_device, {at, place(1, 0), bytes}), not_in_arena(bytes, at));
  }
  cr_assert_eq(program.asks(Do::to_host, {place(1, kUnit - 8), size - 8, 8}), "");
  cr_assert_eq(program.asks(Do::to_device, {size - 8, place(1, kUnit - 8), 8}), "");
}

Test(device_state, no_run_outside_is_written) {
  Program program;
  std::byte* const memory = program.arena.data();
  memory[0] = std::byte{7};
  cr_assert_eq(program.asks({Do::to_device, 0, 0, {{0, place(1, 0), 1}, {0, place(3, 0), 1}}}),
               not_mapped(1, place(3, 0)));
  // Copies begin when all are known to be good.
  cr_assert_eq(program.asks(Do::to_host, {place(1, 0), 16, 1}), "");
  cr_assert_eq(static_cast<int>(memory[16]), 0, "nothing was copied");
  cr_assert_eq(program.asks(Do::to_device, {0, place(1, 0), 1}), "");
  cr_assert_eq(
      program.asks(
          {Do::copy, 0, 0, {{place(1, 0), place(1, 64), 1}, {place(1, 0), place(1, kUnit), 1}}}),
      not_mapped(1, place(1, kUnit)));
  cr_assert_eq(program.asks(Do::to_host, {place(1, 0), 8, 128}), "");
  cr_assert_eq(static_cast<int>(memory[8]), 7);
  cr_assert_eq(static_cast<int>(memory[8 + 64]), 0, "nothing was copied");
}

Test(device_state, a_slab_that_is_forgotten_or_comes_without_memory_has_no_places) {
  Program program;
  cr_assert_eq(program.asks({Do::unmap, 7, 0, {}}), "", "nothing was there");
  cr_assert_eq(program.asks({Do::unmap, 1, 0, {}}), "");
  cr_assert_eq(program.asks(Do::to_host, {place(1, 0), 0, 8}), not_mapped(8, place(1, 0)));
  const std::string no_fd = program.asks({Do::map, 2, kUnit, {}});
  cr_assert(no_fd.starts_with("GPU 0: importing what another process shares: "), "%s",
            no_fd.c_str());
  cr_assert_eq(program.asks({Do::map, 2, 5, {}}),
               "GPU memory of 5 bytes was announced; it comes in multiples of 2097152");
  cr_assert_eq(program.asks({Do::create, 2, 0, {}}),
               "GPU memory of 0 bytes; 1 byte to 1 PiB are possible");
  cr_assert_eq(program.asks({Do::create, 2, ~std::uint64_t{0}, {}}),
               "GPU memory of 18446744073709551615 bytes; 1 byte to 1 PiB are possible");
  cr_assert_eq(program.asks(Do::to_host, {place(2, 0), 0, 8}), not_mapped(8, place(2, 0)));
}

Test(device_state, a_task_that_cannot_be_read_is_refused_with_one_sentence) {
  Program program;
  const std::string good = write(DeviceTask{Do::copy, 0, 0, {{place(1, 0), place(1, 8), 8}}});
  std::string kind = good, runs = good;
  kind[0] = DeviceTask::kKinds;
  runs[1 + 8 + 8] = 100;  // more runs than there are
  for (const std::string& bad : {std::string(), kind, runs, good + "x", good.substr(0, 20)})
    cr_assert_eq(program.asks(bad), "a task for a GPU cannot be read");
  cr_assert_eq(program.asks(good), "");
}
