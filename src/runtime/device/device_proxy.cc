// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/device_proxy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "runtime/quiet_thread.h"
#include "runtime/state/slabs.h"
#include "runtime/wire/messages.h"
#include "runtime/wire/word_hash.h"

namespace swell::runtime {

namespace {

/// Cuts and packs runs. Each piece fills a buffer of the staging memory; the last piece has the
/// rest.
class Pieces {
 public:
  struct Part {
    std::uint64_t at = 0, offset = 0, bytes = 0;  ///< on the GPU, in the buffer
  };
  struct Piece {
    std::vector<Part> parts;
    std::uint64_t bytes = 0;  ///< 0: there are no more pieces
  };
  explicit Pieces(std::span<const Run> runs) : runs_(runs) {}
  Piece next() {
    constexpr std::size_t kParts = 8192;  // so that a task stays well below a message's limit
    Piece piece;
    while (!runs_.empty() && piece.bytes < DeviceProxy::kBuffer && piece.parts.size() < kParts) {
      const Run& run = runs_.front();
      const std::uint64_t count = std::min(run.bytes - done_, DeviceProxy::kBuffer - piece.bytes);
      if (count > 0) piece.parts.push_back({run.to + done_, piece.bytes, count});
      piece.bytes += count;
      done_ += count;
      if (done_ < run.bytes) break;
      done_ = 0;
      runs_ = runs_.subspan(1);
    }
    return piece;
  }

 private:
  std::span<const Run> runs_;
  std::uint64_t done_ = 0;  ///< bytes of the first run that are done
};

/// Makes one call in a separate thread, or in this one if no more threads can be started.
class Beside {
 public:
  Beside() = default;
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  ~Beside() { static_cast<void>(wait()); }
  /// REQUIRES: wait() was called for the previous call.
  void start(std::function<Result<void>()> call) {
    call_ = std::move(call);
    auto thread = quiet_thread([this] { result_ = call_(); });
    if (thread) thread_ = std::move(*thread);
    else result_ = call_();
  }
  /// Returns the result of the call; success if there was none.
  Result<void> wait() {
    if (thread_.joinable()) thread_.join();
    return std::exchange(result_, Result<void>());
  }

 private:
  std::function<Result<void>()> call_;
  std::thread thread_;
  Result<void> result_;
};

/// Returns the checksum of the runs at their source.
Result<std::uint64_t> hash_at(DeviceProxy& source, std::span<const Run> runs, Checksum by) {
  if (by == Checksum::none) return 0;
  std::vector<Run> sources(runs.begin(), runs.end());
  for (Run& run : sources) run.to = run.from;
  return Sink::device(source).hash_of(sources, by);
}

class MappedTransport final : public Transport {
 public:
  MappedTransport(std::shared_ptr<DeviceProxy> proxy, MappedGpu mapped, Memory from)
      : proxy_(std::move(proxy)),
        mapped_(std::move(mapped)),
        name_(std::string(kDeviceToDevice) + (mapped_.is_same_gpu ? "" : ", another GPU") +
              (from == Memory::program_device ? kFromOwnGpu : "")) {}
  /// Unmaps everything: mapped memory stays allocated even after its own shim has released it. A
  /// program that can no longer be asked will exit.
  ~MappedTransport() override {
    for (const auto& [at, its] : mapped_.pieces) static_cast<void>(proxy_->unmap(its.slab));
  }
  Result<void> let_go(std::uint32_t chunk) override {
    auto& pieces = mapped_.pieces;
    for (auto at = pieces.begin(); at != pieces.end();) {
      if (at->second.last_chunk > chunk) {
        ++at;
        continue;
      }
      if (auto good = proxy_->unmap(at->second.slab); !good) return good;
      at = pieces.erase(at);
    }
    return {};
  }
  const char* name() const noexcept override { return name_.c_str(); }
  Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink&, Checksum by) override {
    std::vector<Run> copies;
    for (Run run : runs)
      while (run.bytes > 0) {
        const auto its = mapped_.find(run.from);
        if (its == mapped_.pieces.end()) return Error("GPU memory of the source is not mapped");
        const std::uint64_t offset = run.from - its->first,
                            count = std::min(run.bytes, its->second.bytes - offset);
        copies.push_back({DevicePlace::of(its->second.slab, offset), run.to, count});
        run = {run.from + count, run.to + count, run.bytes - count};
      }
    if (auto good = proxy_->copy(copies); !good) return good.error();
    const auto hash = hash_at(*proxy_, copies, by);
    if (hash && mapped_.is_there)
      if (auto there = mapped_.is_there(); !there) return there.error();
    return hash;
  }

