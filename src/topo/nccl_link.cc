// SPDX-License-Identifier: GPL-2.0-or-later
// NCCL and NVIDIA's driver, through their published C interfaces (runtime/device/cuda_driver.h,
// nccl_api.h). Both are loaded if installed; Swell is built without either.
#include <chrono>
#include <cstdint>
#include <dlfcn.h>
#include <fmt/format.h>
#include <future>
#include <sched.h>
#include <system_error>
#include <thread>

#include "runtime/device/cuda_driver.h"
#include "runtime/device/nccl_api.h"
#include "topo/link.h"
#include "topo/measure.h"

namespace swell::topo {

namespace {

namespace cuda = runtime::cuda;
namespace nccl = runtime::nccl;
using Context = void*;
using Stream = void*;

struct Driver {
  cuda::Init init = nullptr;
  cuda::DeviceGetCount count = nullptr;
  cuda::DeviceGet device = nullptr;
  cuda::ContextRetain retain = nullptr;
  cuda::ContextRelease release = nullptr;
  cuda::ContextSet use = nullptr;
  cuda::Allocate allocate = nullptr;
  cuda::FreeAllocated free = nullptr;
  cuda::StreamCreate make_stream = nullptr;
  cuda::StreamDestroy destroy_stream = nullptr;
  cuda::StreamQuery query = nullptr;
  cuda::GetErrorName name_of = nullptr;
};

using Communicator = void*;

struct Nccl {
  nccl::GetUniqueId unique_id = nullptr;
  nccl::CommInitRank init = nullptr;
  nccl::CommAbort abort = nullptr;
  nccl::Send send = nullptr;
  nccl::Receive receive = nullptr;
  nccl::GetErrorString text = nullptr;
};

struct Libraries {
  Driver driver;
  Nccl nccl;
  std::string problem;  ///< empty: both libraries and all functions were found
};

class Loader {
 public:
  Loader(const char* file, std::string& problem)
      : library_(dlopen(file, RTLD_NOW | RTLD_LOCAL)), file_(file), problem_(problem) {
    if (library_ == nullptr && problem_.empty())
      problem_ = fmt::format("{} cannot be loaded", file);
  }
  template <typename Function>
  void find(Function& function, const char* name) {
    if (library_ == nullptr) return;
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && problem_.empty())
      problem_ = fmt::format("{} has no {}", file_, name);
  }

 private:
  void* library_;  // never unloaded: both libraries leave threads running
  const char* file_;
  std::string& problem_;
};

Libraries load() {
  Libraries all;
  Loader driver("libcuda.so.1", all.problem);
  driver.find(all.driver.init, "cuInit");
  driver.find(all.driver.count, "cuDeviceGetCount");
  driver.find(all.driver.device, "cuDeviceGet");
  driver.find(all.driver.retain, "cuDevicePrimaryCtxRetain");
  driver.find(all.driver.release, "cuDevicePrimaryCtxRelease_v2");
  driver.find(all.driver.use, "cuCtxSetCurrent");
  driver.find(all.driver.allocate, "cuMemAlloc_v2");
  driver.find(all.driver.free, "cuMemFree_v2");
  driver.find(all.driver.make_stream, "cuStreamCreate");
  driver.find(all.driver.destroy_stream, "cuStreamDestroy_v2");
  driver.find(all.driver.query, "cuStreamQuery");
  driver.find(all.driver.name_of, "cuGetErrorName");
  Loader communicators("libnccl.so.2", all.problem);
  communicators.find(all.nccl.unique_id, "ncclGetUniqueId");
  communicators.find(all.nccl.init, "ncclCommInitRank");
  communicators.find(all.nccl.abort, "ncclCommAbort");
  communicators.find(all.nccl.send, "ncclSend");
  communicators.find(all.nccl.receive, "ncclRecv");
  communicators.find(all.nccl.text, "ncclGetErrorString");
  return all;
}

const Libraries& libraries() {
  static const Libraries* const loaded = new Libraries(load());
  return *loaded;
}

/// Link between two ranks, each with a buffer on its GPU, whose contents do not matter.
class NcclLink final : public Link {
 public:
  NcclLink() : driver_(libraries().driver), nccl_(libraries().nccl) {}
  ~NcclLink() override {
    if (communicator_ != nullptr)
      (void)nccl_.abort(communicator_);  // also works if the other side is gone
    if (buffer_ != 0) (void)driver_.free(buffer_);
    if (stream_ != nullptr) (void)driver_.destroy_stream(stream_);
    if (retained_) (void)driver_.release(device_);
  }

  /// Sets up the link. After each step both ends know whether both succeeded, so neither waits for
  /// one that has failed.
  Result<void> open(Link& control, int rank, int gpu) {
    peer_ = 1 - rank;
    nccl::UniqueId id{};
    Context context = nullptr;
    auto step = prepare(gpu, context);
    if (step && rank == 0) step = check("ncclGetUniqueId", nccl_.unique_id(&id));
    if (auto both = through(control, std::move(step)); !both) return both;
    if (auto told = rank == 0 ? control.send(id.bytes, sizeof(id.bytes), 1)
                              : control.receive(id.bytes, sizeof(id.bytes), 1);
        !told)
      return told;
    if (auto both = through(control, join(id, rank, context)); !both) return both;
    // The first message makes NCCL connect the GPUs, and is not measured.
    patience_s_ = kFirstMessage_s;
    step = rank == 0 ? send(nullptr, 1, 1) : receive(nullptr, 1, 1);
    patience_s_ = kPatience_s;
    return through(control, std::move(step));
  }

