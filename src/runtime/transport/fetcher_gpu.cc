// SPDX-License-Identifier: BSD-3-Clause
// Part of the fetcher: the paths from GPUs.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <utility>

#include "runtime/transport/fetcher.h"

namespace swell::runtime {

namespace {

constexpr std::chrono::seconds kAnswerTime(10);

/// Has the new program map a slab of another keeper, or of this one, in addition to what is mapped.
Result<void> map_slab(const Fetcher::Self& self, Channel& keeper, std::uint64_t at,
                      MappedGpu& mapped) {
  const std::uint64_t slab = DevicePlace::slab(at);
  auto answer = ask(keeper, Op::slab, ByteWriter().put(slab).take(), within(kAnswerTime));
  if (!answer) return answer.error();
  ByteReader reader(answer->body);
  const std::string gpu = reader.text(4096);
  const auto bytes = reader.get<std::uint64_t>();
  if (!reader.done() || !answer->fd) return Error("a shim passed no memory of its GPU");
  const std::uint64_t number = self.next_slab();
  if (auto good = self.proxy->map(number, bytes, answer->fd.get()); !good) return good;
  mapped.pieces[DevicePlace::of(slab, 0)] = {number, bytes};
  mapped.is_same_gpu = mapped.is_same_gpu && gpu == self.proxy->gpu();
  return {};
}

Result<Message> ask_for_own(Channel& keeper, std::uint64_t at) {
  return ask(keeper, Op::own, ByteWriter().put(DevicePlace::address(at)).take(),
             within(kAnswerTime));
}

/// Does the same for memory that the program there allocated itself.
Result<void> map_own(const Fetcher::Self& self, Channel& keeper, std::uint64_t at,
                     MappedGpu& mapped) {
  const auto answer = ask_for_own(keeper, at);
  if (!answer) return answer.error();
  ByteReader reader(answer->body);
  const std::string gpu = reader.text(4096);
  const std::string its = reader.text(4096);
  if (!reader.done()) return Error("a shim passed no memory of its program");
  const auto share = read_own_share(its, answer->fd);
  if (!share) return share.error();
  const std::uint64_t number = self.next_slab();
  if (auto good = self.proxy->map(number, *share); !good) return good;
  mapped.pieces[DevicePlace::own(share->address)] = {number, share->bytes};
  mapped.is_same_gpu = mapped.is_same_gpu && gpu == self.proxy->gpu();
  return {};
}

/// Has the new program map all GPU memory, of the kind of `first.from`, that is read from its rank,
/// in addition to what is mapped.
Result<void> map_all(const Fetcher::Self& self, Channel& keeper, const Fetch& first,
                     const std::vector<Fetch>& fetches, MappedGpu& mapped) {
  const auto map_piece = first.from == Memory::device ? map_slab : map_own;
  for (const Fetch& fetch : fetches) {
    if (fetch.rank != first.rank || fetch.from != first.from || !is_on_gpu(fetch.to)) continue;
    for (const Run& run : fetch.runs)
      for (std::uint64_t at = run.from; at < run.from + run.bytes;) {
        if (mapped.find(at) == mapped.pieces.end())
          if (auto good = map_piece(self, keeper, at, mapped); !good) return good;
        const auto its = mapped.find(at);
        if (its == mapped.pieces.end()) return Error("a shim shared other memory");
        its->second.last_chunk = std::max(its->second.last_chunk, fetch.chunk);
        at = its->first + its->second.bytes;
      }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> Fetcher::reach_gpu(const Self& self, const Prepare& plan,
                                                      const Fetch& fetch,
                                                      const std::vector<Fetch>& fetches) {
  const Endpoint& endpoint = plan.from[static_cast<std::size_t>(fetch.rank)].endpoint;
  auto near = endpoint.host == self.host ? Channel::connect_unix(endpoint.unix_socket)
                                         : Result<Channel>(Error("it is on another host"));
  const bool is_near = near.ok(), is_to_gpu = is_on_gpu(fetch.to) && self.proxy != nullptr;
  std::string why;  // why it goes through host memory
  std::string why_not_mapped;
  if (near && is_to_gpu) {
    MappedGpu mapped;
    auto good = map_all(self, *near, fetch, fetches, mapped);
    if (good) {
      // A program's own memory is lost when the program dies.
      if (fetch.from == Memory::program_device && !mapped.pieces.empty())
        mapped.is_there = [keeper = std::make_shared<Channel>(std::move(*near)),
                           at = mapped.pieces.begin()->first]() -> Result<void> {
          const auto answer = ask_for_own(*keeper, at);
          return answer ? Result<void>() : answer.error();
        };
      return from_mapped_gpu(self.proxy, std::move(mapped), fetch.from);
    }
    for (const auto& [place, piece] : mapped.pieces)
      static_cast<void>(self.proxy->unmap(piece.slab));
    why_not_mapped = good.error().message();
    why = fmt::format("state of a GPU of this node goes through host memory: {}", why_not_mapped);
  }
  if (near && is_to_gpu && fetch.from == Memory::program_device && fetch.rank == plan.old_rank &&
      self.old_proxy != nullptr && self.old_proxy->gpu() == self.proxy->gpu()) {
    const std::uint64_t slab = self.next_slab();
    auto fd = self.proxy->create(slab, kBounce);
    if (fd) {
      extra_bytes_ += kBounce;
      return from_own_memory(self.old_proxy, self.proxy, slab, std::move(*fd));
    }
    notes_.insert(
        fmt::format("no memory is taken to copy state within a GPU: {}", fd.error().message()));
  }
  if (near && fetch.from == Memory::program_device)
    why = fmt::format(
        "state in GPU memory that programs allocated themselves goes through host memory{}; "
        "without an address it would be Swell's, and stay in place where the plan lets it",
        is_to_gpu ? fmt::format(", as it cannot be mapped: {}", why_not_mapped) : "");
  if (!near) why = "state on GPUs goes through host memory between nodes";
  std::set<std::string> notes;
  auto through_hosts =
      near ? from_network(std::make_shared<Channel>(std::move(*near)), fetch.from, true)
           : reach(self, endpoint, fetch.from, notes);
  if (!through_hosts) return through_hosts;
  if (self.nccl && is_to_gpu) {
    auto pair = pair_with(self, endpoint, fetch.rank);
    if (pair) return from_nccl(std::move(*pair), std::move(*through_hosts), fetch.from, is_near);
    why += fmt::format("; NCCL is not used: {}", pair.error().message());
  }
  notes_.merge(notes);
  if (!why.empty()) notes_.insert(std::move(why));
  return through_hosts;
}

Result<std::shared_ptr<NcclLink>> Fetcher::pair_with(const Self& self, const Endpoint& endpoint,
                                                     std::int32_t rank) {
  if (const auto known = pairs_.find(rank); known != pairs_.end()) return known->second;
  const auto connect = [&]() -> Result<std::shared_ptr<NcclLink>> {
    auto channel =
        endpoint.host == self.host
            ? Channel::connect_unix(endpoint.unix_socket)
            : Channel::connect_tcp(endpoint.tcp, self.key, within(std::chrono::seconds(10)));
    if (!channel) return channel.error();
    return NcclLink::connect(std::move(*channel), self.proxy, self.next_slab(), *self.nccl);
  };
  return pairs_.emplace(rank, connect()).first->second;
}

}  // namespace swell::runtime
