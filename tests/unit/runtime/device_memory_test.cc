// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/device/device_memory.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <vector>

#include "runtime/transport/channel.h"
#include "runtime/wire/word_hash.h"

using namespace swell;
using namespace swell::runtime;

namespace {

constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;

std::shared_ptr<Device> device(int ordinal = 0) {
  return Device::open(ordinal, SWELL_STAND_IN_CUDA).value();
}

/// A count of the stand-in's for this process.
std::uint64_t count_of(const char* what) {
  void* const library = dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<unsigned long long (*)()>(dlsym(library, what))();
}

/// Bytes that the driver has copied.
std::uint64_t copied() { return count_of("stand_in_copied"); }

std::vector<std::uint8_t> bytes_of(const Device& gpu, const Slab& slab) {
  std::vector<std::uint8_t> bytes(slab.bytes());
  cr_assert(gpu.to_host(bytes.data(), slab.address(), bytes.size()).ok());
  return bytes;
}

/// Runs `body` in a process of its own, with one end of a connection; returns the other one.
Channel beside(pid_t& pid, const std::function<void(Channel&)>& body) {
  int ends[2] = {};
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  pid = fork();
  if (pid == 0) {
    close(ends[0]);
    Channel channel{Descriptor(ends[1])};
    body(channel);
    pause();
    _exit(0);
  }
  close(ends[1]);
  return Channel(Descriptor(ends[0]));
}

}  // namespace

Test(device_memory, outlives_the_process_that_took_it_and_is_not_copied) {
  pid_t pid = 0;
  Channel channel = beside(pid, [](Channel& out) {
    const auto gpu = device();
    const Slab slab = Slab::create(gpu, 3 * kUnit).value();
    const std::vector<std::uint8_t> values(kUnit, 7);
    cr_assert(gpu->to_device(slab.address() + kUnit, values.data(), values.size()).ok());
    cr_assert(out.send(1, gpu->gpu(), slab.share().value().get()).ok());
  });
  Message passed = channel.receive().value();
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);

  const auto gpu = device();
  const Slab slab = Slab::import(gpu, passed.fd, 3 * kUnit).value();
  cr_assert_eq(copied(), 0, "an import copies nothing");
  cr_assert_eq(passed.body, gpu->gpu(), "the same GPU by its UUID");
  const auto bytes = bytes_of(*gpu, slab);
  cr_assert_eq(bytes[kUnit - 1], 0);
  cr_assert_eq(bytes[kUnit], 7);
  cr_assert_eq(bytes[2 * kUnit - 1], 7);
  cr_assert_eq(bytes[2 * kUnit], 0);
}

Test(device_memory, each_of_two_mappings_sees_the_others_writes) {
  const auto gpu = device();
  Slab first = Slab::create(gpu, 1).value();
  cr_assert_eq(first.bytes(), kUnit, "whole units");
  const Slab second = Slab::import(gpu, first.share().value(), kUnit).value();
  cr_assert_neq(first.address(), second.address());
  const std::uint32_t value = 0x01020304;
  cr_assert(gpu->to_device(first.address() + 64, &value, sizeof value).ok());
  const Run runs[] = {{second.address() + 64, second.address() + 4096, 4},
                      {second.address() + 64, second.address() + 8192, 2}};
  cr_assert(gpu->copy(runs).ok());
  const auto bytes = bytes_of(*gpu, first);
  cr_assert_eq(bytes[4096], 4);
  cr_assert_eq(bytes[4099], 1);
  cr_assert_eq(bytes[8193], 3);
  cr_assert_eq(bytes[8194], 0, "two bytes of the second run");
  cr_assert(gpu->clear(first.address(), 8192).ok());
  cr_assert_eq(bytes_of(*gpu, second)[4096], 0);
}

Test(device_memory, a_driver_that_says_it_shares_and_does_not_is_found_out) {
  setenv("STAND_IN_NO_EXPORT", "1", 1);
  const auto gpu = device();
  cr_assert_eq(gpu->check_sharing().error().message(),
               "GPU 0: its memory cannot be passed to other processes as a file descriptor here "
               "(CUDA_ERROR_NOT_SUPPORTED); register the tensors in host memory, or in memory of "
               "your own");
  cr_assert_not(Slab::create(gpu, kUnit).ok());
  unsetenv("STAND_IN_NO_EXPORT");
  cr_assert(device()->check_sharing().ok());
}

