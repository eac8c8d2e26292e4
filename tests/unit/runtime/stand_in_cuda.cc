// SPDX-License-Identifier: GPL-2.0-or-later
// In place of NVIDIA's driver (libcuda.so.1) where a test needs one: what src/runtime and the
// profiler's clock use of it, over the host's memory. An allocation is a memfd, a file descriptor
// shares it, and a mapping maps it, as the real one's do. The environment says: STAND_IN_GPUS (1)
// GPUs are seen, the first of which is the machine's GPU STAND_IN_FIRST (0); STAND_IN_BYTES: what a
// process may take; STAND_IN_MEMORY: a file of stand_in_gpus.h, which says how much each GPU has
// for all processes that name it, until nobody has it open or mapped; STAND_IN_NO_PEER: memory of
// another GPU cannot be mapped; STAND_IN_NO_SHARING: none can be shared; STAND_IN_NO_EXPORT: it
// can, the driver says, but it does not do it; STAND_IN_NO_RDMA: none can be taken for network
// cards; STAND_IN_RDMA_FAILS: it can, the driver says, but it does not do it; STAND_IN_NO_PAGES:
// there is no memory for page tables, which is found by cuMemMap(), or by cuMemSetAccess() where it
// is "access"; STAND_IN_NO_KERNELS: no module loads; STAND_IN_NO_ROWS:
// matrices are not copied; STAND_IN_NO_HANDLES: no allocation is named for other processes;
// STAND_IN_HANGS: a file, and as long as that is there, who takes memory hangs, and makes a file of
// its name with ".now".
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "runtime/device/cuda_driver.h"
#include "runtime/device/hash_ptx.h"
#include "runtime/stand_in_gpus.h"
#include "runtime/stand_in_ptx.h"
#include "runtime/wire/word_hash.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kInvalid = 1, kNoMemory = 2, kNoContext = 201, kNoPeer = 217, kNoPtx = 222,
              kNotReady = 600, kCaptures = 900, kAlreadyMapped = 208, kUnsupported = 801;
constexpr std::size_t kGranularity = std::size_t{2} << 20;

struct Location {
  int type, id;
};
struct Properties {
  int type, handle_types;
  Location location;
  void* windows;
  unsigned char compression, for_network_cards;
};
struct Access {
  Location location;
  int flags;
};
struct Allocation {
  int fd;
  int gpu;  // of the machine
  std::size_t bytes;
  bool is_own;
  int uses = 1;  // handles that are to be released; guarded by mutex
};
// An allocation of cuMemAlloc().
struct Plain {
  std::size_t bytes;
  int ordinal, fd;
};
// The contents of a handle for other processes, which has 64 bytes.
struct Named {
  pid_t pid;
  int fd, gpu;
  std::size_t bytes;
};
static_assert(sizeof(Named) <= 64);

struct Stream {
  std::atomic<int> pending = 0;  // what another library has launched on it
  // Kernels and copies that have not run: they do once the host waits for the stream, or asks
  // whether it is done. Guarded by queue_mutex.
  std::vector<std::function<int()>> queue = {};
};
struct Module {
  std::map<std::string, stand_in::Kernel> kernels;
};

