// SPDX-License-Identifier: BSD-3-Clause
// Part of the coordinator: one switch, from collecting both plans to the commit or abort of all
// shims.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <poll.h>
#include <utility>

#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/leavers.h"

namespace swell::runtime {

namespace {

using Phase = SwitchMachine::Phase;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Returns the place of `shim` in the list, after adding it if necessary.
std::size_t number_of(std::vector<Shim>& shims, const Shim& shim) {
  const auto at = std::find_if(shims.begin(), shims.end(), [&](const Shim& other) {
    return shim.unix_socket == other.unix_socket && shim.tcp == other.tcp;
  });
  if (at != shims.end()) return static_cast<std::size_t>(at - shims.begin());
  shims.push_back(shim);
  return shims.size() - 1;
}

std::int64_t ms_until(Deadline deadline) {
  return std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
}

/// Returns the time until the deadline in the unit of messages.
std::uint32_t limit_until(Deadline deadline) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms_until(deadline), 0, UINT32_MAX));
}

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

/// One switch under way.
class Coordinator::Run {
 public:
  Run(Coordinator& coordinator, std::uint64_t generation)
      : coordinator_(coordinator), options_(coordinator.options_) {
    report_.generation = prepare_.generation = generation;
    prepare_.cluster = coordinator.cluster_.to_json().dump();
    prepare_.verify = options_.verify;
    prepare_.max_extra_bytes = options_.max_extra_bytes;
    if (options_.leave_limit.count() > 0) leave_by_ = within(options_.leave_limit);
  }

  /// Switches from the ranks `from`, or from a snapshot.
  Result<SwitchReport> from_to(const std::vector<Shim>& from, const Consistent* snapshot,
                               const std::vector<Shim>& to) {
    if (options_.on_phase) options_.on_phase(Phase::prepare);
    if (auto good = gather(from, snapshot, to); !good) return good.error();
    machine_ = SwitchMachine(shims_.size(), snapshot != nullptr ? snapshot->step : kNoStep);
    while (!is_over(machine_.phase())) {
      const Phase phase = machine_.phase();
      report_.failed_in = phase;
      if (phase == Phase::commit && !coordinator_.begin_commit()) {
        machine_.veto(called_off());
        break;
      }
      ask_all(phase);
      // quiesce_s is the time of the last round; in earlier rounds the programs went on.
      if (phase == Phase::quiesce && first_stop_) {
        report_.wait_s += report_.quiesce_s + lap(*std::exchange(first_stop_, std::nullopt));
        report_.quiesce_s = 0;
      }
      (phase == Phase::prepare   ? report_.prepare_s
       : phase == Phase::quiesce ? report_.quiesce_s
       : phase == Phase::secure  ? report_.secure_s
       : phase == Phase::move    ? report_.move_s
                                 : report_.commit_s) += lap();
    }
    return finish(to);
  }

 private:
  /// Returns the time from the last lap, or from the start, to `until`.
  double lap(Clock::time_point until = Clock::now()) {
    const auto before = std::exchange(start_, until);
    return seconds(start_ - before);
  }

