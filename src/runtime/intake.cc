// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/intake.h"

#include <chrono>
#include <fmt/format.h>

namespace swell::runtime {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Another shim's arena, mapped here; nullptr: its socket is not seen from here, as where each job
/// has a /tmp of its own.
std::shared_ptr<const Arena> arena_behind(const std::string& unix_socket) {
  auto channel = Channel::connect_unix(unix_socket);
  if (!channel) return nullptr;
  auto answer = ask(*channel, Op::arena, {}, within(std::chrono::seconds(10)));
  if (!answer) return nullptr;
  auto arena = Arena::map(std::move(answer->fd), Reader(answer->body).get<std::uint64_t>());
  return arena ? std::make_shared<const Arena>(std::move(*arena)) : nullptr;
}

/// Maps what will be read of it, before the training stops.
void look_ahead(const Arena& arena, std::int32_t rank, const std::vector<Fetch>& fetches) {
  for (const Fetch& fetch : fetches) {
    if (fetch.rank != rank || fetch.from_program) continue;
    for (const Run& run : fetch.runs)
      if (run.bytes >= Transport::kStaging && arena.has(run.from, run.bytes))
        arena.look_ahead(run.from, run.bytes);
  }
}

}  // namespace

Result<Intake> Intake::open(const Self& self, const Prepare& plan,
                            const std::vector<Fetch>& fetches) {
  Intake made(self.arena);
  for (const Fetch& fetch : fetches) {
    auto& source = made.sources_[{fetch.rank, fetch.from_program}];
    if (source != nullptr) continue;
    const Endpoint& endpoint = plan.from[static_cast<std::size_t>(fetch.rank)].endpoint;
    const bool is_near = endpoint.host == self.host;
    if (is_near && fetch.from_program && endpoint.program_pid > 0) {
      source = from_program(endpoint.program_pid);
      continue;
    }
    if (!fetch.from_program) {
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
    auto channel = Channel::connect_tcp(endpoint.tcp, self.key, within(std::chrono::seconds(10)));
    if (!channel) return channel.error().while_doing(what);
    source = from_network(std::make_shared<Channel>(std::move(*channel)), fetch.from_program);
  }
  return made;
}

Result<Moved> Intake::fetch_all(const Placement& placement, pid_t program, bool verify,
                                const std::function<bool()>& is_called_off) {
  const Sink arena = Sink::arena(*arena_), memory = Sink::program(program);
  Moved moved;
  std::map<std::string, std::uint64_t> by_path;
  std::vector<std::uint64_t> expected;
  auto start = Clock::now();
  for (const Fetch& fetch : placement.fetches) {
    if (is_called_off()) return Error(kCalledOff);
    Transport& source = *sources_.at({fetch.rank, fetch.from_program});
    const auto hash = source.fetch(fetch.runs, fetch.to_program ? memory : arena, verify);
    if (!hash)
      return hash.error().while_doing(fmt::format("moving state from old rank {}", fetch.rank));
    expected.push_back(*hash);
    by_path[source.name()] += fetch.bytes();
  }
  moved.move_s = since(start);
  start = Clock::now();
  for (std::size_t i = 0; verify && i < expected.size(); ++i) {
    const Fetch& fetch = placement.fetches[i];
    const auto found = (fetch.to_program ? memory : arena).hash_of(fetch.runs);
    if (!found) return found.error();
    if (*found != expected[i])
      return Error(
          fmt::format("state from old rank {} has checksum {:016x} here; there it is {:016x}",
                      fetch.rank, *found, expected[i]));
  }
  moved.verify_s = since(start);
  if (placement.kept_bytes > 0) by_path["in place"] = placement.kept_bytes;
  for (const auto& [path, bytes] : by_path) moved.paths.push_back({path, bytes});
  return moved;
}

}  // namespace swell::runtime
