// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/fetcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "runtime/quiet_thread.h"
#include "runtime/transport/ucx_link.h"

namespace swell::runtime {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns another shim's arena, mapped here; nullptr if its socket cannot be seen from here, for
/// example because each job has its own /tmp.
std::shared_ptr<const Arena> arena_behind(const std::string& unix_socket) {
  auto channel = Channel::connect_unix(unix_socket);
  if (!channel) return nullptr;
  auto answer = ask(*channel, Op::arena, {}, within(std::chrono::seconds(10)));
  if (!answer) return nullptr;
  auto arena = Arena::map(std::move(answer->fd), ByteReader(answer->body).get<std::uint64_t>());
  return arena ? std::make_shared<const Arena>(std::move(*arena)) : nullptr;
}

/// Returns whether the memory of a program on this host can be read from here.
bool may_read(const Fetcher::Self& self, const Endpoint& endpoint, const Fetch& fetch) {
  std::byte probe;
  return endpoint.program_pid > 0 && endpoint.processes == self.processes && !fetch.runs.empty() &&
         Sink::program(endpoint.program_pid).read(fetch.runs.front().from, &probe, 1).ok();
}

/// Maps the memory that will be read, before the training stops.
void look_ahead(const Arena& arena, std::int32_t rank, const std::vector<Fetch>& fetches) {
  for (const Fetch& fetch : fetches) {
    if (fetch.rank != rank || fetch.from != Memory::arena) continue;
    for (const Run& run : fetch.runs)
      if (run.bytes >= Transport::kStaging && arena.has(run.from, run.bytes))
        arena.look_ahead(run.from, run.bytes);
  }
}

}  // namespace

Result<Fetcher> Fetcher::open(const Self& self, const Prepare& plan,
                              const std::vector<Fetch>& fetches) {
  Fetcher made(self.arena, self.proxy);
  for (const Fetch& fetch : fetches) {
    auto& source = made.sources_[source_of(fetch)];
    if (source != nullptr) continue;
    const Endpoint& endpoint = plan.from[static_cast<std::size_t>(fetch.rank)].endpoint;
    const bool is_near = endpoint.host == self.host;
    if (is_on_gpu(fetch.from)) {
      auto reached = made.reach_gpu(self, plan, fetch, fetches);
      if (!reached)
        return reached.error().while_doing(
            fmt::format("the way to the GPU of old rank {}", fetch.rank));
      source = std::move(*reached);
      continue;
    }
    if (is_near && fetch.from == Memory::program && may_read(self, endpoint, fetch)) {
      source = from_program(endpoint.program_pid);
      continue;
    }
    if (fetch.from == Memory::arena) {
      auto arena = fetch.rank == plan.old_rank ? self.arena
                   : is_near                   ? arena_behind(endpoint.unix_socket)
                                               : nullptr;
      if (arena != nullptr) {
        if (arena != self.arena) look_ahead(*arena, fetch.rank, fetches);
        source = from_mapped(std::move(arena));
        continue;
      }
    }
    const std::string what = fmt::format("the way to old rank {}", fetch.rank);
    if (endpoint.tcp.empty())
      return Error(fmt::format("{}: it is on another host and does not listen there", what));
    auto reached = reach(self, endpoint, fetch.from, made.notes_);
    if (!reached) return reached.error().while_doing(what);
    source = std::move(*reached);
  }
  return made;
}

Result<std::unique_ptr<Transport>> Fetcher::reach(const Self& self, const Endpoint& endpoint,
                                                  Memory memory, std::set<std::string>& notes) {
  const auto connected = [&]() -> Result<std::shared_ptr<Channel>> {
    auto channel = Channel::connect_tcp(endpoint.tcp, self.key, within(std::chrono::seconds(10)));
    if (!channel) return channel.error();
    return std::make_shared<Channel>(std::move(*channel));
  };
  auto channel = connected();
  if (!channel) return channel.error();
  if (self.ucx) {
    const auto ucx = self.ucx();
    auto link =
        ucx ? UcxLink::connect(*ucx, **channel) : Result<std::unique_ptr<UcxLink>>(ucx.error());
    if (link) return from_link(std::move(*channel), std::move(*link), memory);
    notes.insert(fmt::format("state comes by TCP, not UCX: {}", link.error().message()));
    // A half-finished handshake makes the old connection useless: connect again.
    if (channel = connected(); !channel) return channel.error();
  }
  return from_network(std::move(*channel), memory, endpoint.host == self.host);
}

Sink Fetcher::sink_of(const Fetch& fetch, pid_t program) const {
  return fetch.to == Memory::program ? Sink::program(program)
         : is_on_gpu(fetch.to)       ? Sink::device(*proxy_)
                                     : Sink::arena(*arena_);
}