  /// Connects to the shims, and collects both plans; from here on the shims do not change them.
  Result<void> gather(const std::vector<Shim>& from, const Consistent* snapshot,
                      const std::vector<Shim>& to) {
    const Deadline prepared_by = within(options_.prepare_limit);
    std::vector<std::size_t> old_numbers, new_numbers;
    for (const Shim& shim : from) old_numbers.push_back(number_of(shims_, shim));
    for (const Shim& shim : to) new_numbers.push_back(number_of(shims_, shim));
    for (const Shim& shim : shims_) {
      auto channel = coordinator_.reach(shim);
      if (!channel) return channel.error();
      channels_.push_back(std::move(*channel));
    }
    for (std::size_t rank = 0; rank < from.size(); ++rank) {
      const std::size_t shim = old_numbers[rank];
      const auto status = coordinator_.ask_unless_off(channels_[shim], Op::status, {}, prepared_by);
      if (!status) return status.error();
      const auto read = read_status(status->body);
      if (!read) return read.error();
      const auto table = coordinator_.ask_unless_off(channels_[shim], Op::table, {}, prepared_by);
      if (!table) return table.error();
      auto holds = read_table(table->body);
      if (!holds) return holds.error();
      const std::uint32_t number = prepare_.roster.add(holds->second);
      auto memory = gpu_memory(shim, number, prepared_by);
      if (!memory) return memory.error();
      const bool leaves =
          leave_by_ && std::find(new_numbers.begin(), new_numbers.end(), shim) == new_numbers.end();
      if (leaves) leaving_.push_back(shim);
      prepare_.from.push_back(
          {from[rank].gpu, read->endpoint, number, leaves, {{}, 0, 0, std::move(memory->slabs)}});
      old_ranks_[shim] = static_cast<std::int32_t>(rank);
    }
    if (snapshot != nullptr) {
      prepare_.from = snapshot->ranks;
      prepare_.roster = snapshot->roster;
      report_.step = snapshot->step;
    }
    for (std::size_t rank = 0; rank < to.size(); ++rank) {
      const auto ready = coordinator_.ask_unless_off(
          channels_[new_numbers[rank]], Op::wait_ready,
          ByteWriter().put(limit_until(prepared_by)).take(), prepared_by + kAnswerTime);
      auto entries = ready ? read_entries(ready->body) : Result<std::vector<Entry>>(ready.error());
      if (!entries && entries.error().code() != ErrorCode::cancelled)
        entries = entries.error().while_doing(
            fmt::format("waiting for the program of new rank {}", rank));
      if (!entries) {
        coordinator_.abort_all(shims_);
        return entries.error();
      }
      const auto old = old_ranks_.find(new_numbers[rank]);
      const std::uint32_t table = prepare_.roster.add(*entries);
      auto memory = gpu_memory(new_numbers[rank], table, prepared_by);
      if (!memory) {
        coordinator_.abort_all(shims_);
        return memory.error();
      }
      memory->slabs.clear();  // the old plan already lists the slabs
      prepare_.to.push_back(
          {to[rank].gpu, old == old_ranks_.end() ? -1 : old->second, table, std::move(*memory)});
      new_ranks_[new_numbers[rank]] = static_cast<std::int32_t>(rank);
    }
    common_ = write_common(prepare_);
    return {};
  }

  /// Returns a shim's GPU memory if a plan in chunks needs it, that is, if its table has any.
  Result<GpuMemory> gpu_memory(std::size_t shim, std::uint32_t table, Deadline deadline) {
    const std::vector<Row>& rows = prepare_.roster.rows(table);
    if (std::none_of(rows.begin(), rows.end(),
                     [](const Row& row) { return row.memory == Memory::device; }))
      return GpuMemory();
    const auto answer = coordinator_.ask_unless_off(channels_[shim], Op::gpu_memory, {}, deadline);
    return answer ? read_gpu_memory(answer->body) : Result<GpuMemory>(answer.error());
  }

  /// Sends all shims the request of `phase`, and takes their answers until the phase is over.
  void ask_all(Phase phase) {
    const bool begins = !std::exchange(has_begun_[static_cast<std::size_t>(phase)], true);
    if (phase != Phase::prepare && begins && options_.on_phase) options_.on_phase(phase);
    const auto limit = phase == Phase::move || phase == Phase::secure ? options_.move_limit
                       : phase == Phase::commit                       ? options_.commit_limit
                                                                      : options_.prepare_limit;
    if (phase == Phase::quiesce) choose_step(begins, limit);
    if (phase == Phase::move && begins) {
      moving_since_ = next_look_ = Clock::now();
      report_.is_old_gone = machine_.in_chunks();
    }
    // The shim keeps the time limit of a stop, and reports a timeout.
    const Deadline deadline = phase == Phase::quiesce ? stopped_by_ + kAnswerTime : within(limit);
    const int round = machine_.round();
    static constexpr Op kOps[] = {Op::prepare, Op::quiesce, Op::secure, Op::move, Op::commit};
    for (std::size_t shim = 0; shim < shims_.size(); ++shim)
      if (machine_.is_awaited(shim))
        if (auto sent = channels_[shim].send(
                static_cast<std::uint16_t>(kOps[static_cast<int>(phase)]), body_of(shim));
            !sent)
          machine_.failed(shim, sent.error().message());
    while (machine_.phase() == phase && machine_.round() == round)
      await(phase, round, deadline, limit);
  }

