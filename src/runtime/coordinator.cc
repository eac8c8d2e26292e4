// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/coordinator.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace swell::runtime {

namespace {

using Phase = SwitchMachine::Phase;
using Clock = std::chrono::steady_clock;

bool is_same(const Shim& a, const Shim& b) {
  return a.unix_socket == b.unix_socket && a.tcp == b.tcp;
}

/// `shim`'s place in the list, which it is added to where it is not in it.
std::size_t number_of(std::vector<Shim>& shims, const Shim& shim) {
  const auto at = std::find_if(shims.begin(), shims.end(),
                               [&](const Shim& other) { return is_same(shim, other); });
  if (at != shims.end()) return static_cast<std::size_t>(at - shims.begin());
  shims.push_back(shim);
  return shims.size() - 1;
}

Deadline in(std::chrono::milliseconds limit) { return Clock::now() + limit; }

/// For a shim that keeps a time limit by itself to say that it has passed.
constexpr auto kAnswerTime = std::chrono::seconds(5);

}  // namespace

std::string SwitchReport::summary() const {
  std::string text = committed ? fmt::format("epoch {} at step {}", epoch, step)
                               : fmt::format("epoch {} was called off in {}", epoch,
                                             SwitchMachine::to_text(failed_in));
  if (!why.empty()) text += ": " + why;
  if (!committed) return text;
  text += fmt::format("; stopped {:.3f} s, moved {:.3f} s, committed {:.3f} s; {} bytes extra",
                      quiesce_s, move_s, commit_s, max_extra_bytes);
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
  for (;;) {
    pollfd polled[] = {{channel.fd(), POLLIN, 0}, {off_.get(), POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(polled, 2, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (polled[1].revents != 0 && ready > 0) return Error(kCalledOff);
    if (ready > 0 || left <= 0) break;
  }
  auto answer = channel.receive(deadline);
  if (!answer) return answer.error();
  if (answer->op != kDoneOp) return Error(Reader(answer->body).text(4096));
  return answer;
}

Result<Channel> Coordinator::reach(const Shim& shim) const {
  return shim.unix_socket.empty()
             ? Channel::connect_tcp(shim.tcp, options_.key, in(std::chrono::seconds(10)))
             : Channel::connect_unix(shim.unix_socket);
}

Result<void> Coordinator::begin(const std::vector<Shim>& ranks, std::uint64_t epoch) {
  auto done = begin_all(ranks, epoch);
  if (!done) abort_all(ranks);
  return done;
}

Result<void> Coordinator::begin_all(const std::vector<Shim>& ranks, std::uint64_t epoch) {
  std::vector<Channel> channels;
  std::vector<RankState> states;
  const Deadline deadline = in(options_.prepare_limit);
  for (const Shim& rank : ranks) {
    auto channel = reach(rank);
    if (!channel) return channel.error();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const auto ready = ask_unless_off(
        *channel, Op::wait_ready,
        Writer().put(static_cast<std::uint32_t>(std::max<std::int64_t>(left, 0))).take(),
        deadline + kAnswerTime);
    if (!ready) return ready.error();
    auto entries = read_entries(ready->body);
    if (!entries) return entries.error();
    states.push_back({rank.gpu, std::move(*entries)});
    channels.push_back(std::move(*channel));
  }
  if (const auto world = merge(states); !world) return world.error().while_doing("the first plan");
  guard_all(ranks, epoch);  // before any step
  for (Channel& channel : channels)
    if (auto done = ask(channel, Op::begin, Writer().put(epoch).take(), in(options_.commit_limit));
        !done)
      return done.error();
  return {};
}

/// Tells each rank's shim who keeps its snapshots: a rank that is not lent before one that is, of
/// those one on another node, of those the next one. One that does not hear it takes none.
void Coordinator::guard_all(const std::vector<Shim>& ranks, std::uint64_t epoch) const {
  std::vector<Channel> channels;
  std::vector<Endpoint> endpoints;
  for (const Shim& shim : ranks) {
    auto channel = reach(shim);
    if (!channel) return;
    const auto status = ask(*channel, Op::status, {}, in(kAnswerTime));
    const auto read = status ? read_status(status->body) : Result<Status>(status.error());
    if (!read) return;
    endpoints.push_back(read->endpoint);
    channels.push_back(std::move(*channel));
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Guard guard{
        epoch, static_cast<std::int32_t>(rank), static_cast<std::uint32_t>(ranks.size()), {}};
    int best = -1;
    for (std::size_t ahead = 1; ahead < ranks.size(); ++ahead) {
      const std::size_t other = (rank + ahead) % ranks.size();
      const int merit = 2 * !ranks[other].is_lent + (ranks[other].gpu.node != ranks[rank].gpu.node);
      if (merit <= best) continue;
      best = merit;
      guard.partner = endpoints[other];
    }
    static_cast<void>(ask(channels[rank], Op::guard, write(guard), in(kAnswerTime)));
  }
}

Result<SwitchReport> Coordinator::recover(const std::vector<Shim>& holders,
                                          const std::vector<Shim>& to, std::uint64_t epoch) {
  std::vector<Holder> found;
  for (const Shim& shim : holders) {
    auto channel = reach(shim);
    if (!channel) continue;
    const auto status = ask_unless_off(*channel, Op::status, {}, in(kAnswerTime));
    const auto held = ask_unless_off(*channel, Op::snapshots, {}, in(kAnswerTime));
    if (!status || !held) continue;
    const auto read = read_status(status->body);
    auto snapshots = read_snapshots(held->body);
    if (read && snapshots) found.push_back({shim.gpu, read->endpoint, std::move(*snapshots)});
  }
  const auto newest = newest_of(found);
  if (!newest) return Error("no snapshot has every rank's part");
  return switch_from({}, &*newest, to, epoch);
}

Result<SwitchReport> Coordinator::switch_plan(const std::vector<Shim>& from,
                                              const std::vector<Shim>& to, std::uint64_t epoch) {
  return switch_from(from, nullptr, to, epoch);
}

/// From the ranks `from`, or a snapshot.
Result<SwitchReport> Coordinator::switch_from(const std::vector<Shim>& from,
                                              const Consistent* snapshot,
                                              const std::vector<Shim>& to, std::uint64_t epoch) {
  std::vector<Shim> shims;
  std::vector<std::size_t> old_numbers, new_numbers;
  for (const Shim& shim : from) old_numbers.push_back(number_of(shims, shim));
  for (const Shim& shim : to) new_numbers.push_back(number_of(shims, shim));

  SwitchReport report;
  report.epoch = epoch;
  auto start = Clock::now();
  const auto lap = [&] {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start).count();
    start = now;
    return seconds;
  };
  if (options_.on_phase) options_.on_phase(Phase::prepare);
  const Deadline prepared_by = in(options_.prepare_limit);
  std::vector<Channel> channels;
  for (const Shim& shim : shims) {
    auto channel = reach(shim);
    if (!channel) return channel.error();
    channels.push_back(std::move(*channel));
  }
  // What both plans are: from here on the shims do not change it.
  Prepare prepare;
  prepare.epoch = epoch;
  prepare.cluster = cluster_.to_json().dump();
  prepare.verify = options_.verify;
  prepare.max_extra_bytes = options_.max_extra_bytes;
  std::map<std::size_t, std::int32_t> old_ranks, new_ranks;
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    Channel& channel = channels[old_numbers[rank]];
    const auto status = ask_unless_off(channel, Op::status, {}, prepared_by);
    if (!status) return status.error();
    const auto read = read_status(status->body);
    if (!read) return read.error();
    const auto table = ask_unless_off(channel, Op::table, {}, prepared_by);
    if (!table) return table.error();
    auto holds = read_table(table->body);
    if (!holds) return holds.error();
    prepare.from.push_back({from[rank].gpu, read->endpoint, std::move(holds->second)});
    old_ranks[old_numbers[rank]] = static_cast<std::int32_t>(rank);
  }
  if (snapshot != nullptr) {
    prepare.from = snapshot->ranks;
    report.step = snapshot->step;
  }
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(prepared_by - Clock::now()).count();
    const auto ready = ask_unless_off(
        channels[new_numbers[rank]], Op::wait_ready,
        Writer().put(static_cast<std::uint32_t>(std::max<std::int64_t>(left, 0))).take(),
        prepared_by + kAnswerTime);
    auto entries = ready ? read_entries(ready->body)
                         : Result<std::vector<Entry>>(ready.error().while_doing(
                               fmt::format("waiting for the program of new rank {}", rank)));
    if (!entries) {
      abort_all(shims);
      return entries.error();
    }
    prepare.to.push_back({to[rank].gpu, std::move(*entries)});
    new_ranks[new_numbers[rank]] = static_cast<std::int32_t>(rank);
  }

  SwitchMachine machine(shims.size(), snapshot != nullptr ? snapshot->step : kNoStep);
  std::map<std::string, std::uint64_t> by_path;
  std::array<bool, 4> has_begun{};
  Deadline stopped_by;
  std::uint64_t lead = options_.step_lead;
  const auto body_of = [&](std::size_t shim) -> std::string {
    switch (machine.phase()) {
      case Phase::prepare:
        prepare.old_rank = old_ranks.contains(shim) ? old_ranks[shim] : -1;
        prepare.new_rank = new_ranks.contains(shim) ? new_ranks[shim] : -1;
        return write(prepare);
      case Phase::quiesce: {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(stopped_by - Clock::now());
        const auto limit = std::clamp<std::int64_t>(left.count(), 0, UINT32_MAX);
        return Writer().put(report.step).put(static_cast<std::uint32_t>(limit)).take();
      }
      case Phase::commit: return Writer().put(epoch).put(machine.step()).take();
      default: return {};
    }
  };
  const auto take_answer = [&](std::size_t shim, std::string_view body) {
    Reader reader(body);
    if (machine.phase() == Phase::prepare) {
      const auto prepared = read_prepared(body);
      if (!prepared) return machine.failed(shim, prepared.error().message());
      report.max_extra_bytes = std::max(report.max_extra_bytes, prepared->extra_bytes);
      machine.prepared(shim, *prepared);
    } else if (machine.phase() == Phase::quiesce) {
      const auto step = reader.get<std::uint64_t>();
      machine.quiesced(shim, step, reader.get<std::uint8_t>() != 0);
    } else if (machine.phase() == Phase::move) {
      const auto moved = read_moved(body);
      if (!moved) return machine.failed(shim, moved.error().message());
      for (const PathBytes& path : moved->paths) by_path[path.path] += path.bytes;
      machine.moved(shim);
    } else {
      machine.committed(shim);
    }
  };

  while (!machine.is_over()) {
    const Phase phase = machine.phase();
    const int round = machine.round();
    report.failed_in = phase;
    if (phase == Phase::commit && !begin_commit()) {
      machine.veto(kCalledOff);
      break;
    }
    const bool begins = !std::exchange(has_begun[static_cast<std::size_t>(phase)], true);
    if (phase != Phase::prepare && begins && options_.on_phase) options_.on_phase(phase);
    auto limit = phase == Phase::move     ? options_.move_limit
                 : phase == Phase::commit ? options_.commit_limit
                                          : options_.prepare_limit;
    if (phase == Phase::quiesce) {
      if (begins) stopped_by = in(options_.quiesce_limit);
      else lead *= 2;
      // Ahead of every rank, so that all are told before any gets there. Who was told too late says
      // so, and all are asked for a later step.
      for (const auto& [shim, rank] : old_ranks) {
        const auto status = ask_unless_off(channels[shim], Op::status, {}, in(limit));
        const auto read = status ? read_status(status->body) : Result<Status>(status.error());
        if (!read) machine.failed(shim, read.error().message());
        else report.step = std::max(report.step, read->step + lead);
      }
    }
    // The shim keeps the time of a stop, and says so.
    const Deadline deadline = phase == Phase::quiesce ? stopped_by + kAnswerTime : in(limit);
    static constexpr Op kOps[] = {Op::prepare, Op::quiesce, Op::move, Op::commit};
    for (std::size_t shim = 0; shim < shims.size(); ++shim)
      if (machine.is_awaited(shim))
        if (auto sent = channels[shim].send(
                static_cast<std::uint16_t>(kOps[static_cast<int>(phase)]), body_of(shim));
            !sent)
          machine.failed(shim, sent.error().message());
    while (machine.phase() == phase && machine.round() == round) {
      std::vector<pollfd> polled;
      std::vector<std::size_t> who;
      for (std::size_t shim = 0; shim < shims.size(); ++shim)
        if (machine.is_awaited(shim)) {
          polled.push_back({channels[shim].fd(), POLLIN, 0});
          who.push_back(shim);
        }
      if (phase != Phase::commit) polled.push_back({off_.get(), POLLIN, 0});
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      const int ready = left > 0 ? poll(polled.data(), polled.size(),
                                        static_cast<int>(std::min<std::int64_t>(left, 1'000'000)))
                                 : 0;
      if (ready < 0) continue;
      if (ready == 0) {
        for (std::size_t shim : who)
          machine.failed(shim, fmt::format("no answer to {} within {} ms",
                                           SwitchMachine::to_text(phase), limit.count()));
        continue;
      }
      if (polled.size() > who.size() && polled.back().revents != 0) {
        machine.failed(who.front(), kCalledOff);
        continue;
      }
      for (std::size_t i = 0; i < who.size(); ++i) {
        if (polled[i].revents == 0 || machine.phase() != phase || machine.round() != round)
          continue;
        const auto answer = channels[who[i]].receive(deadline);
        if (!answer) machine.failed(who[i], answer.error().message());
        else if (answer->op != kDoneOp) machine.failed(who[i], Reader(answer->body).text(4096));
        else take_answer(who[i], answer->body);
      }
    }
    (phase == Phase::prepare   ? report.prepare_s
     : phase == Phase::quiesce ? report.quiesce_s
     : phase == Phase::move    ? report.move_s
                               : report.commit_s) += lap();
  }
  report.committed = machine.phase() == Phase::committed;
  report.why = machine.why();
  report.is_silent = machine.phase() == Phase::aborted && report.failed_in == Phase::quiesce &&
                     Clock::now() >= stopped_by;
  for (const std::size_t shim : machine.lost()) report.lost.push_back(shims[shim]);
  report.step = report.committed ? machine.step() : 0;
  for (const auto& [path, bytes] : by_path) report.paths.push_back({path, bytes});
  if (report.committed) guard_all(to, epoch);
  else abort_all(shims);
  auto expected = Verdict::committing;  // the next switch can be called off again
  verdict_.compare_exchange_strong(expected, Verdict::open);
  return report;
}