/// Fetches `runs`, and compares the checksum of what arrived.
Result<void> Fetcher::fetch_runs(Transport& source, std::span<const Run> runs, const Sink& sink,
                                 Checksum by) {
  const auto expected = source.fetch(runs, sink, by);
  if (!expected) return expected.error();
  if (by == Checksum::none) return {};
  const auto found = sink.hash_of(runs, by);
  if (!found) return found.error();
  if (*found == *expected) return {};
  // A shim of an earlier version answers with xxHash's checksum, whatever the request says.
  if (by == Checksum::words)
    if (const auto other = sink.hash_of(runs, Checksum::xxhash); other && *other == *expected)
      return {};
  return Error(
      fmt::format("the state has checksum {:016x} here; there it is {:016x}", *found, *expected));
}

Result<void> Fetcher::fetch_one(const Fetch& fetch, pid_t program, Verify verify) const {
  Transport& source = *sources_.at(source_of(fetch));
  const bool compares =
      verify == Verify::all || (verify == Verify::network && source.crosses_network());
  const Sink sink = sink_of(fetch, program);
  // Both ends compute the same kind; WordHash on a GPU needs no copy to the host.
  const Checksum by = !compares                                   ? Checksum::none
                      : sink.is_device() || is_on_gpu(fetch.from) ? Checksum::words
                                                                  : Checksum::xxhash;
  // Each piece for a GPU costs a request to its program.
  const std::uint64_t most_bytes = sink.is_device() ? UINT64_MAX : source.piece_bytes();
  Result<void> good;
  std::vector<Run> piece;
  std::uint64_t bytes = 0;
  const auto flush = [&] {
    if (good.ok() && bytes > 0) good = fetch_runs(source, piece, sink, by);
    piece.clear();
    bytes = 0;
  };
  for (Run run : fetch.runs)
    while (good.ok() && run.bytes > 0) {
      const auto count = std::min(run.bytes, most_bytes - bytes);
      piece.push_back({run.from, run.to, count});
      run = {run.from + count, run.to + count, run.bytes - count};
      bytes += count;
      if (bytes == most_bytes || piece.size() == Transport::kMostRuns) flush();
    }
  flush();
  if (good.ok()) return good;
  return good.error().while_doing(fmt::format("moving state from old rank {}", fetch.rank));
}

/// Fetches these in order, except that two threads may take turns.
Result<void> Fetcher::fetch_some(std::span<const Fetch* const> fetches, pid_t program,
                                 Verify verify, const Watch& watch) const {
  // Fetches that several threads may do, and those that only this thread does.
  std::vector<const Fetch*> shared, own;
  for (const Fetch* fetch : fetches)
    (sources_.at(source_of(*fetch))->is_parallel() ? shared : own).push_back(fetch);
  Mutex mutex;
  Result<void> good;
  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> next = 0;
  const auto take = [&](const Fetch& fetch) {
    auto done =
        watch.is_called_off(fetch) ? Result<void>(called_off()) : fetch_one(fetch, program, verify);
    if (done.ok()) {
      if (watch.has_come) watch.has_come(fetch);
      return;
    }
    Lock lock(mutex);
    if (!is_over.exchange(true)) good = std::move(done);
  };
  const auto take_shared = [&] {
    for (std::size_t i; !is_over && (i = next++) < shared.size();) take(*shared[i]);
  };
  // One thread cannot use the full memory bandwidth.
  Result<std::thread> helper = std::thread();
  if (shared.size() > 1 && std::thread::hardware_concurrency() > 1)
    helper = quiet_thread(take_shared);
  for (const Fetch* fetch : own)
    if (!is_over) take(*fetch);
  take_shared();
  if (helper && helper->joinable()) helper->join();
  return good;
}

Result<void> Fetcher::let_go(std::uint32_t chunk) const {
  for (const auto& [source, way] : sources_)
    if (auto good = way->let_go(chunk); !good) return good;
  return {};
}

Result<Moved> Fetcher::fetch_all(const Placement& placement, pid_t program, Verify verify,
                                 const Watch& watch) {
  std::vector<const Fetch*> only_there, rest;
  for (const Fetch& fetch : placement.fetches)
    (fetch.only_there ? only_there : rest).push_back(&fetch);
  const auto start = Clock::now();
  auto good = fetch_some(only_there, program, verify, watch);
  if (good.ok()) good = fetch_some(rest, program, verify, watch);
  if (!good) return good.error();
  Moved moved;
  moved.move_s = since(start);
  std::map<std::string, std::uint64_t> by_path;
  for (const Fetch& fetch : placement.fetches) {
    std::string path = sources_.at(source_of(fetch))->name();
    if (fetch.to == Memory::program_device) path += kToOwnGpu;
    else if (fetch.to == Memory::device && !path.starts_with(kDeviceToDevice)) path += kToGpu;
    by_path[path] += fetch.bytes();
  }
  if (placement.kept_bytes > 0) by_path["in place"] = placement.kept_bytes;
  for (const auto& [path, bytes] : by_path) moved.paths.push_back({path, bytes});
  for (const auto& [source, way] : sources_)
    if (std::string note = way->note(); !note.empty()) notes_.insert(std::move(note));
  if (proxy_ != nullptr)
    if (const std::string why = proxy_->why_not_hashed(); !why.empty())
      notes_.insert(fmt::format("checksums of state on GPUs are made on the host: {}", why));
  moved.notes.assign(notes_.begin(), notes_.end());
  return moved;
}

}  // namespace swell::runtime