  /// Chooses a step ahead of every rank, so that all ranks are told before any reaches it. If a
  /// rank is told too late, its answer says so, and all ranks are asked for a later step.
  void choose_step(bool is_first, Milliseconds limit) {
    if (is_first) stopped_by_ = within(options_.quiesce_limit);
    else lead_ *= 2;
    for (const auto& [shim, rank] : old_ranks_) {
      const auto status =
          coordinator_.ask_unless_off(channels_[shim], Op::status, {}, within(limit));
      const auto read = status ? read_status(status->body) : Result<Status>(status.error());
      if (!read && read.error().code() == ErrorCode::cancelled) machine_.veto(called_off());
      else if (!read) machine_.failed(shim, read.error().message());
      else report_.step = std::max(report_.step, read->step + lead_);
    }
  }

  std::string body_of(std::size_t shim) {
    switch (machine_.phase()) {
      case Phase::prepare:
        prepare_.old_rank = old_ranks_.contains(shim) ? old_ranks_[shim] : -1;
        prepare_.new_rank = new_ranks_.contains(shim) ? new_ranks_[shim] : -1;
        prepare_.in_chunks = machine_.in_chunks();
        return write(prepare_, common_);
      case Phase::quiesce:
        return ByteWriter().put(report_.step).put(limit_until(stopped_by_)).take();
      case Phase::move:
        return machine_.in_chunks() ? ByteWriter().put(machine_.chunk()).take() : std::string();
      case Phase::commit: return ByteWriter().put(report_.generation).put(machine_.step()).take();
      default: return {};
    }
  }

  /// Waits for answers, or until it is time to check the leaving ranks.
  void await(Phase phase, int round, Deadline deadline, Milliseconds limit) {
    std::vector<pollfd> polled;
    std::vector<std::size_t> who;
    for (std::size_t shim = 0; shim < shims_.size(); ++shim)
      if (machine_.is_awaited(shim)) {
        polled.push_back({channels_[shim].fd(), POLLIN, 0});
        who.push_back(shim);
      }
    if (phase != Phase::commit) polled.push_back({coordinator_.off_.get(), POLLIN, 0});
    const bool looks = phase == Phase::move && !leaving_.empty() && !report_.has_let_go;
    const auto left = ms_until(looks ? std::min(deadline, next_look_) : deadline);
    const int ready = left > 0 ? poll(polled.data(), polled.size(),
                                      static_cast<int>(std::min<std::int64_t>(left, 1'000'000)))
                               : 0;
    if (ready < 0) return;
    if (ready == 0) {
      if (ms_until(deadline) <= 0)
        for (std::size_t shim : who)
          machine_.failed(
              shim, fmt::format("no answer to {} within {} ms", to_text(phase), limit.count()));
      else if (looks) look_at_leavers();
      return;
    }
    for (std::size_t i = 0; i < who.size(); ++i) {
      if (polled[i].revents == 0 || machine_.phase() != phase || machine_.round() != round)
        continue;
      const auto answer = channels_[who[i]].receive(deadline);
      if (!answer) machine_.failed(who[i], answer.error().message());
      else if (answer->op != kDoneOp) take_refusal(who[i], read_refusal(answer->body));
      else take_answer(who[i], answer->body);
    }
    // The program is checked last: if its shim refuses, the program may have ended because of that,
    // and the refusal is the reason for the cancellation.
    if (polled.size() > who.size() && polled.back().revents != 0 && machine_.phase() == phase)
      machine_.veto(called_off());
  }

