// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/device_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "core/count_of.h"
#include "profiler/library.h"
#include "runtime/device/cuda_driver.h"
#include "runtime/device/hash_ptx.h"
#include "runtime/wire/messages.h"
#include "runtime/wire/word_hash.h"

namespace swell::runtime {

struct CudaDriver {
  profiler::Library library;
  cuda::Init init;
  cuda::GetErrorName error_name;
  cuda::DeviceGetCount count;
  cuda::DeviceGet device;
  cuda::DeviceGetAttribute attribute;
  cuda::DeviceGetUuid uuid;
  cuda::ContextRetain retain;
  cuda::ContextRelease let_go;
  cuda::ContextPush push;
  cuda::ContextPop pop;
  cuda::ContextSynchronize synchronize;
  cuda::ExchangeCaptureMode exchange_capture_mode;
  cuda::StreamCreate make_stream;
  cuda::StreamSynchronize wait_for_stream;
  cuda::StreamQuery query_stream;
  cuda::StreamDestroy end_stream;
  cuda::CopyWithin copy;
  cuda::CopyToHost to_host;
  cuda::CopyToDevice to_device;
  cuda::CopyMatrix copy_matrix;
  cuda::SetBytes set;
  cuda::HostRegister enroll;
  cuda::HostUnregister strike;
  cuda::GetInfo info;
  cuda::Granularity granularity;
  cuda::Create create;
  cuda::Export share;
  cuda::Import import;
  cuda::Release release;
  cuda::RetainHandle retain_handle;
  cuda::AddressRange address_range;
  cuda::IpcGet handle_of;
  cuda::IpcOpen open_handle;
  cuda::IpcClose close_handle;
  cuda::Reserve reserve;
  cuda::Free free;
  cuda::Map map;
  cuda::Unmap unmap;
  cuda::SetAccess set_access;
  cuda::PointerAttribute pointer_attribute;
  cuda::Allocate allocate;
  cuda::FreeAllocated free_allocated;
  cuda::ModuleLoad load_module;
  cuda::ModuleUnload unload_module;
  cuda::ModuleFunction function;
  cuda::Launch launch;

