// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "core/result.h"
#include "runtime/device/own_share.h"
#include "runtime/transport/transport.h"

namespace swell::runtime {

/// Address in a GPU's memory, as CUdeviceptr.
using DeviceAddress = std::uint64_t;

namespace cuda {
struct AllocationProperties;
}

/// The driver's functions; looked up once in a process.
struct CudaDriver;

struct HashPiece;

/// One GPU that this process works with, through NVIDIA's driver, which is opened at run time. Uses
/// its primary context, as CUDA's runtime and PyTorch do; the context is current only within the
/// calls. Several threads may call; those that copy wait for each other.
class Device {
 public:
  /// Opens GPU `ordinal`, as this process's CUDA numbers GPUs. The error is one sentence: no
  /// driver, or no such GPU.
  static Result<std::shared_ptr<Device>> open(int ordinal,
                                              const std::string& library = "libcuda.so.1");
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const noexcept { return ordinal_; }
  /// Identifies the hardware, equally in every process: "GPU-" and its UUID.
  const std::string& gpu() const noexcept { return gpu_; }
  /// Returns the size of which allocations are multiples.
  std::uint64_t granularity() const noexcept { return granularity_; }
  /// Checks whether its memory can be passed to other processes as file descriptors. The error is
  /// one sentence.
  Result<void> check_sharing() const;
  /// Checks whether [at, at + bytes) is memory of this GPU in this process, whichever library
  /// allocated it. The error is one sentence.
  Result<void> check_memory(DeviceAddress at, std::uint64_t bytes) const;
  /// Returns how other processes map the allocation at `at`, which this process made by
  /// cuMemAlloc(), or by cuMemCreate() as PyTorch's expandable segments do. The error is one
  /// sentence.
  Result<OwnShare> share_own(DeviceAddress at) const;

  /// Returns the GPU memory that is not allocated.
  Result<std::uint64_t> free_bytes() const;
  /// Makes an error which says that `bytes` could not be allocated, and how many are free.
  Error no_room(std::uint64_t bytes) const;
  /// Waits for all work that this process has launched on this GPU.
  Result<void> wait() const;
  /// Makes its context the current one of the calling thread until the thread ends.
  Result<void> enter() const;
  /// Copies the runs; returns when the bytes have been copied. Consecutive runs that form the rows
  /// of a matrix become one copy of the driver.
  Result<void> copy(std::span<const Run> runs) const;  ///< from and to: addresses on GPUs
  struct HostCopy {
    std::byte* host = nullptr;
    DeviceAddress device = 0;
    std::size_t bytes = 0;
  };
  Result<void> to_host(std::span<const HostCopy> copies) const;
  Result<void> to_device(std::span<const HostCopy> copies) const;
  Result<void> to_host(void* to, DeviceAddress from, std::size_t bytes) const;
  Result<void> to_device(DeviceAddress to, const void* from, std::size_t bytes) const;
  Result<void> clear(DeviceAddress at, std::uint64_t bytes) const;