  /// If a GPU has too little memory to move everything at once, the switch is tried in chunks that
  /// fit its free memory.
  void take_refusal(std::size_t shim, const Error& error) {
    const bool prepares = machine_.phase() == Phase::prepare;
    report_.lacks_room = report_.lacks_room || (prepares && error.shortage());
    const bool tries_chunks =
        prepares && error.shortage() && machine_.round() == 0 && why_no_chunks().empty();
    if (!tries_chunks)
      return machine_.failed(
          shim, over_.empty() || !prepares
                    ? error.message()
                    : fmt::format("{}; it is not made in chunks: {}", over_, error.message()));
    if (over_.empty()) over_ = error.message();
    prepare_.max_extra_bytes = std::min(prepare_.max_extra_bytes, error.shortage()->free_bytes);
    common_ = write_common(prepare_);
    report_.max_extra_bytes = 0;
    machine_.use_chunks(shim);
  }

  void take_answer(std::size_t shim, std::string_view body) {
    ByteReader reader(body);
    if (machine_.phase() == Phase::prepare) {
      const auto prepared = read_prepared(body);
      if (!prepared) return machine_.failed(shim, prepared.error().message());
      if (prepared->extra_bytes > options_.max_extra_bytes) {
        over_ = fmt::format(
            "the switch needs {} bytes beside the state; the bound is {}: raise --switch-memory",
            prepared->extra_bytes, options_.max_extra_bytes);
        if (const std::string why = why_no_chunks(); !why.empty())
          return machine_.failed(shim, over_ + why);
        machine_.use_chunks();
        report_.max_extra_bytes = 0;
      } else if (!machine_.in_chunks()) {
        report_.max_extra_bytes = std::max(report_.max_extra_bytes, prepared->extra_bytes);
      }
      report_.chunks = prepared->chunks;
      machine_.prepared(shim, *prepared);
    } else if (machine_.phase() == Phase::quiesce) {
      const auto step = reader.get<std::uint64_t>();
      const bool is_late = reader.get<std::uint8_t>() != 0;  // the shim's program goes on
      if (step != kNoStep && !is_late && !first_stop_) first_stop_ = Clock::now();
      machine_.quiesced(shim, step, is_late);
    } else if (machine_.phase() == Phase::secure) {
      machine_.done(shim, Phase::secure);
    } else if (machine_.phase() == Phase::move) {
      const auto moved = read_moved(body);
      if (!moved) return machine_.failed(shim, moved.error().message());
      for (const PathBytes& path : moved->paths) by_path_[path.path] += path.bytes;
      report_.notes.insert(moved->notes.begin(), moved->notes.end());
      report_.max_extra_bytes = std::max(report_.max_extra_bytes, moved->extra_bytes);
      machine_.done(shim, Phase::move);
    } else {
      machine_.done(shim, Phase::commit);
    }
  }

  /// Returns why a switch that needs too much memory is not tried in chunks; empty: it is tried.
  std::string why_no_chunks() const {
    if (machine_.round() > 0) return "; it is not made in chunks: it would need as much";
    if (old_ranks_.empty()) return "; from a snapshot nothing is moved in chunks";
    return "";
  }