Test(device_memory, serves_while_another_thread_captures_a_graph) {
  const auto gpu = device();
  void* const library = dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  const auto capture = reinterpret_cast<int (*)(int)>(dlsym(library, "stand_in_capture"));
  std::vector<std::uint64_t> host(kUnit / sizeof(std::uint64_t), 5);
  capture(1);
  {
    const auto registered = Registered::create(gpu, host.data(), kUnit);
    cr_assert(registered.ok());
    const auto slab = Slab::create(gpu, kUnit);
    cr_assert(slab.ok(), "%s", slab ? "" : slab.error().message().c_str());
    cr_assert(gpu->to_device(slab->address(), host.data(), 64).ok());
    const auto stream = Stream::create(gpu);
    cr_assert(stream.ok() && (*stream)->is_done().value());
    const auto hash = GpuHash::create(gpu);
    const Run run{slab->address(), 0, 64};
    cr_assert(hash.ok() && (*hash)->sum({&run, 1}, 0).ok());
  }
  cr_assert(capture(0), "the graph is whole");
  // The thread's own calls are as before.
  const auto allocate =
      reinterpret_cast<int (*)(unsigned long long*, std::size_t)>(dlsym(library, "cuMemAlloc_v2"));
  capture(1);
  unsigned long long address = 0;
  cr_assert_eq(allocate(&address, kUnit), 900);
  cr_assert_not(capture(0));
}

Test(device_memory, says_what_is_wrong_with_a_descriptor_or_a_size) {
  const auto gpu = device();
  const Descriptor other(memfd_create("other", MFD_CLOEXEC));
  cr_assert_eq(Slab::import(gpu, other, kUnit).error().message(),
               "GPU 0: importing what another process shares: CUDA_ERROR_INVALID_VALUE (1)");
  const Slab slab = Slab::create(gpu, kUnit).value();
  cr_assert_eq(Slab::import(gpu, slab.share().value(), 2 * kUnit).error().message(),
               "GPU 0: mapping memory of 4194304 bytes: CUDA_ERROR_INVALID_VALUE (1)");
  cr_assert_eq(Slab::import(gpu, slab.share().value(), 5).error().message(),
               "GPU memory of 5 bytes was announced; it comes in multiples of 2097152");
  cr_assert_eq(Slab::create(gpu, 0).error().message(),
               "GPU memory of 0 bytes; 1 byte to 1 PiB are possible");
}

Test(device_memory, is_taken_for_network_cards_where_they_can_reach_it) {
  for (const bool can : {false, true}) {
    if (can) unsetenv("STAND_IN_NO_RDMA");
    else setenv("STAND_IN_NO_RDMA", "1", 1);
    const auto gpu = device();
    const std::uint64_t before = count_of("stand_in_for_network_cards");
    const Slab slab = Slab::create(gpu, kUnit).value();
    cr_assert_eq(count_of("stand_in_for_network_cards") - before, can ? kUnit : 0);
  }
}

Test(device_memory, is_shared_where_the_driver_takes_none_for_network_cards_although_it_says_so) {
  setenv("STAND_IN_RDMA_FAILS", "1", 1);
  const auto gpu = device();
  cr_assert(gpu->check_sharing().ok());
  const auto slab = Slab::create(gpu, kUnit);
  cr_assert(slab.ok(), "%s", slab ? "" : slab.error().message().c_str());
  cr_assert(slab->share().ok());
  cr_assert_eq(count_of("stand_in_for_network_cards"), 0);
}

Test(device_memory, says_that_a_gpu_has_no_room_for_page_tables) {
  const auto gpu = device();
  for (const char* call : {"map", "access"}) {
    setenv("STAND_IN_NO_PAGES", call, 1);
    const auto slab = Slab::create(gpu, kUnit);
    cr_assert_not(slab.ok());
    cr_assert(slab.error().shortage().has_value(), "%s", slab.error().message().c_str());
    cr_assert_eq(slab.error().shortage()->needed_bytes, kUnit);
  }
}

// The driver may read host memory until the stream is done.
Test(device_memory, a_checksum_of_many_pieces_is_that_of_the_host) {
  const auto gpu = device();
  const Slab slab = Slab::create(gpu, kUnit).value();
  std::vector<std::uint64_t> values(20'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i * i + 1;
  cr_assert(gpu->to_device(slab.address(), values.data(), 8 * values.size()).ok());
  std::vector<Run> runs;
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    runs.push_back({slab.address() + 8 * i, 0, 8});
    expected += WordHash::mixed(values[i], i);
  }
  const auto hash = GpuHash::create(gpu).value()->sum(runs, 0);
  cr_assert(hash.ok() && *hash == expected);
  cr_assert_eq(count_of("stand_in_launched"), 3, "more pieces than one launch takes");
}

Test(device_memory, says_that_a_gpu_is_full) {
  setenv("STAND_IN_BYTES", "4194304", 1);
  const auto gpu = device();
  const Slab slab = Slab::create(gpu, kUnit).value();
  cr_assert_eq(Slab::create(gpu, 2 * kUnit).error().message(),
               "no room on GPU 0: 4194304 bytes are needed, 2097152 are free");
}