 private:
  std::shared_ptr<DeviceProxy> proxy_;
  MappedGpu mapped_;
  const std::string name_;
};

class BounceTransport final : public Transport {
 public:
  BounceTransport(std::shared_ptr<DeviceProxy> from, std::shared_ptr<DeviceProxy> to,
                  std::uint64_t slab, Descriptor fd)
      : from_(std::move(from)), to_(std::move(to)), slab_(slab), fd_(std::move(fd)) {}
  ~BounceTransport() override {
    if (is_mapped_) static_cast<void>(from_->unmap(slab_));
    static_cast<void>(to_->unmap(slab_));
  }
  const char* name() const noexcept override { return name_.c_str(); }
  Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink&, Checksum by) override {
    if (!is_mapped_)
      if (auto good = from_->map(slab_, kBounce, fd_.get()); !good) return good.error();
    is_mapped_ = true;
    std::vector<Run> out, in;
    std::uint64_t filled = 0;
    const auto flush = [&]() -> Result<void> {
      if (out.empty()) return {};
      filled = 0;
      if (auto good = from_->copy(std::exchange(out, {})); !good) return good;
      return to_->copy(std::exchange(in, {}));
    };
    for (Run run : runs)
      while (run.bytes > 0) {
        const std::uint64_t count = std::min(run.bytes, kBounce - filled);
        const std::uint64_t at = DevicePlace::of(slab_, filled);
        out.push_back({run.from, at, count});
        in.push_back({at, run.to, count});
        run = {run.from + count, run.to + count, run.bytes - count};
        filled += count;
        if (filled == kBounce)
          if (auto good = flush(); !good) return good.error();
      }
    if (auto good = flush(); !good) return good.error();
    return hash_at(*from_, runs, by);
  }

 private:
  const std::shared_ptr<DeviceProxy> from_, to_;
  const std::uint64_t slab_;
  const Descriptor fd_;
  const std::string name_ = std::string(kDeviceToDevice) + kFromOwnGpu;
  bool is_mapped_ = false;  ///< the program of `from_` has mapped it; that program can be asked
                            ///< only when it stands still
};

}  // namespace

DeviceProxy::DeviceProxy(Channel& channel, std::shared_ptr<const Arena> arena,
                         std::uint64_t staging, std::string gpu, std::uint64_t granularity)
    : tasks_(channel),
      arena_(std::move(arena)),
      staging_(staging),
      gpu_(std::move(gpu)),
      granularity_(granularity) {}

Result<std::string> DeviceProxy::nccl(const DeviceTask& task, const Watch& watch) {
  auto done = tasks_.run(task, -1, &watch);
  if (!done) return done.error();
  return std::move(done->said);
}

Result<Descriptor> DeviceProxy::create(std::uint64_t slab, std::uint64_t bytes) {
  auto done = tasks_.run({DeviceTask::Kind::create, slab, bytes, {Run()}});
  if (!done) return done.error();
  if (!done->fd) return Error("the program passed no descriptor of the memory that it took");
  return std::move(done->fd);
}

Result<void> DeviceProxy::map(std::uint64_t slab, std::uint64_t bytes, int fd) {
  const auto done = tasks_.run({DeviceTask::Kind::map, slab, bytes, {}}, fd);
  return done ? Result<void>() : done.error();
}

Result<void> DeviceProxy::map(std::uint64_t slab, const OwnShare& share) {
  if (share.fd != nullptr) return map(slab, share.bytes, share.fd->get());
  const auto done = tasks_.run({DeviceTask::Kind::map_handle, slab, share.bytes, {}, share.handle});
  return done ? Result<void>() : done.error();
}

Result<void> DeviceProxy::unmap(std::uint64_t slab) {
  const auto done = tasks_.run({DeviceTask::Kind::unmap, slab, 0, {}});
  return done ? Result<void>() : done.error();
}

Result<void> DeviceProxy::copy(std::vector<Run> runs) {
  const auto done = tasks_.run({DeviceTask::Kind::copy, 0, 0, std::move(runs)});
  return done ? Result<void>() : done.error();
}

Result<void> DeviceProxy::to_arena(std::vector<Run> runs) {
  const auto done = tasks_.run({DeviceTask::Kind::to_host, 0, 0, std::move(runs)});
  return done ? Result<void>() : done.error();
}