 private:
  friend class GpuHash;
  friend class Registered;
  friend class Slab;
  friend class Stream;
  class Current;
  Device() = default;
  Result<void> check(int code, const char* what, std::uint64_t bytes = 0) const;
  enum class Way { within, to_host, to_device };
  Result<void> copy_all(Way way, std::span<const Run> runs, const char* what) const;
  int copy_one(Way way, const Run& run) const;
  int copy_rows(Way way, std::span<const Run> rows) const;
  std::uint64_t handle_at(DeviceAddress at) const noexcept;
  void try_sharing();
  int share_once() const;
  cuda::AllocationProperties allocation() const noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  int ordinal_ = 0, number_ = 0;
  void* context_ = nullptr;  ///< retained
  void* stream_ = nullptr;   ///< stream for copies; not ordered with other streams
  std::string gpu_;
  std::uint64_t granularity_ = 0;
  bool shares_ = false;
  std::string why_not_shared_;  ///< the driver's error in a trial allocation
  /// Network cards can read and write shared memory (GPUDirect RDMA).
  bool serves_network_cards_ = false;
};

/// Host memory that is registered with the driver: copies to and from it are not staged by the
/// driver, and run while the host does other work.
class Registered {
 public:
  static Result<std::unique_ptr<Registered>> create(std::shared_ptr<const Device> device,
                                                    void* bytes, std::size_t count);
  ~Registered();
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  Registered(std::shared_ptr<const Device> device, void* bytes) noexcept
      : device_(std::move(device)), bytes_(bytes) {}
  const std::shared_ptr<const Device> device_;
  void* const bytes_;
};

/// One allocation of GPU memory, mapped in this process. Any process that holds a descriptor of it,
/// even one without CUDA, keeps it alive: the death of the process that allocated it frees nothing.
class Slab {
 public:
  /// Allocates `bytes`, rounded up to the granularity. `is_clear`: fills it with 0; otherwise the
  /// values are undefined.
  static Result<Slab> create(std::shared_ptr<const Device> device, std::uint64_t bytes,
                             bool is_clear = true);
  /// Maps what another process shares, for use by `device`, which may differ from the GPU that has
  /// the memory. Copies nothing. `bytes`: as create() rounded them.
  static Result<Slab> import(std::shared_ptr<const Device> device, const Descriptor& fd,
                             std::uint64_t bytes);
  /// Maps an allocation that the handle of an OwnShare names. The allocation ends with the process
  /// that made it, and only other processes can map it.
  static Result<Slab> import(std::shared_ptr<const Device> device, std::string_view handle,
                             std::uint64_t bytes);
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;
  ~Slab();

  /// Returns a descriptor that other processes can import.
  Result<Descriptor> share() const;
  DeviceAddress address() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  Slab(std::shared_ptr<const Device> device, std::uint64_t handle, std::uint64_t bytes) noexcept
      : device_(std::move(device)), handle_(handle), bytes_(bytes) {}
  Result<void> map();
  std::shared_ptr<const Device> device_;  ///< nullptr: moved from
  std::uint64_t handle_ = 0, bytes_ = 0;
  DeviceAddress address_ = 0;
  bool is_mapped_ = false, is_by_handle_ = false;
};

/// A stream of a GPU, not ordered with other streams.
class Stream {
 public:
  static Result<std::unique_ptr<Stream>> create(std::shared_ptr<const Device> device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Returns CUDA's handle.
  void* handle() const noexcept { return handle_; }
  /// Returns whether all work launched on it is done.
  Result<bool> is_done() const;

 private:
  Stream(std::shared_ptr<const Device> device, void* handle) noexcept
      : device_(std::move(device)), handle_(handle) {}
  const std::shared_ptr<const Device> device_;
  void* const handle_;
};

/// Sums the words of GPU memory on the GPU, as WordHash does on the host. One thread at a time. The
/// first sum allocates 192 KiB on the GPU.
class GpuHash {
 public:
  /// Compiles the kernel with the driver.
  static Result<std::unique_ptr<GpuHash>> create(std::shared_ptr<const Device> device);
  ~GpuHash();
  GpuHash(const GpuHash&) = delete;
  GpuHash& operator=(const GpuHash&) = delete;
  /// Returns the sum of the words of all runs at their sources, which are addresses that the GPU
  /// can read. `first`: the number of the first word.
  Result<std::uint64_t> sum(std::span<const Run> runs, std::uint64_t first);

 private:
  explicit GpuHash(std::shared_ptr<const Device> device) noexcept : device_(std::move(device)) {}
  Result<void> load();
  Result<void> launch(std::span<const HashPiece> pieces) const;
  const std::shared_ptr<const Device> device_;
  void *module_ = nullptr, *kernel_ = nullptr;
  DeviceAddress memory_ = 0;  ///< space for the sum, then the pieces of one launch
};

}  // namespace swell::runtime