  Result<void> send(const char*, std::size_t bytes, int count) override {
    for (int i = 0; i < count; ++i)
      if (auto sent = check("ncclSend",
                            nccl_.send(at(), bytes, nccl::kByte, peer_, communicator_, stream_));
          !sent)
        return sent;
    return finish();
  }
  Result<void> receive(char*, std::size_t bytes, int count) override {
    for (int i = 0; i < count; ++i)
      if (auto got = check("ncclRecv",
                           nccl_.receive(at(), bytes, nccl::kByte, peer_, communicator_, stream_));
          !got)
        return got;
    return finish();
  }

 private:
  // One end may use all of this time while the other waits for it within Link's patience.
  static constexpr int kJoin_s = 20, kFirstMessage_s = 20;
  static_assert(kJoin_s < kPatience_s && kFirstMessage_s < kPatience_s);

  /// Does the part of the set-up that does not need the other side.
  Result<void> prepare(int gpu, Context& context) {
    if (auto can = can_use_nccl(gpu); !can) return can;
    if (auto done = check_cuda("cuDeviceGet", driver_.device(&device_, gpu)); !done) return done;
    if (auto done = check_cuda("cuDevicePrimaryCtxRetain", driver_.retain(&context, device_));
        !done)
      return done;
    retained_ = true;
    if (auto done = check_cuda("cuCtxSetCurrent", driver_.use(context)); !done) return done;
    if (auto done = check_cuda("cuMemAlloc", driver_.allocate(&buffer_, kMaxMessageBytes)); !done)
      return done;
    return check_cuda("cuStreamCreate", driver_.make_stream(&stream_, cuda::kNonBlockingStream));
  }

  /// Tells the other side the result of a step here, and receives the result there. Returns the
  /// first problem of the two.
  static Result<void> through(Link& control, Result<void> own) {
    const char mine = own ? 1 : 0;
    char theirs = 0;
    auto done = control.send(&mine, 1, 1);
    if (done) done = control.receive(&theirs, 1, 1);
    if (!own) return own;
    if (!done) return done;
    if (theirs != 1) return Error("NCCL: the other end cannot; its reason is above or below");
    return {};
  }

  void* at() const noexcept {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(buffer_));
  }

  Result<void> check_cuda(const char* what, int status) const {
    if (status == 0) return {};
    const char* name = nullptr;
    (void)driver_.name_of(status, &name);
    return Error(fmt::format("{}: {}", what, name != nullptr ? name : "unknown error"));
  }
  Result<void> check(const char* what, int status) const {
    if (status == 0) return {};
    return Error(fmt::format("{}: {}", what, nccl_.text(status)));
  }

  /// Joins the two ranks in a separate thread, which is abandoned if the other side never joins.
  Result<void> join(const nccl::UniqueId& id, int rank, Context context) {
    struct Joined {
      int status = 0;
      Communicator communicator = nullptr;
    };
    std::packaged_task<Joined()> joining([driver = driver_, library = nccl_, id, rank, context] {
      Joined joined;
      (void)driver.use(context);
      joined.status = library.init(&joined.communicator, 2, id, rank);
      return joined;
    });
    std::future<Joined> result = joining.get_future();
    try {
      std::thread(std::move(joining)).detach();
    } catch (const std::system_error& problem) {
      return Error(fmt::format("ncclCommInitRank: a thread cannot be started: {}", problem.what()));
    }
    if (result.wait_for(std::chrono::seconds(kJoin_s)) != std::future_status::ready) {
      // The thread may still use the context, which is released when the process ends.
      retained_ = false;
      return Error(fmt::format("ncclCommInitRank: the two ends have not met within {} s", kJoin_s));
    }
    const Joined joined = result.get();
    if (auto good = check("ncclCommInitRank", joined.status); !good) return good;
    communicator_ = joined.communicator;
    return {};
  }

  Result<void> finish() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(patience_s_);
    for (unsigned turns = 1;; ++turns) {
      const int status = driver_.query(stream_);
      if (status == 0) return {};
      if (status != cuda::kNotReady) return check_cuda("cuStreamQuery", status);
      if (turns % 1024 != 0) continue;
      sched_yield();
      if (std::chrono::steady_clock::now() > end)
        return Error(fmt::format("NCCL: nothing has moved for {} s", patience_s_));
    }
  }

  const Driver& driver_;
  const Nccl& nccl_;
  int device_ = 0, peer_ = 0, patience_s_ = kPatience_s;
  bool retained_ = false;
  std::uint64_t buffer_ = 0;
  Stream stream_ = nullptr;
  Communicator communicator_ = nullptr;
};

}  // namespace

Result<void> can_use_nccl(int gpu) {
  const Libraries& all = libraries();
  if (!all.problem.empty()) return Error(all.problem);
  int count = 0;
  if (all.driver.init(0) != 0 || all.driver.count(&count) != 0 || count == 0)
    return Error("no GPU is visible here; allocate some, e.g. with --gpus-per-node=2");
  if (gpu >= count)
    return Error(
        fmt::format("two ends on one node need a GPU each, and {} is visible here", count));
  return {};
}

Result<std::unique_ptr<Link>> make_nccl(Link& control, int rank, int gpu) {
  auto link = std::make_unique<NcclLink>();
  if (auto opened = link->open(control, rank, gpu); !opened) return opened.error();
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace swell::topo