std::mutex mutex;
// Both are guarded by mutex, and are there until the process ends: it need not unmap anything.
auto& allocations = *new std::set<Allocation*>;
std::size_t taken = 0;                       // guarded by mutex
std::size_t for_network_cards = 0;           // likewise: of `taken`
std::map<unsigned long long, Plain> plain;   // by address; likewise
std::map<unsigned long long, Named> opened;  // others' of these; likewise
auto& mapped = *new std::map<unsigned long long, std::pair<std::size_t, Allocation*>>;
std::map<const char*, std::size_t> registered;   // the host's memory; guarded by mutex
std::map<void*, Clock::time_point> works_until;  // by stream; guarded by mutex
std::atomic<std::uint64_t> copied = 0, copied_staged = 0, copies = 0;
std::mutex queue_mutex;
std::set<Stream*> streams;                  // guarded by queue_mutex
std::set<Module*> modules;                  // likewise
std::set<const stand_in::Kernel*> kernels;  // likewise
std::atomic<std::uint64_t> launched = 0, loaded = 0;
std::atomic<int> broken = 0;  // what a kernel did wrong; as a real context's, it stays
// As a library has it that was there from the start: LeakSanitizer of g++ 12 dies of a thread that
// hangs otherwise.
[[gnu::tls_model("initial-exec")]] thread_local int pushed = 0;
[[gnu::tls_model("initial-exec")]] thread_local int current = 0;  // whose context was pushed last
[[gnu::tls_model("initial-exec")]] thread_local int capture_mode = 0;  // global, as threads begin
std::atomic<bool> captures = false, is_spoiled = false;                // a graph, in global mode

int number_in(const char* variable, int otherwise) {
  const char* set = std::getenv(variable);
  return set != nullptr ? std::atoi(set) : otherwise;
}
int gpus() { return number_in("STAND_IN_GPUS", 1); }
int first() { return number_in("STAND_IN_FIRST", 0); }

std::string name_of(int fd) {
  char name[256] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return readlink(link.c_str(), name, sizeof name - 1) > 0 ? name : "";
}

// A file of so many bytes for memory of a GPU of the machine; -1: the GPU has not as much left.
int take(int gpu, std::size_t bytes) {
  const char* file = std::getenv("STAND_IN_MEMORY");
  if (file != nullptr) return stand_in::Gpus(file).take(gpu, bytes);
  const int fd = memfd_create(("stand-in-gpu-" + std::to_string(gpu)).c_str(), MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  close(fd);
  return -1;
}

Allocation* known(unsigned long long handle) {
  auto* one = reinterpret_cast<Allocation*>(handle);
  std::lock_guard lock(mutex);
  return allocations.contains(one) ? one : nullptr;
}

unsigned long long keep(Allocation made) {
  auto* one = new Allocation(made);
  std::lock_guard lock(mutex);
  allocations.insert(one);
  return reinterpret_cast<unsigned long long>(one);
}

/// REQUIRES of both: mutex is held.
const std::pair<const unsigned long long, Plain>* plain_at(unsigned long long address) {
  const auto next = plain.upper_bound(address);
  if (next == plain.begin()) return nullptr;
  const auto one = std::prev(next);
  return address - one->first < one->second.bytes ? &*one : nullptr;
}
const std::pair<const unsigned long long, std::pair<std::size_t, Allocation*>>* mapped_at(
    unsigned long long address) {
  const auto next = mapped.upper_bound(address);
  if (next == mapped.begin()) return nullptr;
  const auto one = std::prev(next);
  return address - one->first < one->second.first ? &*one : nullptr;
}

// Whether the thread must not take memory or look at streams and events, since a graph is captured:
// who does it all the same ends the capture.
bool is_prohibited() {
  if (!captures || capture_mode == 2) return false;
  is_spoiled = true;
  return true;
}

bool lacks_pages(const std::string& in_call) {
  const char* set = std::getenv("STAND_IN_NO_PAGES");
  return set != nullptr && in_call == set;
}

void* at(unsigned long long address) { return reinterpret_cast<void*>(address); }

// Counts what the driver would have to stage itself.
void count_copy(const void* host, std::size_t bytes) {
  copied += bytes;
  const char* first = static_cast<const char*>(host);
  std::lock_guard lock(mutex);
  auto one = registered.upper_bound(first);
  if (one == registered.begin() || first + bytes > (--one)->first + one->second)
    copied_staged += bytes;
}

// Runs what waits on a stream; with nullptr, on all.
int drain(void* stream) {
  std::lock_guard lock(queue_mutex);
  for (Stream* one : streams)
    if (stream == nullptr || stream == one)
      for (const auto& run : std::exchange(one->queue, {}))
        if (const int bad = broken == 0 ? run() : 0) broken = bad;
  return broken;
}

// Puts work on a stream; it reads and writes memory when the stream is drained. The legacy stream
// does not wait.
int put_on(void* stream, std::function<int()> work) {
  {
    std::lock_guard lock(queue_mutex);
    if (broken != 0) return broken;
    if (auto* const its = static_cast<Stream*>(stream); streams.contains(its)) {
      its->queue.push_back(std::move(work));
      return 0;
    }
  }
  if (const int bad = drain(stream)) return bad;
  return work();
}

// Does the kernel's work natively, for more bytes than can be interpreted in good time.
int sum_words(const std::vector<std::uint64_t>& given) {
  using swell::runtime::HashPiece;
  using swell::runtime::WordHash;
  const auto* piece = reinterpret_cast<const HashPiece*>(given[0]);
  std::uint64_t sum = 0;
  for (const auto* end = piece + given[1]; piece != end; ++piece)
    for (std::uint64_t i = 0; i * 8 < piece->bytes; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const char*>(piece->address) + i * 8,
                  std::min<std::uint64_t>(8, piece->bytes - i * 8));
      sum += WordHash::mixed(word, piece->first + i);
    }
  *reinterpret_cast<std::uint64_t*>(given[2]) += sum;
  return 0;
}

