// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/device_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/mutex.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

Result<std::unique_ptr<DeviceState>> DeviceState::open(int ordinal, const std::string& library) {
  auto device = Device::open(ordinal, library);
  if (!device) return device.error();
  auto state = std::make_unique<DeviceState>();
  state->device_ = std::move(*device);
  // Compile now, while no one waits for it. If it fails, the first checksum reports why.
  if (auto hash = GpuHash::create(state->device_)) state->hash_ = std::move(*hash);
  return state;
}

Result<void> DeviceState::take(std::uint64_t slab, std::uint64_t bytes) {
  auto made = Slab::create(device_, bytes);
  if (!made) return made.error();
  slabs_.insert_or_assign(slab, std::move(*made));
  return {};
}

Result<void> DeviceState::add_own(DeviceAddress at, std::uint64_t bytes) {
  if (auto good = device_->check_memory(at, bytes); !good) return good;
  own_.emplace_back(at, bytes);
  return {};
}

Result<void> DeviceState::each_own_share(
    const std::function<Result<void>(const OwnShare&)>& use) const {
  auto tensors = own_;
  std::sort(tensors.begin(), tensors.end());
  std::size_t count = 0;
  DeviceAddress end = 0;  // of the allocation that was used last
  for (const auto& [first, bytes] : tensors)
    for (DeviceAddress at = std::max(first, end); at < first + bytes; at = end) {
      if (++count > OwnShare::kMost)
        return Error(fmt::format("it stands in more than {} pieces", OwnShare::kMost));
      const auto share = device_->share_own(at);
      if (!share) return share.error();
      if (!share->has(at)) return Error("the driver names another allocation");
      if (auto good = use(*share); !good) return good;
      end = share->address + share->bytes;
    }
  return {};
}

void DeviceState::stage_in(std::span<std::byte> staging) {
  if (auto made = Registered::create(device_, staging.data(), staging.size()))
    staging_ = std::move(*made);
}

Result<DeviceAddress> DeviceState::address(std::uint64_t at, std::uint64_t bytes) const {
  if (DevicePlace::is_own(at)) {
    const DeviceAddress address = DevicePlace::address(at);
    if (std::any_of(own_.begin(), own_.end(), [&](const auto& own) {
          return address >= own.first && address - own.first <= own.second &&
                 bytes <= own.second - (address - own.first);
        }))
      return address;
    return Error(
        fmt::format("{} bytes at address {:#x} of the GPU are of no tensor that is "
                    "registered here",
                    bytes, address));
  }
  const auto slab = slabs_.find(DevicePlace::slab(at));
  const std::uint64_t offset = DevicePlace::offset(at);
  if (slab == slabs_.end() || offset > slab->second.bytes() ||
      bytes > slab->second.bytes() - offset)
    return Error(
        fmt::format("{} bytes at {} are in no memory of the GPU that is mapped here", bytes, at));
  return slab->second.address() + offset;
}

void DeviceState::drop() {
  end_service();
  // A call that hangs in NCCL may still read or write slabs, so they stay until the process ends.
  if (nccl_ != nullptr && nccl_->is_stuck()) {
    static auto& mutex = *new Mutex;
    static auto* const kept = new std::vector<std::map<std::uint64_t, Slab>>;
    Lock lock(mutex);
    kept->push_back(std::move(slabs_));
  }
  slabs_.clear();
  own_.clear();
}

Result<std::string> DeviceState::perform_hash(const DeviceTask& task) {
  if (hash_ == nullptr) {
    auto made = GpuHash::create(device_);
    if (!made) return made.error();
    hash_ = std::move(*made);
  }
  std::vector<Run> runs;
  for (const Run& run : task.runs) {
    const auto at = address(run.from, run.bytes);
    if (!at) return at.error();
    runs.push_back({*at, 0, run.bytes});
  }
  const auto sum = hash_->sum(runs, task.bytes);
  if (!sum) return sum.error();
  return fmt::format("{:016x}", *sum);
}