Result<std::uint64_t> DeviceProxy::word_hash(std::span<const Run> runs) {
  constexpr std::size_t kRuns = 8192;  // so that a task stays well below a message's limit
  if (std::string why = why_not_hashed(); !why.empty()) return Error(std::move(why));
  std::uint64_t sum = 0, first = 0;
  for (auto rest = runs; !rest.empty(); rest = rest.subspan(std::min(kRuns, rest.size()))) {
    DeviceTask task{DeviceTask::Kind::hash, 0, first, {}};
    for (const Run& run : rest.first(std::min(kRuns, rest.size()))) {
      task.runs.push_back({run.to, 0, run.bytes});
      first += WordHash::words_of(run.bytes);
    }
    const auto done = tasks_.run(task);
    std::uint64_t its = 0;
    const char* const end = done ? done->said.data() + done->said.size() : nullptr;
    if (done && std::from_chars(done->said.data(), end, its, 16).ptr == end) {
      sum += its;
      continue;
    }
    Lock lock(mutex_);
    why_not_hashed_ = done ? "the program's answer cannot be read" : done.error().message();
    return Error(why_not_hashed_);
  }
  return WordHash::finished(sum, runs);
}

std::string DeviceProxy::why_not_hashed() {
  Lock lock(mutex_);
  return why_not_hashed_;
}

Result<void> DeviceProxy::write(std::uint64_t at, const std::byte* bytes, std::size_t count) {
  if (bytes >= arena_->data() && bytes + count <= arena_->data() + arena_->bytes()) {
    const auto offset = static_cast<std::uint64_t>(bytes - arena_->data());
    const auto done = tasks_.run({DeviceTask::Kind::to_device, 0, 0, {{offset, at, count}}});
    return done ? Result<void>() : done.error();
  }
  const Run whole{0, at, count};
  return write({&whole, 1}, [&](std::span<std::byte> piece) -> Result<void> {
    std::memcpy(piece.data(), bytes, piece.size());
    bytes += piece.size();
    return {};
  });
}

Result<void> DeviceProxy::read(std::uint64_t at, std::byte* bytes, std::size_t count) {
  const Run whole{0, at, count};
  return read({&whole, 1}, [&](std::span<const std::byte> piece) -> Result<void> {
    std::memcpy(bytes, piece.data(), piece.size());
    bytes += piece.size();
    return {};
  });
}

std::span<std::byte> DeviceProxy::buffer(std::uint64_t number) const noexcept {
  return {arena_->data() + staging_ + number * kBuffer, kBuffer};
}

Result<void> DeviceProxy::read(std::span<const Run> runs, const Take& take) {
  Lock lock(staging_mutex_);
  Pieces pieces(runs);
  const auto copy = [&](const Pieces::Piece& piece, std::uint64_t buffer) {
    DeviceTask task{DeviceTask::Kind::to_host};
    for (const auto& [at, offset, bytes] : piece.parts)
      task.runs.push_back({at, staging_ + buffer * kBuffer + offset, bytes});
    const auto done = tasks_.run(task);
    return done ? Result<void>() : done.error();
  };
  Pieces::Piece now = pieces.next();
  Result<void> good = now.bytes > 0 ? copy(now, 0) : Result<void>();
  for (std::uint64_t at = 0; good.ok() && now.bytes > 0; at ^= 1) {
    Pieces::Piece next = pieces.next();
    Beside coming;
    if (next.bytes > 0) coming.start([&] { return copy(next, at ^ 1); });
    auto taken = take(buffer(at).first(now.bytes));
    good = coming.wait();
    if (!taken) return taken;
    now = std::move(next);
  }
  return good;
}

Result<void> DeviceProxy::write(std::span<const Run> runs, const Give& give) {
  Lock lock(staging_mutex_);
  Pieces pieces(runs);
  Beside going;
  Result<void> good;
  std::uint64_t at = 0;
  for (auto piece = pieces.next(); good.ok() && piece.bytes > 0; piece = pieces.next(), at ^= 1) {
    good = give(buffer(at).first(piece.bytes));
    // When a piece is begun, the previous one has left the other buffer.
    if (auto gone = going.wait(); good.ok()) good = std::move(gone);
    if (good.ok())
      going.start([this, piece, at]() -> Result<void> {
        DeviceTask task{DeviceTask::Kind::to_device};
        for (const auto& [to, offset, bytes] : piece.parts)
          task.runs.push_back({staging_ + at * kBuffer + offset, to, bytes});
        const auto done = tasks_.run(task);
        return done ? Result<void>() : done.error();
      });
  }
  auto gone = going.wait();
  return good.ok() ? gone : good;
}

std::unique_ptr<Transport> from_own_memory(std::shared_ptr<DeviceProxy> from,
                                           std::shared_ptr<DeviceProxy> to, std::uint64_t slab,
                                           Descriptor fd) {
  return std::make_unique<BounceTransport>(std::move(from), std::move(to), slab, std::move(fd));
}

std::unique_ptr<Transport> from_mapped_gpu(std::shared_ptr<DeviceProxy> proxy, MappedGpu mapped,
                                           Memory from) {
  return std::make_unique<MappedTransport>(std::move(proxy), std::move(mapped), from);
}

}  // namespace swell::runtime
