// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/slabs.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/device/device_task.h"
#include "runtime/device/gpu_memory.h"

using namespace swell::runtime;

namespace {

constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;

}  // namespace

Test(slabs, small_tensors_share_one_and_a_large_one_has_its_own) {
  Slabs slabs;
  const auto a = slabs.take("GPU-a", 100), b = slabs.take("GPU-a", 5000);
  const auto large = slabs.take("GPU-a", Slabs::kSlabBytes + 1);
  cr_assert_eq(DevicePlace::slab(a), DevicePlace::slab(b));
  cr_assert_eq(DevicePlace::offset(b), 4096, "whole pages");
  cr_assert_neq(DevicePlace::slab(large), DevicePlace::slab(a));
  const auto sealed = slabs.seal(kUnit);
  cr_assert_eq(sealed.size(), 2);
  cr_assert_eq(sealed[0].bytes, kUnit);
  cr_assert_eq(sealed[1].bytes, Slabs::kSlabBytes + kUnit);
  cr_assert_neq(DevicePlace::slab(slabs.take("GPU-a", 1)), DevicePlace::slab(large),
                "what is taken already does not grow");
}

Test(slabs, memory_goes_back_with_the_last_tensor_of_it) {
  Slabs slabs;
  const auto a = slabs.take("GPU-a", 100), b = slabs.take("GPU-a", 100);
  slabs.use(a);
  slabs.use(b);
  slabs.seal(kUnit);
  const int fd = memfd_create("slab", MFD_CLOEXEC);
  slabs.set(DevicePlace::slab(a), swell::Descriptor(fd));
  slabs.drop(a);
  cr_assert_eq(slabs.find(DevicePlace::slab(a))->uses, 1);
  cr_assert_neq(fcntl(fd, F_GETFD), -1);
  slabs.drop(b);
  cr_assert_null(slabs.find(DevicePlace::slab(a)));
  cr_assert_eq(fcntl(fd, F_GETFD), -1, "nobody holds it any more");
}

Test(slabs, memory_that_is_given_back_early_is_counted_no_more) {
  Slabs slabs;
  const auto a = slabs.take("GPU-a", 100), b = slabs.take("GPU-b", 100);
  slabs.use(a);
  slabs.use(b);
  slabs.seal(kUnit);
  cr_assert(slabs.held().empty(), "nobody has taken it yet");
  for (const auto at : {a, b})
    slabs.set(DevicePlace::slab(at), swell::Descriptor(memfd_create("slab", MFD_CLOEXEC)));
  cr_assert_eq(slabs.held().size(), 2);
  cr_assert_eq(slabs.held_bytes("GPU-a"), kUnit);
  slabs.release(DevicePlace::slab(a));
  cr_assert_eq(slabs.held_bytes("GPU-a"), 0);
  cr_assert_eq(slabs.held()[0].gpu, "GPU-b");
  cr_assert_not_null(slabs.find(DevicePlace::slab(a)), "a tensor is still counted there");
  slabs.drop(a);
  cr_assert_null(slabs.find(DevicePlace::slab(a)));
}

Test(slabs, in_chunks_several_have_room_in_the_bound) {
  const GpuMemory memory{"GPU-a", kUnit, Slabs::kSlabBytes, {}};
  cr_assert_eq(slab_bytes_in_chunks(memory, std::uint64_t{8} << 30), Slabs::kSlabBytes);
  cr_assert_eq(slab_bytes_in_chunks(memory, 30 * kUnit), 3 * kUnit);
  cr_assert_eq(slab_bytes_in_chunks(memory, 1), kUnit);
}

Test(gpu_memory, is_read_as_it_was_written_and_never_with_numbers_that_no_shim_has) {
  const GpuMemory memory{"GPU-a", kUnit, 4 * kUnit, {{2, kUnit, "GPU-a"}, {5, kUnit, "GPU-b"}}};
  const std::string body = write(memory);
  cr_assert_eq(write(read_gpu_memory(body).value()), body);
  for (std::size_t size = 0; size < body.size(); ++size)
    cr_assert_not(read_gpu_memory(body.substr(0, size)).ok());
  for (const GpuMemory& bad : {GpuMemory{"GPU-a", 0, 0, {}}, GpuMemory{"", kUnit, 0, {}},
                               GpuMemory{"", 0, 0, {{5, kUnit, "GPU-a"}, {2, kUnit, "GPU-a"}}},
                               GpuMemory{"", 0, 0, {{5, 0, "GPU-a"}}},
                               GpuMemory{"", 0, 0, {{std::uint64_t{1} << 23, kUnit, "GPU-a"}}}})
    cr_assert_not(read_gpu_memory(write(bad)).ok());
}

Test(slabs, slabs_without_a_tensor_are_swept) {
  Slabs slabs;
  const auto used = slabs.take("GPU-a", Slabs::kSlabBytes), unused = slabs.take("GPU-a", 1);
  slabs.use(used);
  slabs.sweep();
  cr_assert_not_null(slabs.find(DevicePlace::slab(used)));
  cr_assert_null(slabs.find(DevicePlace::slab(unused)));
  cr_assert_neq(slabs.next_number(), DevicePlace::slab(unused), "numbers are never used again");
}

Test(device_task, is_read_as_it_was_written_and_never_when_it_is_cut_short) {
  const DeviceTask task{DeviceTask::Kind::nccl_join, 3, 4, {{5, 6, 7}, {8, 9, 10}}, "an id", 1};
  const std::string body = write(task);
  const auto read = read_task(body).value();
  cr_assert(read.kind == task.kind && read.slab == 3 && read.bytes == 4);
  cr_assert_eq(read.runs.size(), 2);
  cr_assert_eq(read.runs[1].bytes, 10);
  cr_assert(read.id == "an id" && read.rank == 1);
  for (std::size_t size = 0; size < body.size(); ++size)
    cr_assert_not(read_task(body.substr(0, size)).ok());
  std::string other = body;
  other[0] = DeviceTask::kKinds;
  cr_assert_not(read_task(other).ok(), "no such kind");
}