  /// Asks the staying shims for their progress, and releases the leaving ranks or cancels the
  /// switch.
  void look_at_leavers() {
    constexpr Milliseconds kMinPause{50}, kMaxPause{1000};
    next_look_ = within(std::clamp(options_.leave_limit / 20, kMinPause, kMaxPause));
    std::vector<Progress> all;
    for (const auto& [shim, rank] : new_ranks_) {
      // Uses a separate connection, because the other one waits for the end of the move.
      auto channel = coordinator_.reach(shims_[shim]);
      const auto status = channel ? ask(*channel, Op::status, {}, within(kMaxPause))
                                  : Result<Message>(channel.error());
      const auto read = status ? read_status(status->body) : Result<Status>(status.error());
      if (!read) return;
      all.push_back(read->progress);
    }
    const auto now = Clock::now();
    const double elapsed_s = seconds(now - moving_since_), left_s = seconds(*leave_by_ - now);
    switch (judge_leavers(all, elapsed_s, left_s)) {
      case Leavers::wait: return;
      case Leavers::let_go: return let_go();
      case Leavers::late: {
        std::uint64_t only_there = 0, come = 0;
        for (const Progress& each : all) {
          only_there += each.only_there;
          come += each.come;
        }
        return machine_.veto(Error(fmt::format(
            "{} bytes are on leaving ranks alone, which have {:.1f} s; {} bytes came in {:.1f} s",
            only_there, std::max(0.0, left_s), come, elapsed_s)));
      }
    }
  }

  /// Has the leaving shims commit and their programs exit: the old generation is over in any case.
  void let_go() {
    if (machine_.in_chunks()) return;  // other ranks may read from them until the last chunk
    for (const std::size_t shim : leaving_)
      if (machine_.is_awaited(shim)) return;
    report_.has_let_go = true;
    if (options_.on_let_go) options_.on_let_go();
    for (const std::size_t shim : leaving_) {
      machine_.let_go(shim);
      if (!ask(channels_[shim], Op::commit,
               ByteWriter().put(report_.generation).put(machine_.step()).take(),
               within(kAnswerTime)))
        report_.lost.push_back(shims_[shim]);
    }
  }

  SwitchReport finish(const std::vector<Shim>& to) {
    const std::optional<Error>& failure = machine_.failure();
    report_.committed = machine_.phase() == Phase::committed;
    report_.lacks_room = report_.lacks_room && !report_.committed &&
                         report_.failed_in == Phase::prepare &&
                         (!failure || failure->code() != ErrorCode::cancelled);
    if (failure) {
      report_.why = failure->message();
      report_.code = failure->code();
    }
    report_.is_silent = machine_.phase() == Phase::aborted && report_.failed_in == Phase::quiesce &&
                        Clock::now() >= stopped_by_;
    for (const std::size_t shim : machine_.lost()) report_.lost.push_back(shims_[shim]);
    report_.step = report_.committed ? machine_.step() : 0;
    for (const auto& [path, bytes] : by_path_) report_.paths.push_back({path, bytes});
    if (report_.committed) coordinator_.guard_all(to, report_.generation);
    else coordinator_.abort_all(shims_, report_.is_old_gone);
    auto expected = Verdict::committing;  // the next switch can be cancelled again
    coordinator_.verdict_.compare_exchange_strong(expected, Verdict::open);
    return std::move(report_);
  }

  Coordinator& coordinator_;
  const Options& options_;
  std::vector<Shim> shims_;
  std::vector<Channel> channels_;                              ///< by shim
  std::map<std::size_t, std::int32_t> old_ranks_, new_ranks_;  ///< by shim
  std::vector<std::size_t> leaving_;  ///< shims that must exit by leave_by_
  std::optional<Deadline> leave_by_;
  Prepare prepare_;
  std::string common_;  ///< the part of prepare_ that is the same for all shims
  SwitchMachine machine_{0};
  SwitchReport report_;
  std::map<std::string, std::uint64_t> by_path_;
  std::array<bool, 5> has_begun_{};
  std::string over_;  ///< the excess over the memory bound, as text; empty: none
  Deadline stopped_by_, moving_since_, next_look_;
  std::uint64_t lead_ = options_.step_lead;
  Clock::time_point start_ = Clock::now();  ///< start of the phase
  /// First stop of a program in this round of quiesce.
  std::optional<Clock::time_point> first_stop_;
};

Result<SwitchReport> Coordinator::switch_from(const std::vector<Shim>& from,
                                              const Consistent* snapshot,
                                              const std::vector<Shim>& to,
                                              std::uint64_t generation) {
  return Run(*this, generation).from_to(from, snapshot, to);
}

}  // namespace swell::runtime