Test(device_memory, without_a_driver_a_gpu_or_sharing_there_is_a_sentence) {
  const auto none = Device::open(0, "libcuda-of-nobody.so.1");
  cr_assert(none.error().message().starts_with("NVIDIA's driver cannot be opened: "), "%s",
            none.error().message().c_str());
  cr_assert(Device::open(0, "libc.so.6").error().message().ends_with(" has no cuInit"));
  cr_assert_eq(Device::open(3, SWELL_STAND_IN_CUDA).error().message(),
               "this process has 1 GPU; there is no GPU 3, as they count from 0");
  setenv("STAND_IN_NO_SHARING", "1", 1);
  cr_assert_eq(Device::open(0, SWELL_STAND_IN_CUDA).value()->check_sharing().error().message(),
               "GPU 0: its memory cannot be passed to other processes as a file descriptor here; "
               "register the tensors in host memory, or in memory of your own");
  unsetenv("STAND_IN_NO_SHARING");
  setenv("STAND_IN_GPUS", "0", 1);
  cr_assert_eq(Device::open(0, SWELL_STAND_IN_CUDA).error().message(),
               "GPU 0: starting NVIDIA's driver: CUDA_ERROR_NO_DEVICE (100)");
}

Test(device_memory, memory_of_another_gpu_is_mapped_if_the_gpus_allow_it) {
  setenv("STAND_IN_GPUS", "2", 1);
  const auto one = device(0), other = device(1);
  cr_assert_neq(one->gpu(), other->gpu());
  const Slab slab = Slab::create(one, kUnit).value();
  cr_assert(Slab::import(other, slab.share().value(), kUnit).ok());
  setenv("STAND_IN_NO_PEER", "1", 1);
  cr_assert_eq(Slab::import(other, slab.share().value(), kUnit).error().message(),
               "GPU 1: getting access to memory of 2097152 bytes: "
               "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)");
}

Test(device_memory, rows_are_copied_at_once_and_what_is_not_a_matrix_one_by_one) {
  const auto gpu = device();
  const Slab slab = Slab::create(gpu, kUnit).value();
  std::vector<std::uint8_t> values(kUnit);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 7 / 5);
  cr_assert(gpu->to_device(slab.address(), values.data(), values.size()).ok());
  const Slab other = Slab::create(gpu, kUnit).value();
  struct Case {
    std::vector<Run> runs;
    std::uint64_t calls;
  };
  const std::vector<Case> cases{
      {{{0, 0, 3}, {10, 3, 3}, {20, 6, 3}}, 1},                  // columns of rows
      {{{0, 0, 8}, {8, 64, 8}, {16, 128, 8}, {24, 192, 5}}, 2},  // the last row is short
      {{{0, 0, 4}, {10, 4, 4}, {21, 8, 4}}, 2},                  // not equally far apart
      {{{20, 0, 4}, {10, 4, 4}, {0, 8, 4}}, 3},                  // backwards
      {{{0, 0, 4}, {2, 4, 4}, {4, 8, 4}}, 3},                    // they overlap
      {{{0, 0, 4}, {4, 4, 4}}, 1},
      {{{5, 9, 4}}, 1}};
  for (const auto& [runs, calls] : cases) {
    cr_assert(gpu->clear(other.address(), kUnit).ok());
    std::vector<Run> within;
    std::vector<std::uint8_t> expected(kUnit), host(kUnit);
    std::vector<Device::HostCopy> out;
    for (const Run& run : runs) {
      within.push_back({slab.address() + run.from, other.address() + run.to, run.bytes});
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(run.from), run.bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(run.to));
      out.push_back({reinterpret_cast<std::byte*>(host.data()) + run.to, slab.address() + run.from,
                     run.bytes});
    }
    std::uint64_t before = count_of("stand_in_copies");
    cr_assert(gpu->copy(within).ok());
    cr_assert_eq(count_of("stand_in_copies") - before, calls);
    cr_assert(bytes_of(*gpu, other) == expected);
    before = count_of("stand_in_copies");
    cr_assert(gpu->to_host(out).ok());
    cr_assert_eq(count_of("stand_in_copies") - before, calls);
    cr_assert(host == expected);
    cr_assert(gpu->clear(slab.address() + kUnit / 2, 4096).ok());
    for (Device::HostCopy& one : out)
      one.device = slab.address() + kUnit / 2 +
                   static_cast<std::uint64_t>(one.host - reinterpret_cast<std::byte*>(host.data()));
    before = count_of("stand_in_copies");
    cr_assert(gpu->to_device(out).ok());
    cr_assert_leq(count_of("stand_in_copies") - before, calls);
    const auto back = bytes_of(*gpu, slab);
    cr_assert(std::equal(expected.begin(), expected.begin() + 4096, back.begin() + kUnit / 2));
  }
}

Test(device_memory, rows_of_which_the_driver_makes_no_copy_are_copied_one_by_one) {
  setenv("STAND_IN_NO_ROWS", "1", 1);
  const auto gpu = device();
  const Slab slab = Slab::create(gpu, kUnit).value();
  const std::vector<std::uint8_t> values{1, 2, 3, 4};
  cr_assert(gpu->to_device(slab.address(), values.data(), 4).ok());
  const Run runs[] = {{slab.address(), slab.address() + 16, 1},
                      {slab.address() + 2, slab.address() + 17, 1}};
  cr_assert(gpu->copy(runs).ok());
  const auto bytes = bytes_of(*gpu, slab);
  cr_assert_eq(bytes[16], 1);
  cr_assert_eq(bytes[17], 3);
}
