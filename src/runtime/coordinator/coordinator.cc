// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/coordinator/coordinator.h"

#include <algorithm>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "core/count_of.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::string SwitchReport::summary() const {
  std::string text =
      committed ? fmt::format("generation {} at step {}", generation, step)
                : fmt::format("generation {} was called off in {}", generation, to_text(failed_in));
  if (!why.empty()) text += ": " + why;
  if (!committed) return text;
  text += fmt::format("; stopped {:.3f} s, ", quiesce_s);
  if (chunks > 0) text += fmt::format("secured {:.3f} s, ", secure_s);
  text += fmt::format("moved {:.3f} s, committed {:.3f} s; ", move_s, commit_s);
  if (chunks > 0)
    text += fmt::format("in {}, at most {} bytes beside the state", count_of(chunks, "chunk"),
                        max_extra_bytes);
  else text += fmt::format("{} bytes extra", max_extra_bytes);
  for (const PathBytes& path : paths) text += fmt::format("; {} {} bytes", path.path, path.bytes);
  return text;
}

Coordinator::Coordinator(cluster::Cluster cluster, Options options)
    : cluster_(std::move(cluster)),
      options_(std::move(options)),
      off_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

bool Coordinator::call_off() noexcept {
  auto expected = Verdict::open;
  const bool certain =
      verdict_.compare_exchange_strong(expected, Verdict::off) || expected == Verdict::off;
  if (!certain) return false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(off_.get(), &one, sizeof one);
  return true;
}

bool Coordinator::begin_commit() noexcept {
  auto expected = Verdict::open;
  return verdict_.compare_exchange_strong(expected, Verdict::committing);
}

Result<Message> Coordinator::ask_unless_off(Channel& channel, Op op, std::string_view body,
                                            Deadline deadline) const {
  if (auto sent = channel.send(static_cast<std::uint16_t>(op), body); !sent) return sent.error();
  return answer_unless_off(channel, deadline);
}

