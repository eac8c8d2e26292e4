// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: GPU memory, which programs allocate and map, and of which the keeper holds
// the descriptors.
#include <algorithm>
#include <fmt/format.h>

#include "base/mutex.h"
#include "runtime/keeper/keeper.h"

namespace swell::runtime {

static_assert(static_cast<std::uint16_t>(Op::nccl) == kNcclOp &&
              static_cast<std::uint16_t>(Op::ucx) == kUcxOp);

/// Takes the GPU on which a program's tensors will stand.
Result<std::string> Keeper::take_device(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  std::string gpu = reader.text(256);
  const auto granularity = reader.get<std::uint64_t>();
  if (!reader.done() || gpu.empty() || granularity == 0 || granularity > std::uint64_t{1} << 40)
    return Error("a program names its GPU and the granularity of its memory");
  if (!peer.is_unix) return Error("programs of other nodes have a shim of their own");
  Lock lock(mutex_);
  if (peer.proxy != nullptr || peer.has_declared)
    return Error("a program names its GPU once, before it declares its tensors");
  const auto staging = store_.take(DeviceProxy::kStaging);
  if (!staging) return staging.error().while_doing("memory beside a GPU");
  store_.use(*staging, DeviceProxy::kStaging);
  // Allocate it now, so that a switch does not need it in addition to its state.
  if (auto good = arena_->populate(*staging, DeviceProxy::kStaging); !good) {
    store_.drop(*staging, DeviceProxy::kStaging);
    return good.error().while_doing("memory beside a GPU");
  }
  peer.proxy =
      std::make_shared<DeviceProxy>(peer.channel, arena_, *staging, std::move(gpu), granularity);
  return ByteWriter().put(*staging).put(DeviceProxy::kStaging).take();
}

/// Takes the program's report of how others map the GPU memory that it allocated itself.
Result<std::string> Keeper::take_own(Peer& peer, const Message& message) {
  auto share = read_own_share(message.body, message.fd);
  if (!share) return share.error();
  Lock lock(mutex_);
  if (!peer.is_unix || peer.proxy == nullptr || peer.has_declared)
    return Error("a program names its own memory after its GPU, before it declares its tensors");
  if (peer.own.size() == OwnShare::kMost)
    return Error(
        fmt::format("a program's own GPU memory is in more than {} pieces", OwnShare::kMost));
  peer.own.push_back(std::move(*share));
  return std::string();
}

/// Passes the program's own GPU allocation at an address to another shim of this node, or to this
/// one.
Result<void> Keeper::give_own(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  const auto at = reader.get<std::uint64_t>();
  std::string why = "the program that had the GPU memory is gone", answer;
  std::shared_ptr<const Descriptor> fd;
  {
    Lock lock(mutex_);
    if (reader.done() && peer.is_unix && program_ != nullptr && program_->proxy != nullptr &&
        !program_->channel.has_left()) {
      const auto& own = program_->own;
      const auto its = std::find_if(own.begin(), own.end(),
                                    [&](const OwnShare& share) { return share.has(at); });
      if (its == own.end()) {
        why = "the driver does not share it";
      } else {
        fd = its->fd;
        answer = ByteWriter().text(program_->proxy->gpu()).text(write(*its)).take();
      }
    }
  }
  if (!answer.empty()) return peer.channel.send(kDoneOp, answer, fd != nullptr ? fd->get() : -1);
  return peer.channel.send(kRefusedOp, ByteWriter().text(why).take());
}

/// Passes a slab to another shim of this node, or to this one.
Result<void> Keeper::give_slab(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  const auto number = reader.get<std::uint64_t>();
  std::shared_ptr<const Descriptor> fd;
  std::string answer;
  {
    Lock lock(mutex_);
    const Slabs::Slab* slab = store_.slabs().find(number);
    if (reader.done() && peer.is_unix && slab != nullptr && slab->fd != nullptr) {
      fd = slab->fd;
      answer = ByteWriter().text(slab->gpu).put(slab->bytes).take();
    }
  }
  if (fd != nullptr) return peer.channel.send(kDoneOp, answer, fd->get());
  return peer.channel.send(
      kRefusedOp,
      ByteWriter().text(fmt::format("there is no slab {} of a GPU here", number)).take());
}

/// Returns what other shims must know of GPU memory here before they plan in chunks.
GpuMemory Keeper::gpu_memory() {
  Lock lock(mutex_);
  GpuMemory memory;
  if (const Peer* waiting = waiting_program(); waiting != nullptr && waiting->proxy != nullptr) {
    memory.gpu = waiting->proxy->gpu();
    memory.granularity = waiting->proxy->granularity();
    memory.slab_bytes = options_.slab_bytes;
  }
  memory.slabs = store_.slabs().held();
  return memory;
}

namespace {

/// Has the program free the slabs of `fresh` that it allocated before `failed`. Returns the error;
/// if the GPU has too little memory, with all bytes that are needed, and all that are free then.
Error give_back(DeviceProxy& proxy, const std::vector<SlabSize>& fresh, std::uint64_t failed,
                const Error& error) {
  if (!error.shortage()) return error;
  Shortage all{0, error.shortage()->free_bytes};
  bool is_taken = true;
  for (const SlabSize& size : fresh) {
    all.needed_bytes += size.bytes;
    if (size.slab == failed) is_taken = false;
    if (!is_taken) continue;
    if (auto good = proxy.unmap(size.slab); !good) return good.error();
    all.free_bytes += size.bytes;
  }
  return Error(error.message(), all);
}

}  // namespace

/// Has the program allocate the memory that is new to it, and map what stays.
Result<void> Keeper::make_slabs(DeviceProxy& proxy, const std::vector<SlabSize>& fresh,
                                const std::set<std::uint64_t>& kept) {
  for (const SlabSize& size : fresh) {
    auto fd = proxy.create(size.slab, size.bytes);
    if (!fd) return give_back(proxy, fresh, size.slab, fd.error());
    Lock lock(mutex_);
    store_.slabs().set(size.slab, std::move(*fd));
  }
  for (const std::uint64_t number : kept) {
    Slabs::Slab slab;
    {
      Lock lock(mutex_);
      if (const Slabs::Slab* found = store_.slabs().find(number); found != nullptr) slab = *found;
    }
    if (slab.fd == nullptr) return Error("memory of a GPU that was to stay is gone");
    if (auto good = proxy.map(number, slab.bytes, slab.fd->get()); !good) return good;
  }
  return {};
}

/// Asks the program which NCCL it has, while it waits for its generation: this decides what it can
/// be asked to send later.
void Keeper::ask_for_nccl(DeviceProxy& proxy) const {
  if (options_.nccl) proxy.tasks().set_nccl(proxy.nccl({DeviceTask::Kind::nccl_open}));
}

/// Serves another shim whose program makes a communicator with the program that trains here, or
/// fetches over it.
Result<void> Keeper::answer_nccl(Peer& peer, std::string_view request) {
  NcclSource source;
  source.allowed = [this](const Run& run, Memory memory) {
    Lock lock(mutex_);
    return may_read_now(run, memory);
  };
  if (!options_.nccl)
    return peer.channel.send(kRefusedOp,
                             ByteWriter().text("it is not to be used where the state is").take());
  {
    Lock lock(mutex_);
    if (program_ != nullptr) source.proxy = program_->proxy;
    if (peer.pair == 0) peer.pair = store_.slabs().next_number();
    source.pair = peer.pair;
  }
  return serve_nccl(peer.channel, request, source);
}

void Keeper::use(const Held& held) {
  if (held.memory == Memory::device) store_.slabs().use(held.at);
  else store_.use(held.at, held.bytes());
}

/// Drops the peer's DeviceProxy, because its connection has ended: its GPU can no longer be used
/// through it.
void Keeper::forget_proxy(Peer& peer) {
  if (peer.proxy == nullptr) return;
  peer.proxy->tasks().lose();
  Lock lock(mutex_);
  store_.drop(peer.proxy->staging(), DeviceProxy::kStaging);
}

}  // namespace swell::runtime