Result<std::string> DeviceState::perform_nccl(const DeviceTask& task,
                                              const NcclState::IsOff& is_off) {
  using Do = DeviceTask::Kind;
  if (nccl_ == nullptr) nccl_ = std::make_unique<NcclState>(device_);
  if (task.kind == Do::nccl_open) return nccl_->open();
  if (task.kind == Do::nccl_id) return nccl_->make_id();
  const NcclState::Milliseconds limit(std::min<std::uint64_t>(task.bytes, 600'000));
  Result<void> good;
  if (task.kind == Do::nccl_join) {
    good = nccl_->join(task.slab, task.id, task.rank, limit, is_off);
  } else {
    const bool sends = task.kind == Do::nccl_send;
    std::vector<Run> runs;
    for (const Run& run : task.runs) {
      const auto at = address(sends ? run.from : run.to, run.bytes);
      if (!at) return at.error();
      runs.push_back({*at, 0, run.bytes});
    }
    good = nccl_->transfer(task.slab, sends, runs, limit, is_off);
  }
  if (!good) return good.error();
  return std::string();
}

Result<DeviceState::Done> DeviceState::perform(const DeviceTask& task, const Message& message,
                                               const Arena& arena, const NcclState::IsOff& is_off) {
  if (task.kind == DeviceTask::Kind::create) {
    if (auto good = take(task.slab, task.bytes); !good) return good.error();
    auto fd = slabs_.at(task.slab).share();
    if (!fd) return fd.error();
    return Done{std::move(*fd)};
  }
  if (task.kind == DeviceTask::Kind::map_handle) {
    auto made = Slab::import(device_, std::string_view(task.id), task.bytes);
    if (!made) return made.error();
    slabs_.insert_or_assign(task.slab, std::move(*made));
    return Done();
  }
  if (task.kind >= DeviceTask::Kind::nccl_open) {
    auto said =
        task.kind == DeviceTask::Kind::hash ? perform_hash(task) : perform_nccl(task, is_off);
    if (!said) return said.error();
    return Done{{}, std::move(*said)};
  }
  if (task.kind == DeviceTask::Kind::map) {
    auto made = Slab::import(device_, message.fd, task.bytes);
    if (!made) return made.error();
    slabs_.insert_or_assign(task.slab, std::move(*made));
    return Done();
  }
  if (task.kind == DeviceTask::Kind::unmap) {
    slabs_.erase(task.slab);
    return Done();
  }
  std::vector<Run> copies;
  std::vector<Device::HostCopy> host_copies;
  for (const Run& run : task.runs) {
    const bool is_read = task.kind != DeviceTask::Kind::to_device,
               is_written = task.kind != DeviceTask::Kind::to_host;
    const auto from = is_read ? address(run.from, run.bytes) : Result<DeviceAddress>(run.from);
    const auto to = is_written ? address(run.to, run.bytes) : Result<DeviceAddress>(run.to);
    if (!from) return from.error();
    if (!to) return to.error();
    if (task.kind == DeviceTask::Kind::copy) {
      copies.push_back({*from, *to, run.bytes});
      continue;
    }
    if (!arena.has(is_read ? run.to : run.from, run.bytes))
      return Error(fmt::format("{} bytes at {} are outside of the arena", run.bytes,
                               is_read ? run.to : run.from));
    host_copies.push_back(
        {arena.data() + (is_read ? run.to : run.from), is_read ? *from : *to, run.bytes});
  }
  const auto good = task.kind == DeviceTask::Kind::copy      ? device_->copy(copies)
                    : task.kind == DeviceTask::Kind::to_host ? device_->to_host(host_copies)
                                                             : device_->to_device(host_copies);
  if (!good) return good.error();
  return Done();
}

Result<void> DeviceState::serve(Channel& channel, const Message& message, const Arena& arena) {
  const auto task = read_task(message.body);
  // The task to be cancelled has ended already.
  if (task && task->kind == DeviceTask::Kind::cancel) return {};
  const auto done = task ? perform(*task, message, arena, [&] { return channel.has_news(); })
                         : Result<Done>(task.error());
  ByteWriter answer;
  answer.put<std::uint8_t>(done.ok()).text(done ? done->said : done.error().message());
  // Shims of an earlier version do not read the shortage.
  if (!done && task && task->kind == DeviceTask::Kind::create && !task->runs.empty())
    put_shortage(answer, done.error().shortage());
  return channel.send(static_cast<std::uint16_t>(Op::task_done), answer.take(),
                      done ? done->fd.get() : -1);
}

}  // namespace swell::runtime