Result<Message> Coordinator::answer_unless_off(Channel& channel, Deadline deadline) const {
  for (;;) {
    pollfd polled[] = {{channel.fd(), POLLIN, 0}, {off_.get(), POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(polled, 2, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (polled[1].revents != 0 && ready > 0) return called_off();
    if (ready > 0 || left <= 0) break;
  }
  auto answer = channel.receive(deadline);
  if (!answer) return answer.error();
  if (answer->op != kDoneOp) return read_refusal(answer->body);
  return answer;
}

Result<Channel> Coordinator::reach(const Shim& shim, Deadline deadline) const {
  return shim.unix_socket.empty() ? Channel::connect_tcp(shim.tcp, options_.key, deadline)
                                  : Channel::connect_unix(shim.unix_socket);
}

bool Coordinator::stay(const std::vector<Shim>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [this](const Shim& rank) {
    auto channel = reach(rank);
    if (!channel) return false;
    const auto status = ask_unless_off(*channel, Op::status, {}, within(kAnswerTime));
    const auto read = status ? read_status(status->body) : Result<Status>(status.error());
    return read && read->stays;
  });
}

Result<void> Coordinator::begin(const std::vector<Shim>& ranks, std::uint64_t generation) {
  auto done = begin_all(ranks, generation);
  if (!done) abort_all(ranks);
  return done;
}

Result<void> Coordinator::begin_all(const std::vector<Shim>& ranks, std::uint64_t generation) {
  std::vector<Channel> channels;
  std::vector<RankState> states;
  const Deadline deadline = within(options_.prepare_limit);
  for (const Shim& rank : ranks) {
    auto channel = reach(rank);
    if (!channel) return channel.error();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const auto ready = ask_unless_off(
        *channel, Op::wait_ready,
        ByteWriter().put(static_cast<std::uint32_t>(std::max<std::int64_t>(left, 0))).take(),
        deadline + kAnswerTime);
    if (!ready) return ready.error();
    auto entries = read_entries(ready->body);
    if (!entries) return entries.error();
    states.push_back({rank.gpu, std::move(*entries)});
    channels.push_back(std::move(*channel));
  }
  if (const auto world = merge(states); !world) return world.error().while_doing("the first plan");
  guard_all(ranks, generation);  // before any step
  for (Channel& channel : channels)
    if (auto done = ask(channel, Op::begin, ByteWriter().put(generation).take(),
                        within(options_.commit_limit));
        !done)
      return done.error();
  return {};
}

/// Tells each rank's shim which shim keeps its snapshots. Prefers a shim that is not lent, then one
/// on another node, then a rank to a waiting shim, then the next one. A rank that is not told takes
/// no snapshots.
void Coordinator::guard_all(const std::vector<Shim>& ranks, std::uint64_t generation) const {
  std::vector<Shim> shims;
  std::vector<Channel> channels;
  std::vector<Endpoint> endpoints;
  const auto learn = [&](const Shim& shim) {
    auto channel = reach(shim);
    if (!channel) return false;
    const auto status = ask(*channel, Op::status, {}, within(kAnswerTime));
    const auto read = status ? read_status(status->body) : Result<Status>(status.error());
    if (!read) return false;
    shims.push_back(shim);
    endpoints.push_back(read->endpoint);
    channels.push_back(std::move(*channel));
    return true;
  };
  if (!std::all_of(ranks.begin(), ranks.end(), learn)) return;
  for (const Shim& shim : options_.waiting)
    if (std::none_of(ranks.begin(), ranks.end(), [&](const Shim& rank) {
          return rank.tcp == shim.tcp && rank.unix_socket == shim.unix_socket;
        }))
      learn(shim);  // a shim that is gone keeps no snapshots
  const std::size_t waiting = shims.size() - ranks.size();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Guard guard{
        generation, static_cast<std::int32_t>(rank), static_cast<std::uint32_t>(ranks.size()), {}};
    int best = -1;
    const auto consider = [&](std::size_t other) {
      const int merit = 2 * !shims[other].is_lent + (shims[other].gpu.node != ranks[rank].gpu.node);
      if (merit <= best) return;
      best = merit;
      guard.partner = endpoints[other];
    };
    for (std::size_t ahead = 1; ahead < ranks.size(); ++ahead)
      consider((rank + ahead) % ranks.size());
    for (std::size_t ahead = 0; ahead < waiting; ++ahead)
      consider(ranks.size() + (rank + ahead) % waiting);
    static_cast<void>(ask(channels[rank], Op::guard, write(guard), within(kAnswerTime)));
  }
}

Result<SwitchReport> Coordinator::recover(const std::vector<Shim>& holders,
                                          const std::vector<Shim>& to, std::uint64_t generation) {
  std::vector<Holder> found;
  for (const Shim& shim : holders) {
    auto channel = reach(shim);
    if (!channel) continue;
    const auto status = ask_unless_off(*channel, Op::status, {}, within(kAnswerTime));
    const auto held = ask_unless_off(*channel, Op::snapshots, {}, within(kAnswerTime));
    if (!status || !held) continue;
    const auto read = read_status(status->body);
    auto snapshots = read_snapshots(held->body);
    if (read && snapshots) found.push_back({shim.gpu, read->endpoint, std::move(*snapshots)});
  }
  const auto newest = newest_of(found);
  if (!newest) return Error(ErrorCode::not_found, "no snapshot has every rank's part");
  auto report = switch_from({}, &*newest, to, generation);
  if (!report) abort_all(to);  // so that no program waits for a generation that will not begin
  return report;
}

Result<SwitchReport> Coordinator::switch_plan(const std::vector<Shim>& from,
                                              const std::vector<Shim>& to,
                                              std::uint64_t generation) {
  return switch_from(from, nullptr, to, generation);
}

void Coordinator::abort_all(const std::vector<Shim>& shims, bool is_old_gone) const {
  // Uses new connections, because the old ones may be busy with a request that is cancelled. Asks
  // all shims at the same time: one that does not answer must not delay the others' programs.
  all_at_once(shims.size(), [&](std::size_t i) {
    const std::string body = is_old_gone ? ByteWriter().put<std::uint8_t>(1).take() : "";
    if (auto channel = reach(shims[i]); channel.ok())
      static_cast<void>(ask(*channel, Op::abort, body, within(kAnswerTime)));
  });
}

Result<std::uint64_t> Coordinator::settle(const std::vector<Shim>& shims) {
  std::vector<Channel> channels;
  std::vector<Status> found;
  std::uint64_t newest = 0, step = 0;
  for (const Shim& shim : shims) {
    auto channel = reach(shim);
    if (!channel) return channel.error();
    const auto status = ask(*channel, Op::status, {}, within(options_.commit_limit));
    if (!status) return status.error();
    auto read = read_status(status->body);
    if (!read) return read.error();
    newest = std::max(newest, read->generation);
    // A program that still waits stands at the step of the switch; one that has switched is at that
    // step or later.
    if (read->is_quiesced) step = read->step;
    else if (step == 0) step = read->step;
    found.push_back(std::move(*read));
    channels.push_back(std::move(*channel));
  }
  for (std::size_t i = 0; i < shims.size(); ++i) {
    if (found[i].prepared == 0) continue;
    const bool committed = found[i].prepared == newest;
    // If any shim has committed the generation, all shims have moved its state.
    auto done = committed ? ask(channels[i], Op::commit, ByteWriter().put(newest).put(step).take(),
                                within(options_.commit_limit))
                          : ask(channels[i], Op::abort, {}, within(options_.commit_limit));
    if (!done) return done.error();
  }
  return newest;
}

}  // namespace swell::runtime