  Result<void> open(const std::string& path) {
    if (auto good = library.open(path); !good)
      return good.error().while_doing("NVIDIA's driver cannot be opened");
    return library.find({{"cuInit", &init},
                         {"cuGetErrorName", &error_name},
                         {"cuDeviceGetCount", &count},
                         {"cuDeviceGet", &device},
                         {"cuDeviceGetAttribute", &attribute},
                         {"cuDeviceGetUuid_v2", &uuid},
                         {"cuDevicePrimaryCtxRetain", &retain},
                         {"cuDevicePrimaryCtxRelease_v2", &let_go},
                         {"cuCtxPushCurrent_v2", &push},
                         {"cuCtxPopCurrent_v2", &pop},
                         {"cuCtxSynchronize", &synchronize},
                         {"cuThreadExchangeStreamCaptureMode", &exchange_capture_mode},
                         {"cuStreamCreate", &make_stream},
                         {"cuStreamSynchronize", &wait_for_stream},
                         {"cuStreamQuery", &query_stream},
                         {"cuStreamDestroy_v2", &end_stream},
                         {"cuMemcpyDtoDAsync_v2", &copy},
                         {"cuMemcpyDtoHAsync_v2", &to_host},
                         {"cuMemcpyHtoDAsync_v2", &to_device},
                         {"cuMemcpy2DAsync_v2", &copy_matrix},
                         {"cuMemsetD8Async", &set},
                         {"cuMemHostRegister_v2", &enroll},
                         {"cuMemHostUnregister", &strike},
                         {"cuMemGetInfo_v2", &info},
                         {"cuMemGetAllocationGranularity", &granularity},
                         {"cuMemCreate", &create},
                         {"cuMemExportToShareableHandle", &share},
                         {"cuMemImportFromShareableHandle", &import},
                         {"cuMemRelease", &release},
                         {"cuMemRetainAllocationHandle", &retain_handle},
                         {"cuMemGetAddressRange_v2", &address_range},
                         {"cuIpcGetMemHandle", &handle_of},
                         {"cuIpcOpenMemHandle_v2", &open_handle},
                         {"cuIpcCloseMemHandle", &close_handle},
                         {"cuMemAddressReserve", &reserve},
                         {"cuMemAddressFree", &free},
                         {"cuMemMap", &map},
                         {"cuMemUnmap", &unmap},
                         {"cuMemSetAccess", &set_access},
                         {"cuPointerGetAttribute", &pointer_attribute},
                         {"cuMemAlloc_v2", &allocate},
                         {"cuMemFree_v2", &free_allocated},
                         {"cuModuleLoadData", &load_module},
                         {"cuModuleUnload", &unload_module},
                         {"cuModuleGetFunction", &function},
                         {"cuLaunchKernel", &launch}});
  }
};

namespace {

std::string hex(const std::uint8_t (&uuid)[16]) {
  std::string text = "GPU-";
  for (std::uint8_t byte : uuid) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

/// Makes the GPU's context current while it lives, and restores the previous one. Another thread
/// may capture a graph meanwhile: calls that allocate memory or query a stream would end the
/// capture, unless this thread declares itself independent of it.
class Device::Current {
 public:
  explicit Current(const Device& device)
      : device_(device), code_(device.driver_->push(device.context_)) {
    is_relaxed_ = device.driver_->exchange_capture_mode(&mode_) == 0;
  }
  ~Current() {
    void* ours = nullptr;
    if (is_relaxed_) device_.driver_->exchange_capture_mode(&mode_);
    if (code_ == 0) device_.driver_->pop(&ours);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  int code() const noexcept { return code_; }

 private:
  const Device& device_;
  const int code_;
  int mode_ = cuda::kRelaxedCapture;  ///< the new mode; then the previous one
  bool is_relaxed_ = false;
};

Result<void> Device::check(int code, const char* what, std::uint64_t bytes) const {
  if (code == 0) return {};
  const char* name = nullptr;
  if (driver_->error_name(code, &name) != 0 || name == nullptr) name = "an unknown error";
  const std::string size = bytes > 0 ? fmt::format(" of {} bytes", bytes) : "";
  return Error(fmt::format("GPU {}: {}{}: {} ({})", ordinal_, what, size, name, code));
}

/// Returns the properties of its allocations: they can be shared, and network cards can use them if
/// the GPU supports it.
cuda::AllocationProperties Device::allocation() const noexcept {
  cuda::AllocationProperties properties;
  properties.location.id = number_;
  properties.for_network_cards = serves_network_cards_ ? 1 : 0;
  return properties;
}

Result<std::shared_ptr<Device>> Device::open(int ordinal, const std::string& library) {
  auto driver = std::make_shared<CudaDriver>();
  if (auto good = driver->open(library); !good) return good.error();
  std::shared_ptr<Device> device(new Device);
  device->driver_ = driver;
  device->ordinal_ = ordinal;
  const CudaDriver& cuda = *driver;
  int count = 0;
  Result<void> good = device->check(cuda.init(0), "starting NVIDIA's driver");
  if (good.ok()) good = device->check(cuda.count(&count), "counting GPUs");
  if (!good) return good.error();
  if (ordinal < 0 || ordinal >= count)
    return Error(fmt::format("this process has {}; there is no GPU {}, as they count from 0",
                             count_of(count, "GPU"), ordinal));
  int number = 0, manages = 0, shares = 0;
  std::uint8_t uuid[16] = {};
  good = device->check(cuda.device(&number, ordinal), "finding it");
  if (good.ok())
    good = device->check(cuda.attribute(&manages, cuda::kMemoryManagementSupported, number),
                         "asking what it can do");
  if (good.ok())
    good = device->check(cuda.attribute(&shares, cuda::kDescriptorSupported, number),
                         "asking what it can do");
  // Drivers that do not know this attribute return an error, which means no support.
  int serves_network_cards = 0;
  if (cuda.attribute(&serves_network_cards, cuda::kNetworkCardsSupported, number) != 0)
    serves_network_cards = 0;
  if (good.ok()) good = device->check(cuda.uuid(uuid, number), "asking for its UUID");
  if (!good) return good.error();
  device->shares_ = manages != 0 && shares != 0;
  device->serves_network_cards_ = serves_network_cards != 0;
  device->number_ = number;
  device->gpu_ = hex(uuid);
  good = device->check(cuda.retain(&device->context_, number), "making its context");
  if (!good) return good.error();
  const Current current(*device);
  const cuda::AllocationProperties properties = device->allocation();
  std::size_t granularity = std::size_t{2} << 20;  // not used if nothing is shared
  good = device->check(current.code(), "using its context");
  if (good.ok() && device->shares_)
    good = device->check(cuda.granularity(&granularity, &properties, cuda::kMinimumGranularity),
                         "asking for its granularity");
  if (good.ok())
    good = device->check(cuda.make_stream(&device->stream_, cuda::kNonBlockingStream),
                         "making a stream");
  if (!good) return good.error();
  if (granularity == 0) return Error(fmt::format("GPU {}: its granularity is 0", ordinal));
  device->granularity_ = granularity;
  if (device->shares_) device->try_sharing();
  return device;
}

/// Shares some memory with this process as a test: in a sandbox or a virtual machine the driver may
/// claim to share memory, or to take it for network cards, and then fail. REQUIRES: its context is
/// current.
void Device::try_sharing() {
  int code = share_once();
  if (serves_network_cards_ && code != 0 && code != cuda::kOutOfMemory) {
    serves_network_cards_ = false;
    code = share_once();
  }
  if (code == 0 || code == cuda::kOutOfMemory) return;  // a full GPU proves nothing
  shares_ = false;
  const char* name = nullptr;
  why_not_shared_ = driver_->error_name(code, &name) == 0 && name != nullptr ? name : "an error";
}

/// Returns the driver's error.
int Device::share_once() const {
  const cuda::AllocationProperties properties = allocation();
  std::uint64_t own = 0, imported = 0;
  int fd = -1, code = driver_->create(&own, granularity_, &properties, 0);
  if (code == 0) {
    code = driver_->share(&fd, own, cuda::kPosixDescriptor, 0);
    if (code == 0) {
      const Descriptor shared(fd);
      void* const what = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
      code = driver_->import(&imported, what, cuda::kPosixDescriptor);
      if (code == 0) driver_->release(imported);
    }
    driver_->release(own);
  }
  return code;
}

Device::~Device() {
  if (context_ == nullptr) return;
  if (stream_ != nullptr) {
    const Current current(*this);
    driver_->end_stream(stream_);
  }
  driver_->let_go(number_);
}

Result<void> Device::check_sharing() const {
  if (shares_) return {};
  return Error(fmt::format(
      "GPU {}: its memory cannot be passed to other processes as a file descriptor here{}; "
      "register the tensors in host memory, or in memory of your own",
      ordinal_, why_not_shared_.empty() ? "" : " (" + why_not_shared_ + ")"));
}

Result<void> Device::check_memory(DeviceAddress at, std::uint64_t bytes) const {
  const Current current(*this);
  if (auto good = check(current.code(), "using its context"); !good) return good;
  for (const DeviceAddress end : {at, at + bytes - 1}) {
    unsigned type = 0;
    int number = -1;
    if (driver_->pointer_attribute(&type, cuda::kMemoryTypeOf, end) != 0 ||
        driver_->pointer_attribute(&number, cuda::kOrdinalOf, end) != 0 ||
        type != cuda::kDeviceMemory)
      return Error(
          fmt::format("GPU {}: {} bytes at {:#x} are not memory of a GPU", ordinal_, bytes, at));
    if (number != number_)
      return Error(fmt::format("GPU {}: {} bytes at {:#x} are memory of GPU {}", ordinal_, bytes,
                               at, number));
  }
  return {};
}

/// Returns the allocation that is mapped there; 0 if cuMemCreate() did not make it. The driver
/// returns the same handle for all addresses of a mapping. REQUIRES: its context is current.
std::uint64_t Device::handle_at(DeviceAddress at) const noexcept {
  std::uint64_t handle = 0;
  if (driver_->retain_handle(&handle, reinterpret_cast<void*>(at)) != 0) return 0;
  driver_->release(handle);
  return handle;
}

Result<OwnShare> Device::share_own(DeviceAddress at) const {
  const Current current(*this);
  if (auto good = check(current.code(), "using its context"); !good) return good.error();
  std::size_t bytes = 0;
  cuda::IpcHandle name;
  OwnShare share;
  if (driver_->address_range(&share.address, &bytes, at) == 0 &&
      driver_->handle_of(&name, share.address) == 0) {
    share.bytes = bytes;
    share.handle.assign(name.bytes, sizeof name.bytes);
    return share;
  }
  std::uint64_t handle = 0;
  int fd = -1;
  auto good = check(driver_->retain_handle(&handle, reinterpret_cast<void*>(at)),
                    "finding what was allocated");
  if (!good) return good.error();
  good = check(driver_->share(&fd, handle, cuda::kPosixDescriptor, 0), "sharing memory");
  driver_->release(handle);
  if (!good) return good.error();
  share.fd = std::make_shared<Descriptor>(fd);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;  // limit of offsets in slabs
  DeviceAddress first = at - at % granularity_, end = first + granularity_;
  while (end - first < kMost && handle_at(first - granularity_) == handle) first -= granularity_;
  while (end - first < kMost && handle_at(end) == handle) end += granularity_;
  share.address = first;
  share.bytes = end - first;
  return share;
}

Result<std::uint64_t> Device::free_bytes() const {
  std::size_t left = 0, total = 0;
  const Current current(*this);
  auto good = check(current.code(), "using its context");
  if (good.ok()) good = check(driver_->info(&left, &total), "asking for its free memory");
  if (!good) return good.error();
  return left;
}

Error Device::no_room(std::uint64_t bytes) const {
  const auto left = free_bytes();
  return Error(fmt::format("no room on GPU {}: {} bytes are needed, {} are free", ordinal_, bytes,
                           left ? std::to_string(*left) : "an unknown number"),
               Shortage{bytes, left ? *left : 0});
}

Result<void> Device::wait() const {
  const Current current(*this);
  if (auto good = check(current.code(), "using its context"); !good) return good;
  return check(driver_->synchronize(), "waiting for it");
}

Result<void> Device::enter() const {
  int mode = cuda::kRelaxedCapture;  // as in Current
  driver_->exchange_capture_mode(&mode);
  return check(driver_->push(context_), "using its context");
}

namespace {

/// Returns how many of the first runs are rows of one matrix: equal in size, consecutive, and
/// equally far apart both at the source and at the destination.
std::size_t rows_at(std::span<const Run> runs) noexcept {
  std::size_t count = 1;
  for (Run step; count < runs.size(); ++count) {
    const Run &before = runs[count - 1], &next = runs[count];
    const Run its{next.from - before.from, next.to - before.to, next.bytes};
    const auto is_pitch = [&](std::uint64_t pitch) {
      return pitch >= its.bytes && pitch <= cuda::kMostPitch;
    };
    if (its.bytes != before.bytes || !is_pitch(its.from) || !is_pitch(its.to) ||
        (count > 1 && (its.from != step.from || its.to != step.to)))
      break;
    step = its;
  }
  return count;
}

std::vector<Run> runs_of(std::span<const Device::HostCopy> copies, bool to_host) {
  std::vector<Run> runs;
  runs.reserve(copies.size());
  for (const Device::HostCopy& one : copies) {
    const auto host = reinterpret_cast<std::uint64_t>(one.host);
    runs.push_back(to_host ? Run{one.device, host, one.bytes} : Run{host, one.device, one.bytes});
  }
  return runs;
}

}  // namespace

int Device::copy_one(Way way, const Run& run) const {
  if (way == Way::within) return driver_->copy(run.to, run.from, run.bytes, stream_);
  if (way == Way::to_host)
    return driver_->to_host(reinterpret_cast<void*>(run.to), run.from, run.bytes, stream_);
  return driver_->to_device(run.to, reinterpret_cast<const void*>(run.from), run.bytes, stream_);
}

int Device::copy_rows(Way way, std::span<const Run> rows) const {
  const auto end = [](std::uint64_t at, bool on_host, std::uint64_t pitch) {
    cuda::MatrixCopy::End its;
    its.memory_type = on_host ? cuda::kHostMemory : cuda::kDeviceMemory;
    if (on_host) its.host = reinterpret_cast<void*>(at);
    else its.device = at;
    its.pitch = pitch;
    return its;
  };
  cuda::MatrixCopy copy;
  copy.from = end(rows[0].from, way == Way::to_device, rows[1].from - rows[0].from);
  copy.to = end(rows[0].to, way == Way::to_host, rows[1].to - rows[0].to);
  copy.row_bytes = rows[0].bytes;
  copy.rows = rows.size();
  return driver_->copy_matrix(&copy, stream_);
}

Result<void> Device::copy_all(Way way, std::span<const Run> runs, const char* what) const {
  const Current current(*this);
  Result<void> good = check(current.code(), "using its context");
  if (!good) return good;
  while (good.ok() && !runs.empty()) {
    const std::size_t count = rows_at(runs);
    // A GPU may not support matrices of such a pitch.
    if (count == 1 || copy_rows(way, runs.first(count)) != 0)
      for (const Run& run : runs.first(count))
        if (good.ok()) good = check(copy_one(way, run), what, run.bytes);
    runs = runs.subspan(count);
  }
  // Also wait after an error: a copy under way must not write later.
  auto ended =
      check(driver_->wait_for_stream(stream_), fmt::format("waiting for {}", what).c_str());
  return good.ok() ? ended : good;
}

Result<void> Device::copy(std::span<const Run> runs) const {
  return copy_all(Way::within, runs, "a copy within it");
}

Result<void> Device::to_host(std::span<const HostCopy> copies) const {
  return copy_all(Way::to_host, runs_of(copies, true), "a copy to the host");
}

Result<void> Device::to_device(std::span<const HostCopy> copies) const {
  return copy_all(Way::to_device, runs_of(copies, false), "a copy from the host");
}

Result<void> Device::to_host(void* to, DeviceAddress from, std::size_t bytes) const {
  const HostCopy one{static_cast<std::byte*>(to), from, bytes};
  return to_host({&one, 1});
}

Result<void> Device::to_device(DeviceAddress to, const void* from, std::size_t bytes) const {
  const HostCopy one{static_cast<std::byte*>(const_cast<void*>(from)), to, bytes};
  return to_device({&one, 1});
}

Result<void> Device::clear(DeviceAddress at, std::uint64_t bytes) const {
  const Current current(*this);
  if (auto good = check(current.code(), "using its context"); !good) return good;
  auto good = check(driver_->set(at, 0, bytes, stream_), "clearing memory", bytes);
  auto ended = check(driver_->wait_for_stream(stream_), "waiting for cleared memory");
  return good.ok() ? ended : good;
}

Result<std::unique_ptr<Registered>> Registered::create(std::shared_ptr<const Device> device,
                                                       void* bytes, std::size_t count) {
  const Device::Current current(*device);
  auto good = device->check(current.code(), "using its context");
  if (good.ok())
    good = device->check(device->driver_->enroll(bytes, count, cuda::kForAllContexts),
                         "registering host memory", count);
  if (!good) return good.error();
  return std::unique_ptr<Registered>(new Registered(std::move(device), bytes));
}

Registered::~Registered() {
  const Device::Current current(*device_);
  device_->driver_->strike(bytes_);
}

Result<Slab> Slab::create(std::shared_ptr<const Device> device, std::uint64_t bytes,
                          bool is_clear) {
  const std::uint64_t unit = device->granularity();
  if (bytes == 0 || bytes > std::uint64_t{1} << 50)
    return Error(fmt::format("GPU memory of {} bytes; 1 byte to 1 PiB are possible", bytes));
  if (auto good = device->check_sharing(); !good) return good.error();
  bytes = (bytes + unit - 1) / unit * unit;
  const cuda::AllocationProperties properties = device->allocation();
  std::uint64_t handle = 0;
  {
    const Device::Current current(*device);
    if (auto good = device->check(current.code(), "using its context"); !good) return good.error();
    const int code = device->driver_->create(&handle, bytes, &properties, 0);
    if (code == cuda::kOutOfMemory) return device->no_room(bytes);
    if (auto good = device->check(code, "taking memory", bytes); !good) return good.error();
  }
  Slab slab(std::move(device), handle, bytes);
  if (auto good = slab.map(); !good) return good.error();
  if (is_clear)
    if (auto good = slab.device_->clear(slab.address_, bytes); !good) return good.error();
  return slab;
}

Result<Slab> Slab::import(std::shared_ptr<const Device> device, const Descriptor& fd,
                          std::uint64_t bytes) {
  std::uint64_t handle = 0;
  if (bytes == 0 || bytes % device->granularity() != 0)
    return Error(fmt::format("GPU memory of {} bytes was announced; it comes in multiples of {}",
                             bytes, device->granularity()));
  {
    const Device::Current current(*device);
    if (auto good = device->check(current.code(), "using its context"); !good) return good.error();
    void* const what = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get()));
    if (auto good = device->check(device->driver_->import(&handle, what, cuda::kPosixDescriptor),
                                  "importing what another process shares");
        !good)
      return good.error();
  }
  Slab slab(std::move(device), handle, bytes);
  if (auto good = slab.map(); !good) return good.error();
  return slab;
}

Result<Slab> Slab::import(std::shared_ptr<const Device> device, std::string_view handle,
                          std::uint64_t bytes) {
  cuda::IpcHandle name;
  if (handle.size() != sizeof name.bytes)
    return Error(fmt::format("a handle of GPU memory has {} bytes, not {}", sizeof name.bytes,
                             handle.size()));
  std::copy(handle.begin(), handle.end(), name.bytes);
  Slab slab(std::move(device), 0, bytes);
  slab.is_by_handle_ = true;
  const Device& its = *slab.device_;
  const Device::Current current(its);
  auto good = its.check(current.code(), "using its context");
  if (good.ok())
    good = its.check(its.driver_->open_handle(&slab.address_, name, cuda::kForPeers),
                     "mapping what another process allocated", bytes);
  if (!good) return good.error();
  slab.is_mapped_ = true;
  return slab;
}

/// Gives the allocation an address at which the GPU may read and write.
Result<void> Slab::map() {
  const CudaDriver& cuda = *device_->driver_;
  const Device::Current current(*device_);
  cuda::AccessDescription access;
  access.location.id = device_->number_;
  auto good = device_->check(current.code(), "using its context");
  if (good.ok())
    good = device_->check(cuda.reserve(&address_, bytes_, 0, 0, 0), "taking addresses", bytes_);
  // Page tables need memory, too; the driver makes them in one of these calls.
  const auto check = [&](int code, const char* what) -> Result<void> {
    if (code == cuda::kOutOfMemory) return device_->no_room(bytes_);
    return device_->check(code, what, bytes_);
  };
  if (good.ok()) {
    good = check(cuda.map(address_, bytes_, 0, handle_, 0), "mapping memory");
    is_mapped_ = good.ok();
  }
  if (good.ok())
    good = check(cuda.set_access(address_, bytes_, &access, 1), "getting access to memory");
  return good;
}

Result<Descriptor> Slab::share() const {
  int fd = -1;
  const Device::Current current(*device_);
  if (auto good = device_->check(current.code(), "using its context"); !good) return good.error();
  if (auto good = device_->check(device_->driver_->share(&fd, handle_, cuda::kPosixDescriptor, 0),
                                 "sharing memory", bytes_);
      !good)
    return good.error();
  return Descriptor(fd);
}

Slab::Slab(Slab&& other) noexcept
    : device_(std::move(other.device_)),
      handle_(std::exchange(other.handle_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      address_(std::exchange(other.address_, 0)),
      is_mapped_(std::exchange(other.is_mapped_, false)),
      is_by_handle_(other.is_by_handle_) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
  std::swap(is_mapped_, other.is_mapped_);
  std::swap(is_by_handle_, other.is_by_handle_);
  return *this;
}

Slab::~Slab() {
  if (device_ == nullptr) return;
  const CudaDriver& cuda = *device_->driver_;
  const Device::Current current(*device_);
  if (is_by_handle_) {
    if (is_mapped_) cuda.close_handle(address_);
    return;
  }
  if (is_mapped_) cuda.unmap(address_, bytes_);
  if (address_ != 0) cuda.free(address_, bytes_);
  cuda.release(handle_);
}

Result<std::unique_ptr<Stream>> Stream::create(std::shared_ptr<const Device> device) {
  void* made = nullptr;
  const Device::Current current(*device);
  auto good = device->check(current.code(), "using its context");
  if (good.ok())
    good = device->check(device->driver_->make_stream(&made, cuda::kNonBlockingStream),
                         "making a stream");
  if (!good) return good.error();
  return std::unique_ptr<Stream>(new Stream(std::move(device), made));
}

Stream::~Stream() {
  const Device::Current current(*device_);
  device_->driver_->end_stream(handle_);
}

Result<bool> Stream::is_done() const {
  const Device::Current current(*device_);
  if (auto good = device_->check(current.code(), "using its context"); !good) return good.error();
  const int code = device_->driver_->query_stream(handle_);
  if (code == cuda::kNotReady) return false;
  if (auto good = device_->check(code, "asking whether a stream is done"); !good)
    return good.error();
  return true;
}

namespace {

constexpr std::uint64_t kPiecesAt = 256;  // after the sum
constexpr std::size_t kPieces = 8192;     // in a launch: 64 MiB

}  // namespace

Result<std::unique_ptr<GpuHash>> GpuHash::create(std::shared_ptr<const Device> device) {
  std::unique_ptr<GpuHash> made(new GpuHash(std::move(device)));
  if (auto good = made->load(); !good) return good.error();
  return made;
}

Result<void> GpuHash::load() {
  const CudaDriver& cuda = *device_->driver_;
  const Device::Current current(*device_);
  auto good = device_->check(current.code(), "using its context");
  if (good.ok())
    good = device_->check(cuda.load_module(&module_, kHashPtx), "compiling the checksum's kernel");
  if (good.ok())
    good = device_->check(cuda.function(&kernel_, module_, kHashKernel), "finding its kernel");
  return good;
}

GpuHash::~GpuHash() {
  const Device::Current current(*device_);
  if (memory_ != 0) device_->driver_->free_allocated(memory_);
  if (module_ != nullptr) device_->driver_->unload_module(module_);
}

/// Launches the kernel for pieces in host memory, which must stay as they are until the stream is
/// done: whether the driver stages memory that is not registered is not documented, and on machines
/// whose GPUs read the host's page tables it need not.
Result<void> GpuHash::launch(std::span<const HashPiece> pieces) const {
  DeviceAddress table = memory_ + kPiecesAt, sum = memory_;
  auto count = static_cast<unsigned>(pieces.size());
  void* arguments[] = {&table, &count, &sum};
  auto good = device_->check(
      device_->driver_->to_device(table, pieces.data(), pieces.size_bytes(), device_->stream_),
      "a copy of a checksum's pieces");
  if (good.ok())
    good = device_->check(
        device_->driver_->launch(kernel_, (count + kHashWarps - 1) / kHashWarps, 1, 1, kHashThreads,
                                 1, 1, 0, device_->stream_, arguments, nullptr),
        "making a checksum");
  return good;
}

Result<std::uint64_t> GpuHash::sum(std::span<const Run> runs, std::uint64_t first) {
  const CudaDriver& cuda = *device_->driver_;
  const Device::Current current(*device_);
  Result<void> good = device_->check(current.code(), "using its context");
  if (good.ok() && memory_ == 0)
    good = device_->check(cuda.allocate(&memory_, kPiecesAt + kPieces * sizeof(HashPiece)),
                          "taking memory for checksums");
  if (!good) return good.error();
  good = device_->check(cuda.set(memory_, 0, sizeof(std::uint64_t), device_->stream_),
                        "clearing a checksum");
  // The driver may read pieces until the stream is done, so the next ones are written elsewhere.
  std::vector<HashPiece> pieces, being_read;
  const auto flush = [&] {
    if (!good || pieces.empty()) return;
    good = device_->check(cuda.wait_for_stream(device_->stream_), "waiting for a checksum");
    if (good.ok()) good = launch(pieces);
    std::swap(pieces, being_read);
    pieces.clear();
  };
  for (const Run& run : runs)
    for (std::uint64_t done = 0; good.ok() && done < run.bytes;) {
      const auto bytes = std::min<std::uint64_t>(kHashPiece, run.bytes - done);
      pieces.push_back({run.from + done, first, bytes});
      first += WordHash::words_of(bytes);
      done += bytes;
      if (pieces.size() == kPieces) flush();
    }
  flush();
  std::uint64_t sum = 0;
  if (good.ok())
    good = device_->check(cuda.to_host(&sum, memory_, sizeof sum, device_->stream_),
                          "a copy of a checksum");
  auto ended = device_->check(cuda.wait_for_stream(device_->stream_), "waiting for a checksum");
  if (good.ok()) good = std::move(ended);
  if (!good) return good.error();
  return sum;
}

}  // namespace swell::runtime
