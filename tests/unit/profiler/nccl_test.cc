// SPDX-License-Identifier: GPL-2.0-or-later
// Acts as NCCL does, each version by its own layout: descriptors are bytes at offsets worked out by
// hand from NCCL's documentation, so that nothing of the plugin's own declarations is believed.
#include <array>
#include <criterion/criterion.h>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string>
#include <thread>
#include <vector>

#include "profiler/nccl/totals.h"

using swell::profiler::nccl::Operation;
using swell::profiler::nccl::Sampling;
using swell::profiler::nccl::Totals;

namespace {

constexpr std::uint64_t kColl = 2, kP2p = 4, kKernelCh = 64;
constexpr int kKernelChStop = 22;

using Bytes = std::array<unsigned char, 256>;
template <typename Value>
void put(Bytes& bytes, std::size_t offset, Value value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

/// Offsets of one version's descriptors.
struct Layout {
  int version;
  bool wide_type;  ///< eight bytes instead of one
  std::size_t coll_func, coll_count, coll_datatype, p2p_func, p2p_count, p2p_datatype;
  bool device_time;
};
constexpr Layout kLayouts[] = {{3, false, 48, 72, 88, 40, 64, 56, false},
                               {4, false, 32, 56, 72, 24, 48, 40, true},
                               {5, true, 32, 56, 72, 24, 48, 40, true},
                               {6, true, 32, 56, 72, 24, 48, 40, true},
                               {7, true, 32, 56, 72, 24, 48, 40, true}};

/// The plugin, as a NCCL of one version finds it: a struct of a name and five functions.
class Nccl {
 public:
  explicit Nccl(const Layout& layout) : layout_(layout) {
    library_ = dlopen(SWELL_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library_, "%s", dlerror());
    const std::string symbol = "ncclProfiler_v" + std::to_string(layout.version);
    table_ = static_cast<void**>(dlsym(library_, symbol.c_str()));
    cr_assert_not_null(table_, "%s", symbol.c_str());
    sampling_ = static_cast<const Sampling*>(dlsym(library_, "swell_nccl_profiler_v1"));
    cr_assert_not_null(sampling_);
  }
  const char* name() const { return static_cast<const char*>(table_[0]); }
  void init(int ranks) {
    int result = -1;
    if (layout_.version == 3) result = function<int(void**, int*)>(1)(&context_, &mask);
    else if (layout_.version == 4)
      result = function<int(void**, int*, const char*, std::uint64_t, int, int, int, void*)>(1)(
          &context_, &mask, "world", 77, 1, ranks, 0, nullptr);
    else
      result = function<int(void**, std::uint64_t, int*, const char*, int, int, int, void*)>(1)(
          &context_, 77, &mask, "world", 1, ranks, 0, nullptr);
    cr_assert_eq(result, 0);
  }
  void* start(Bytes& descriptor) {
    void* handle = nullptr;
    cr_assert_eq((function<int(void*, void**, void*)>(2)(context_, &handle, descriptor.data())), 0);
    return handle;
  }
  void stop(void* handle) { cr_assert_eq((function<int(void*)>(3)(handle)), 0); }
  void record(void* handle, int state, void* arguments) {
    cr_assert_eq((function<int(void*, int, void*)>(4)(handle, state, arguments)), 0);
  }
  void finalize() { cr_assert_eq((function<int(void*)>(5)(context_)), 0); }

  Bytes descriptor(std::uint64_t type, void* parent = nullptr) const {
    Bytes bytes;
    bytes.fill(0xee);  // what is not set is no zero by luck
    if (layout_.wide_type) put(bytes, 0, type);
    else put(bytes, 0, static_cast<std::uint8_t>(type));
    put(bytes, 8, parent);
    put(bytes, 16, 0);
    return bytes;
  }
  /// Enqueued: started and stopped by the program's thread.
  void* collective(const char* func, std::size_t count, const char* datatype) {
    Bytes bytes = descriptor(kColl);
    put(bytes, layout_.coll_func, func);
    put(bytes, layout_.coll_count, count);
    put(bytes, layout_.coll_datatype, datatype);
    void* handle = start(bytes);
    stop(handle);
    return handle;
  }
  void* send(std::size_t count) {
    Bytes bytes = descriptor(kP2p);
    put<const char*>(bytes, layout_.p2p_func, "Send");
    put(bytes, layout_.p2p_count, count);
    put<const char*>(bytes, layout_.p2p_datatype, "ncclBfloat16");
    void* handle = start(bytes);
    stop(handle);
    return handle;
  }
  /// One channel's kernel, reported by NCCL's proxy.
  void* begin_kernel(void* operation, std::uint64_t start_ns) {
    Bytes bytes = descriptor(kKernelCh, operation);
    put<std::uint8_t>(bytes, 24, 0);
    if (layout_.device_time) put(bytes, 32, start_ns);
    return start(bytes);
  }
  void end_kernel(void* kernel, std::uint64_t stop_ns) {
    if (layout_.device_time) record(kernel, kKernelChStop, &stop_ns);
    stop(kernel);
  }

  const Sampling& sampling() const { return *sampling_; }
  bool wants(std::uint64_t event) const { return (static_cast<std::uint64_t>(mask) & event) != 0; }
  int mask = 0;

 private:
  template <typename Type>
  Type* function(int at) const {
    return reinterpret_cast<Type*>(table_[at]);
  }
  const Layout& layout_;
  void* library_ = nullptr;
  void** table_ = nullptr;
  const Sampling* sampling_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace

// NCCL has two headers of version 7, one of which ends with an optional function more.
Test(nccl_profiler, functions_that_a_version_may_have_beside_the_five_are_absent) {
  void* const library = dlopen(SWELL_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  auto** const table = static_cast<void**>(dlsym(library, "ncclProfiler_v7"));
  cr_assert_not_null(table);
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  cr_assert_neq(dladdr1(table, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
                        RTLD_DL_SYMENT),
                0);
  cr_assert_geq(symbol->st_size, 8 * sizeof(void*), "what comes after it is read");
  for (const int place : {6, 7}) cr_assert_null(table[place]);
}

Test(nccl_profiler, every_version_asks_for_kernels_only_while_they_are_sampled) {
  for (const Layout& layout : kLayouts) {
    Nccl nccl(layout);
    cr_assert_str_eq(nccl.name(), "swell");
    nccl.init(8);
    cr_assert(nccl.wants(kColl) && nccl.wants(kP2p) && !nccl.wants(kKernelCh), "v%d: %x",
              layout.version, nccl.mask);
    nccl.sampling().set(true);
    cr_assert(nccl.wants(kKernelCh));
    nccl.sampling().set(false);
    cr_assert_not(nccl.wants(kKernelCh));
    nccl.finalize();
    nccl.sampling().set(true);
    cr_assert_not(nccl.wants(kKernelCh), "no communicator is left whose mask it could be");
    nccl.sampling().set(false);
  }
}

Test(nccl_profiler, every_version_counts_bytes_and_what_the_device_took) {
  for (const Layout& layout : kLayouts) {
    Nccl nccl(layout);
    nccl.sampling().clear();
    nccl.init(8);
    nccl.collective("AllReduce", 1000, "ncclFloat32");  // before sampling: counted, not timed
    nccl.sampling().set(true);
    void* reduce = nccl.collective("AllReduce", 1000, "ncclFloat32");
    void* send = nccl.send(500);
    // Its stop has been: the kernels begin afterwards, on two channels that overlap.
    void* first = nccl.begin_kernel(reduce, 10'000);
    void* second = nccl.begin_kernel(reduce, 12'000);
    nccl.end_kernel(first, 40'000);
    nccl.end_kernel(second, 45'000);
    nccl.end_kernel(nccl.begin_kernel(send, 50'000), 57'000);
    nccl.sampling().set(false);
    const Totals totals = nccl.sampling().totals();
    cr_assert_eq(totals.operations, 3, "v%d", layout.version);
    cr_assert_eq(totals.sampled_operations, 2);
    cr_assert_eq(totals.sampled_bytes, 4000 + 1000, "v%d: %lu", layout.version,
                 static_cast<unsigned long>(totals.sampled_bytes));
    cr_assert_eq(totals.lost, 0);
    if (layout.device_time) cr_assert_eq(totals.device_ns, 35'000 + 7'000, "v%d", layout.version);
    else cr_assert_gt(totals.device_ns, 0, "by the host's clock");
    Operation seen[4];
    cr_assert_eq(nccl.sampling().operations(seen, 4), 2);
    cr_assert_str_eq(seen[0].function, "AllReduce");
    cr_assert_str_eq(seen[1].function, "Send");
    cr_assert_eq(seen[0].ranks, layout.version == 3 ? 0 : 8);
    cr_assert_geq(seen[0].returned_ns, seen[0].enqueued_ns);
    nccl.finalize();
  }
}

Test(nccl_profiler, a_stop_of_a_collective_says_nothing_of_the_device) {
  Nccl nccl(kLayouts[4]);
  nccl.init(2);
  nccl.sampling().set(true);
  nccl.collective("AllGather", 1 << 20, "ncclBfloat16");
  cr_assert_eq(nccl.sampling().totals().device_ns, 0);
}

Test(nccl_profiler, handles_that_are_old_wrong_or_null_do_no_harm) {
  Nccl nccl(kLayouts[2]);
  nccl.init(2);
  nccl.sampling().set(true);
  void* old = nccl.collective("AllReduce", 1, "ncclInt8");
  void* old_kernel = nccl.begin_kernel(old, 5);
  for (int i = 0; i < 10'000; ++i)
    nccl.end_kernel(nccl.begin_kernel(nccl.collective("AllReduce", 1, "ncclInt8"), 10), 20);
  nccl.end_kernel(nccl.begin_kernel(old, 5), 10);
  nccl.end_kernel(old_kernel, 10);
  nccl.stop(nullptr);
  nccl.stop(reinterpret_cast<void*>(~std::uintptr_t{0}));
  nccl.record(nullptr, kKernelChStop, nullptr);
  nccl.end_kernel(nccl.begin_kernel(nullptr, 5), 10);
  Bytes group = nccl.descriptor(1);
  cr_assert_null(nccl.start(group), "an event that nobody asked for");
  const Totals totals = nccl.sampling().totals();
  cr_assert_eq(totals.device_ns, 100'000);
  cr_assert_eq(totals.lost, 3);
}

Test(nccl_profiler, threads_of_nccl_and_of_the_program_do_not_disturb_each_other) {
  Nccl nccl(kLayouts[3]);
  nccl.init(2);
  nccl.sampling().set(true);
  constexpr int kEach = 500;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&nccl] {
      for (int i = 0; i < kEach; ++i)
        nccl.end_kernel(nccl.begin_kernel(nccl.collective("AllReduce", 1, "ncclInt8"), 10), 20);
    });
  for (int i = 0; i < 100; ++i) nccl.sampling().set(true);
  for (std::thread& thread : threads) thread.join();
  cr_assert_eq(nccl.sampling().totals().device_ns, 4 * kEach * 10);
}