bool is_small(const std::vector<std::uint64_t>& given) {
  constexpr std::uint64_t kInterpreted = std::uint64_t{128} << 10;
  const auto* piece = reinterpret_cast<const swell::runtime::HashPiece*>(given[0]);
  std::uint64_t bytes = 0;
  for (const auto* end = piece + given[1]; piece != end; ++piece) bytes += piece->bytes;
  return bytes <= kInterpreted;
}

int fill_with_nothing(unsigned long long address, std::size_t bytes) {
  return mmap(at(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
             ? kInvalid
             : 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// For tests: bytes that copies of any kind have moved in this process.
unsigned long long stand_in_copied() { return copied; }

// Likewise: of these, what was copied between the GPU and memory of the host that is not
// registered.
unsigned long long stand_in_copied_staged() { return copied_staged; }

// Likewise: calls that copied.
unsigned long long stand_in_copies() { return copies; }

// Likewise: kernels that were launched.
unsigned long long stand_in_launched() { return launched; }

// Likewise: modules that were loaded.
unsigned long long stand_in_modules() { return loaded; }

// Likewise: bytes that were taken so that network cards can read and write them.
unsigned long long stand_in_for_network_cards() {
  std::lock_guard lock(mutex);
  return for_network_cards;
}

// For libraries that launch on its streams: which GPU of the machine the thread's context is of
// (-1: it has none), and how much is under way on a stream.
int stand_in_gpu() { return pushed > 0 ? first() + current : -1; }
void stand_in_launch(void* stream, int more) { static_cast<Stream*>(stream)->pending += more; }

// Likewise, for devices that are to take their time: what was put on the stream so far is done at
// that time of the monotonic clock.
void stand_in_works_until(void* stream, double seconds) {
  const Clock::time_point when(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  std::lock_guard lock(mutex);
  works_until[stream] = std::max(works_until[stream], when);
}

// Likewise: a thread of the program begins to capture a graph, or ends it; returns whether the
// graph is whole.
int stand_in_capture(int begins) {
  if (begins != 0) is_spoiled = false;
  captures = begins != 0;
  return is_spoiled ? 0 : 1;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < 0 || *mode > 2) return kInvalid;
  std::swap(*mode, capture_mode);
  return 0;
}
int cuInit(unsigned) { return gpus() > 0 ? 0 : 100; }
int cuGetErrorName(int code, const char** name) {
  *name = code == kInvalid         ? "CUDA_ERROR_INVALID_VALUE"
          : code == kNoMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == kNoPeer        ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
          : code == kNoContext     ? "CUDA_ERROR_INVALID_CONTEXT"
          : code == kNoPtx         ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
          : code == kUnsupported   ? "CUDA_ERROR_NOT_SUPPORTED"
          : code == kAlreadyMapped ? "CUDA_ERROR_ALREADY_MAPPED"
          : code == kCaptures      ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : code == 716            ? "CUDA_ERROR_MISALIGNED_ADDRESS"
                                   : "CUDA_ERROR_NO_DEVICE";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = gpus();
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < gpus() ? 0 : kInvalid;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* not_there = attribute == 103   ? "STAND_IN_NO_SHARING"
                          : attribute == 110 ? "STAND_IN_NO_RDMA"
                                             : nullptr;
  *value = not_there != nullptr && std::getenv(not_there) != nullptr ? 0 : 1;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0, 16);
  uuid[15] = static_cast<unsigned char>(first() + device);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const char* file = std::getenv("STAND_IN_MEMORY")) {
    std::lock_guard lock(mutex);
    static std::map<int, void*> contexts;  // memory that each takes of its GPU
    stand_in::Gpus gpus(file);
    if (const std::size_t its = gpus.context_bytes(); its > 0 && !contexts.contains(device)) {
      const int fd = gpus.take(first() + device, its);
      if (fd < 0) return kNoMemory;
      contexts[device] = mmap(nullptr, its, PROT_NONE, MAP_SHARED, fd, 0);
      close(fd);
    }
  }
  *context = at(static_cast<unsigned long long>(device) + 1);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void* context) {
  ++pushed;
  current = static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
  return 0;
}
int cuCtxPopCurrent_v2(void**) {
  --pushed;
  return 0;
}
// No mode allows to wait for all streams while one is captured.
int cuCtxSynchronize() {
  if (captures) {
    is_spoiled = true;
    return kCaptures;
  }
  return pushed > 0 ? drain(nullptr) : kNoContext;
}
int cuStreamCreate(void** stream, unsigned) {
  auto* const made = new Stream;
  *stream = made;
  std::lock_guard lock(queue_mutex);
  streams.insert(made);
  return pushed > 0 ? 0 : kNoContext;
}
int cuStreamQuery(void* stream) {
  if (is_prohibited()) return kCaptures;
  if (pushed == 0) return kNoContext;
  if (static_cast<Stream*>(stream)->pending > 0) return kNotReady;
  return drain(stream);
}
int cuStreamSynchronize(void* stream) {
  if (is_prohibited()) return kCaptures;
  while (pushed > 0 && static_cast<Stream*>(stream)->pending > 0) std::this_thread::yield();
  return pushed > 0 ? drain(stream) : kNoContext;
}
int cuStreamDestroy_v2(void* stream) {
  drain(stream);
  {
    std::lock_guard lock(queue_mutex);
    streams.erase(static_cast<Stream*>(stream));
  }
  delete static_cast<Stream*>(stream);
  return 0;
}

// Work is done when it is launched, but for stand_in_works_until(): an event has come when it is
// recorded.
int cuEventCreate(void** event, unsigned) {
  *event = new Clock::time_point;
  return pushed > 0 ? 0 : kNoContext;
}
int cuEventRecord(void* event, void* stream) {
  std::lock_guard lock(mutex);
  const auto busy = works_until.find(stream);
  *static_cast<Clock::time_point*>(event) =
      busy == works_until.end() ? Clock::now() : std::max(busy->second, Clock::now());
  return 0;
}
int cuEventQuery(void* event) {
  if (is_prohibited()) return kCaptures;
  return *static_cast<Clock::time_point*>(event) <= Clock::now() ? 0 : kNotReady;
}
int cuEventElapsedTime(float* ms, void* first, void* second) {
  if (cuEventQuery(first) != 0 || cuEventQuery(second) != 0) return kNotReady;
  *ms = std::chrono::duration<float, std::milli>(*static_cast<Clock::time_point*>(second) -
                                                 *static_cast<Clock::time_point*>(first))
            .count();
  return 0;
}
int cuStreamIsCapturing(void*, int* status) {
  *status = 0;
  return 0;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<Clock::time_point*>(event);
  return 0;
}

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, std::size_t bytes,
                         void* stream) {
  ++copies;
  copied += bytes;
  return put_on(stream, [=] { return std::memmove(at(to), at(from), bytes), 0; });
}
// Memory of the host is read and written as late as can be, registered or not: the driver may stage
// what is not registered, and need not.
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
  ++copies;
  count_copy(to, bytes);
  return put_on(stream, [=] { return std::memcpy(to, at(from), bytes), 0; });
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
  ++copies;
  count_copy(from, bytes);
  return put_on(stream, [=] { return std::memcpy(at(to), from, bytes), 0; });
}
int cuMemcpy2DAsync_v2(const swell::runtime::cuda::MatrixCopy* copy, void* stream) {
  if (pushed == 0) return kNoContext;
  const auto start = [](const auto& end) -> char* {
    const bool on_host = end.memory_type == 1;
    if (end.memory_type != 2 && !on_host) return nullptr;
    if (end.array != nullptr || (on_host ? end.device != 0 : end.host != nullptr)) return nullptr;
    return static_cast<char*>(on_host ? end.host : at(end.device)) + end.y * end.pitch +
           end.x_bytes;
  };
  char *const from = start(copy->from), *const to = start(copy->to);
  const std::size_t least = std::min(copy->from.pitch, copy->to.pitch),
                    most = std::max(copy->from.pitch, copy->to.pitch);
  if (from == nullptr || to == nullptr || copy->row_bytes == 0 || copy->rows == 0 ||
      least < copy->row_bytes || most > 0x7fffffff || std::getenv("STAND_IN_NO_ROWS") != nullptr)
    return kInvalid;
  ++copies;
  for (std::size_t row = 0; row < copy->rows; ++row) {
    char* const its = to + row * copy->to.pitch;
    if (copy->from.memory_type == 1) count_copy(from + row * copy->from.pitch, copy->row_bytes);
    else if (copy->to.memory_type == 1) count_copy(its, copy->row_bytes);
    else copied += copy->row_bytes;
  }
  return put_on(stream, [=, its = *copy] {
    for (std::size_t row = 0; row < its.rows; ++row)
      std::memmove(to + row * its.to.pitch, from + row * its.from.pitch, its.row_bytes);
    return 0;
  });
}
int cuMemHostRegister_v2(void* bytes, std::size_t count, unsigned flags) {
  if (pushed == 0) return kNoContext;
  if (is_prohibited()) return kCaptures;
  std::lock_guard lock(mutex);
  const bool is_new = registered.emplace(static_cast<const char*>(bytes), count).second;
  return flags == 1 && count > 0 && is_new ? 0 : kInvalid;
}
int cuMemHostUnregister(void* bytes) {
  std::lock_guard lock(mutex);
  return registered.erase(static_cast<const char*>(bytes)) == 1 ? 0 : kInvalid;
}
int cuMemsetD8Async(unsigned long long address, unsigned char value, std::size_t bytes,
                    void* stream) {
  return put_on(stream, [=] { return std::memset(at(address), value, bytes), 0; });
}

