// SPDX-License-Identifier: BSD-3-Clause
// Of the intake: the ways from GPUs.
#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "runtime/intake.h"

namespace swell::runtime {

namespace {

/// A slab of another keeper, or of this one.
struct Share {
  std::string gpu;
  std::uint64_t bytes = 0;
  Descriptor fd;
};

Result<Share> share_of(Channel& keeper, std::uint64_t slab) {
  auto answer = ask(keeper, Op::slab, Writer().put(slab).take(), within(std::chrono::seconds(10)));
  if (!answer) return answer.error();
  Reader reader(answer->body);
  Share share{reader.text(4096), reader.get<std::uint64_t>(), std::move(answer->fd)};
  if (!reader.done() || !share.fd) return Error("a shim passed no memory of its GPU");
  return share;
}

struct Mapped {
  std::map<std::uint64_t, MappedSlab> places;  ///< by slab of the source
  bool is_same_gpu = true;
};

/// Has the new program map all slabs of `rank` that are read.
Result<Mapped> map_slabs(const Intake::Self& self, Channel& keeper, std::int32_t rank,
                         const std::vector<Fetch>& fetches) {
  Mapped mapped;
  for (const Fetch& fetch : fetches) {
    if (fetch.rank != rank || fetch.from != Memory::device || !is_on_gpu(fetch.to)) continue;
    for (const Run& run : fetch.runs) {
      const std::uint64_t slab = DevicePlace::slab(run.from);
      if (const auto known = mapped.places.find(slab); known != mapped.places.end()) {
        std::uint32_t& last = known->second.last_chunk;
        last = std::max(last, fetch.chunk);
        continue;
      }
      const auto share = share_of(keeper, slab);
      if (!share) return share.error();
      const std::uint64_t number = self.next_slab();
      if (auto good = self.hand->map(number, share->bytes, share->fd.get()); !good)
        return good.error();
      mapped.places[slab] = {number, fetch.chunk};
      mapped.is_same_gpu = mapped.is_same_gpu && share->gpu == self.hand->gpu();
    }
  }
  return mapped;
}

}  // namespace

Result<std::unique_ptr<Transport>> Intake::reach_gpu(const Self& self, const Prepare& plan,
                                                     const Fetch& fetch,
                                                     const std::vector<Fetch>& fetches) {
  const Endpoint& endpoint = plan.from[static_cast<std::size_t>(fetch.rank)].endpoint;
  auto near = endpoint.host == self.host ? Channel::connect_unix(endpoint.unix_socket)
                                         : Result<Channel>(Error("it is on another host"));
  const bool is_near = near.ok(), is_to_gpu = is_on_gpu(fetch.to) && self.hand != nullptr;
  std::string why;  // it goes through host memory
  if (near && is_to_gpu && fetch.from == Memory::device) {
    auto mapped = map_slabs(self, *near, fetch.rank, fetches);
    if (mapped) return from_slabs(self.hand, std::move(mapped->places), mapped->is_same_gpu);
    why = fmt::format("state of a GPU of this node goes through host memory: {}",
                      mapped.error().message());
  }
  if (near && is_to_gpu && fetch.from == Memory::program_device && fetch.rank == plan.old_rank &&
      self.old_hand != nullptr && self.old_hand->gpu() == self.hand->gpu()) {
    const std::uint64_t slab = self.next_slab();
    auto fd = self.hand->create(slab, kBounce);
    if (fd) {
      extra_bytes_ += kBounce;
      return from_own_memory(self.old_hand, self.hand, slab, std::move(*fd));
    }
    notes_.insert(
        fmt::format("no memory is taken to copy state within a GPU: {}", fd.error().message()));
  }
  if (near && fetch.from == Memory::program_device)
    why =
        "state in GPU memory that programs allocated themselves goes through host memory; "
        "without an address it would be Swell's, and stay in place where the plan lets it";
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

Result<std::shared_ptr<NcclLink>> Intake::pair_with(const Self& self, const Endpoint& endpoint,
                                                    std::int32_t rank) {
  if (const auto known = pairs_.find(rank); known != pairs_.end()) return known->second;
  const auto connect = [&]() -> Result<std::shared_ptr<NcclLink>> {
    auto channel =
        endpoint.host == self.host
            ? Channel::connect_unix(endpoint.unix_socket)
            : Channel::connect_tcp(endpoint.tcp, self.key, within(std::chrono::seconds(10)));
    if (!channel) return channel.error();
    return NcclLink::connect(std::move(*channel), self.hand, self.next_slab(), *self.nccl);
  };
  return pairs_.emplace(rank, connect()).first->second;
}

}  // namespace swell::runtime