void Coordinator::abort_all(const std::vector<Shim>& shims) const {
  // Over new connections: the old ones may be busy with what is called off. All at once: one that
  // does not answer must not keep the others' programs standing.
  std::vector<std::thread> asking;
  for (const Shim& shim : shims)
    asking.emplace_back([this, &shim] {
      if (auto channel = reach(shim); channel.ok())
        static_cast<void>(ask(*channel, Op::abort, {}, in(kAnswerTime)));
    });
  for (std::thread& each : asking) each.join();
}

Result<std::uint64_t> Coordinator::settle(const std::vector<Shim>& shims) {
  std::vector<Channel> channels;
  std::vector<Status> found;
  std::uint64_t newest = 0, step = 0;
  for (const Shim& shim : shims) {
    auto channel = reach(shim);
    if (!channel) return channel.error();
    const auto status = ask(*channel, Op::status, {}, in(options_.commit_limit));
    if (!status) return status.error();
    auto read = read_status(status->body);
    if (!read) return read.error();
    newest = std::max(newest, read->epoch);
    // Those that still wait stand at the step; one that has switched has it too, or is beyond.
    if (read->is_quiesced) step = read->step;
    else if (step == 0) step = read->step;
    found.push_back(std::move(*read));
    channels.push_back(std::move(*channel));
  }
  for (std::size_t i = 0; i < shims.size(); ++i) {
    if (found[i].prepared == 0) continue;
    const bool committed = found[i].prepared == newest;
    // What some shim has committed, all have moved.
    auto done = committed ? ask(channels[i], Op::commit, Writer().put(newest).put(step).take(),
                                in(options_.commit_limit))
                          : ask(channels[i], Op::abort, {}, in(options_.commit_limit));
    if (!done) return done.error();
  }
  return newest;
}

}  // namespace swell::runtime