// Memory that other processes open by a handle alone.
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  if (is_prohibited()) return kCaptures;
  if (pushed == 0) return kNoContext;
  const int fd = take(first() + current, bytes);
  if (fd < 0) return kNoMemory;
  void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) {
    close(fd);
    return kNoMemory;
  }
  *address = reinterpret_cast<unsigned long long>(got);
  std::lock_guard lock(mutex);
  plain[*address] = {bytes, current, fd};
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  if (is_prohibited()) return kCaptures;
  drain(nullptr);
  std::lock_guard lock(mutex);
  const auto one = plain.find(address);
  if (one == plain.end()) return kInvalid;
  munmap(at(address), one->second.bytes);
  close(one->second.fd);
  plain.erase(one);
  return 0;
}
int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  std::lock_guard lock(mutex);
  int ordinal = 0;
  if (const auto* one = plain_at(address)) ordinal = one->second.ordinal;
  else if (const auto* piece = mapped_at(address)) ordinal = piece->second.second->gpu - first();
  else return kInvalid;
  *static_cast<int*>(value) = attribute == 2 ? 2 : ordinal;
  return attribute == 2 || attribute == 9 ? 0 : kInvalid;
}
int cuMemGetAddressRange_v2(unsigned long long* base, std::size_t* bytes,
                            unsigned long long address) {
  if (pushed == 0) return kNoContext;
  std::lock_guard lock(mutex);
  const auto* one = plain_at(address);
  if (one == nullptr) return kInvalid;
  *base = one->first;
  *bytes = one->second.bytes;
  return 0;
}
int cuIpcGetMemHandle(void* handle, unsigned long long address) {
  if (pushed == 0) return kNoContext;
  std::lock_guard lock(mutex);
  const auto one = plain.find(address);
  if (one == plain.end() || std::getenv("STAND_IN_NO_HANDLES") != nullptr) return kInvalid;
  Named its{};
  its = {getpid(), one->second.fd, first() + one->second.ordinal, one->second.bytes};
  std::memcpy(handle, &its, sizeof its);
  return 0;
}
int cuIpcOpenMemHandle_v2(unsigned long long* address, swell::runtime::cuda::IpcHandle handle,
                          unsigned flags) {
  if (pushed == 0) return kNoContext;
  Named its{};
  std::memcpy(&its, handle.bytes, sizeof its);
  if (its.pid == getpid()) return kNoContext;  // as the driver has it
  if (its.gpu != first() + current && (flags != 1 || std::getenv("STAND_IN_NO_PEER") != nullptr))
    return kNoPeer;
  const std::string file = "/proc/" + std::to_string(its.pid) + "/fd/" + std::to_string(its.fd);
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found {};
  if (fd < 0) return kInvalid;
  void* const got = fstat(fd, &found) == 0 && found.st_size == static_cast<off_t>(its.bytes)
                        ? mmap(nullptr, its.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
  close(fd);
  if (got == MAP_FAILED) return kInvalid;
  *address = reinterpret_cast<unsigned long long>(got);
  std::lock_guard lock(mutex);
  // A process opens each allocation once.
  if (std::any_of(opened.begin(), opened.end(), [&](const auto& one) {
        return one.second.pid == its.pid && one.second.fd == its.fd;
      })) {
    munmap(got, its.bytes);
    return kAlreadyMapped;
  }
  opened[*address] = its;
  return 0;
}
int cuIpcCloseMemHandle(unsigned long long address) {
  if (pushed == 0) return kNoContext;
  drain(nullptr);
  std::lock_guard lock(mutex);
  const auto one = opened.find(address);
  if (one == opened.end()) return kInvalid;
  munmap(at(address), one->second.bytes);
  opened.erase(one);
  return 0;
}

// Where there is no STAND_IN_MEMORY, of a GPU of 1 TiB, what is left after this process's own
// allocations.
int cuMemGetInfo_v2(std::size_t* left, std::size_t* total) {
  if (const char* file = std::getenv("STAND_IN_MEMORY")) {
    stand_in::Gpus gpus(file);
    *total = gpus.bytes();
    *left = *total - std::min<std::size_t>(*total, gpus.taken(first() + current));
    return 0;
  }
  std::lock_guard lock(mutex);
  const char* most = std::getenv("STAND_IN_BYTES");
  *total = most != nullptr ? std::strtoull(most, nullptr, 10) : std::size_t{1} << 40;
  *left = *total - std::min(*total, taken);
  return 0;
}
int cuMemGetAllocationGranularity(std::size_t* bytes, const Properties*, int) {
  *bytes = kGranularity;
  return 0;
}
int cuMemCreate(unsigned long long* handle, std::size_t bytes, const Properties* properties,
                unsigned long long) {
  if (is_prohibited()) return kCaptures;
  if (bytes == 0 || bytes % kGranularity != 0 || properties->type != 1 ||
      properties->handle_types != 1 ||
      (properties->for_network_cards != 0 && std::getenv("STAND_IN_NO_RDMA") != nullptr))
    return kInvalid;
  if (properties->for_network_cards != 0 && std::getenv("STAND_IN_RDMA_FAILS") != nullptr)
    return kUnsupported;
  if (const char* file = std::getenv("STAND_IN_HANGS"))
    for (bool begins = true; access(file, F_OK) == 0; begins = false, usleep(1000))
      if (begins) close(open((std::string(file) + ".now").c_str(), O_CREAT | O_CLOEXEC, 0600));
  const int gpu = first() + properties->location.id;
  int fd = -1;
  {
    std::lock_guard lock(mutex);
    const char* most = std::getenv("STAND_IN_BYTES");
    if (most != nullptr && taken + bytes > std::strtoull(most, nullptr, 10)) return kNoMemory;
    fd = take(gpu, bytes);
    if (fd < 0) return kNoMemory;
    taken += bytes;
    if (properties->for_network_cards != 0) for_network_cards += bytes;
  }
  *handle = keep({fd, gpu, bytes, true});
  return 0;
}
int cuMemExportToShareableHandle(void* shared, unsigned long long handle, int type,
                                 unsigned long long) {
  const Allocation* one = known(handle);
  if (one == nullptr || type != 1) return kInvalid;
  if (std::getenv("STAND_IN_NO_EXPORT") != nullptr) return kUnsupported;
  const int fd = dup(one->fd);
  std::memcpy(shared, &fd, sizeof fd);
  return fd >= 0 ? 0 : kInvalid;
}
int cuMemImportFromShareableHandle(unsigned long long* handle, void* shared, int type) {
  constexpr const char* kName = "/memfd:stand-in-gpu-";
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shared));
  struct stat found {};
  const std::string name = name_of(fd);
  if (type != 1 || name.rfind(kName, 0) != 0 || fstat(fd, &found) != 0) return kInvalid;
  *handle = keep({dup(fd), std::atoi(name.c_str() + std::strlen(kName)),
                  static_cast<std::size_t>(found.st_size), false});
  return 0;
}
int cuMemRelease(unsigned long long handle) {
  Allocation* one = known(handle);
  if (one == nullptr) return kInvalid;
  std::lock_guard lock(mutex);
  if (--one->uses > 0) return 0;
  close(one->fd);
  if (one->is_own) taken -= one->bytes;
  allocations.erase(one);
  delete one;
  return 0;
}
int cuMemAddressReserve(unsigned long long* address, std::size_t bytes, std::size_t,
                        unsigned long long, unsigned long long) {
  void* got = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<unsigned long long>(got);
  return got == MAP_FAILED ? kNoMemory : 0;
}
int cuMemAddressFree(unsigned long long address, std::size_t bytes) {
  return munmap(at(address), bytes) == 0 ? 0 : kInvalid;
}
int cuMemMap(unsigned long long address, std::size_t bytes, std::size_t offset,
             unsigned long long handle, unsigned long long) {
  Allocation* one = known(handle);
  if (one == nullptr || offset != 0 || bytes > one->bytes || bytes % kGranularity != 0)
    return kInvalid;
  if (lacks_pages("map")) return kNoMemory;
  // No access yet; cuMemSetAccess() knows of what GPU it is by the file.
  if (mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, one->fd, 0) == MAP_FAILED)
    return kInvalid;
  std::lock_guard lock(mutex);
  mapped[address] = {bytes, one};
  ++one->uses;  // what is mapped stays when its handle is released
  return 0;
}
int cuMemUnmap(unsigned long long address, std::size_t bytes) {
  Allocation* one = nullptr;
  {
    std::lock_guard lock(mutex);
    const auto piece = mapped.find(address);
    if (piece == mapped.end() || piece->second.first != bytes) return kInvalid;
    one = piece->second.second;
    mapped.erase(piece);
  }
  cuMemRelease(reinterpret_cast<unsigned long long>(one));
  return fill_with_nothing(address, bytes);
}
int cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  std::lock_guard lock(mutex);
  const auto* piece = mapped_at(reinterpret_cast<unsigned long long>(address));
  if (piece == nullptr) return kInvalid;
  ++piece->second.second->uses;
  *handle = reinterpret_cast<unsigned long long>(piece->second.second);
  return 0;
}
int cuMemSetAccess(unsigned long long address, std::size_t bytes, const Access* access,
                   std::size_t count) {
  if (count != 1 || access->flags != 3) return kInvalid;
  if (lacks_pages("access")) return kNoMemory;
  if (std::getenv("STAND_IN_NO_PEER") != nullptr) {
    std::lock_guard lock(mutex);
    for (const Allocation* one : allocations)
      if (one->gpu != first() + access->location.id) return kNoPeer;
  }
  return mprotect(at(address), bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : kInvalid;
}

int cuModuleLoadData(void** module, const void* image) {
  if (is_prohibited()) return kCaptures;
  if (pushed == 0) return kNoContext;
  ++loaded;
  if (std::getenv("STAND_IN_NO_KERNELS") != nullptr) return kNoPtx;
  auto* const made = new Module;
  if (const int bad = stand_in::Kernel::load(static_cast<const char*>(image), made->kernels)) {
    delete made;
    return bad;
  }
  std::lock_guard lock(queue_mutex);
  modules.insert(made);
  *module = made;
  return 0;
}
int cuModuleUnload(void* module) {
  if (is_prohibited()) return kCaptures;
  drain(nullptr);
  auto* const one = static_cast<Module*>(module);
  std::lock_guard lock(queue_mutex);
  if (modules.erase(one) == 0) return kInvalid;
  for (const auto& [name, kernel] : one->kernels) kernels.erase(&kernel);
  delete one;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  std::lock_guard lock(queue_mutex);
  auto* const one = static_cast<Module*>(module);
  if (!modules.contains(one)) return kInvalid;
  const auto found = one->kernels.find(name);
  if (found == one->kernels.end()) return 500;  // CUDA_ERROR_NOT_FOUND
  kernels.insert(&found->second);
  *function = &found->second;
  return 0;
}
// Parameters are taken at the call; the kernel runs later, on what memory holds then.
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void* stream, void** parameters, void** extra) {
  if (pushed == 0) return kNoContext;
  const auto* const kernel = static_cast<const stand_in::Kernel*>(function);
  std::lock_guard lock(queue_mutex);
  if (!kernels.contains(kernel) || !streams.contains(static_cast<Stream*>(stream)) || grid_x == 0 ||
      grid_x > 0x7fffffff || grid_y != 1 || grid_z != 1 || block_x == 0 ||
      block_x > kernel->most_threads || block_y != 1 || block_z != 1 || shared > 49152 ||
      parameters == nullptr || extra != nullptr)
    return kInvalid;
  std::vector<std::uint64_t> given(kernel->sizes.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    std::memcpy(&given[i], parameters[i], kernel->sizes[i]);
  ++launched;
  static_cast<Stream*>(stream)->queue.push_back([kernel, grid_x, block_x, given] {
    return is_small(given) ? kernel->run(grid_x, block_x, given) : sum_words(given);
  });
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
