// SPDX-License-Identifier: BSD-3-Clause
// Part of the coordinator: makes all ranks stop or checkpoint at one step, without a switch. First
// all ranks agree on the step, then all are told that it is valid, so that no rank exits while
// another would wait for it.
#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/coordinator/coordinator.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

/// One request to all ranks that is under way.
class Coordinator::Requesting {
 public:
  Requesting(Coordinator& coordinator, std::uint64_t request, const std::vector<Shim>& ranks,
             std::chrono::milliseconds limit)
      : coordinator_(coordinator),
        request_(request),
        known_by_(within(limit / 4)),
        asked_by_(within(limit * 5 / 8)),
        told_by_(within(limit)),
        round_(limit / 8) {
    for (const Shim& shim : ranks) ranks_.push_back({shim, {}, 0, false});
  }

  RequestReport run() {
    reach_all();
    ask_all(Op::status, {}, known_by_, [this](Rank& rank, std::string_view body) {
      const auto status = read_status(body);
      if (status) rank.step = status->step;
      else drop(rank, status.error().message());
    });
    for (std::uint64_t lead = 1; !is_off_ && takes_part(); lead = std::min(2 * lead, kMaxLead)) {
      const std::uint64_t step = farthest() + lead;
      const bool all_stand = agree(step);
      if (is_off_) break;
      if (all_stand) {
        tell(Op::conclude, ByteWriter().put(step).put(request_).take());
        report_.step = step;
      } else if (Deadline::clock::now() >= asked_by_) {
        report_.why = "the ranks did not agree on a step in time";
        tell(Op::request, ByteWriter().put(request_).take());
      } else {
        continue;
      }
      break;
    }
    return finish();
  }

 private:
  /// A program that advances by more than this while it is asked does not wait for others.
  static constexpr std::uint64_t kMaxLead = std::uint64_t{1} << 32;

  struct Rank {
    Shim shim;
    Channel channel;  ///< closed: the rank does not take part, or no longer
    std::uint64_t step = 0;
    bool is_told = false;
  };

  /// Connects to all shims at once, because an unreachable one takes long.
  void reach_all() {
    std::vector<std::string> problems(ranks_.size());
    all_at_once(ranks_.size(), [&](std::size_t i) {
      auto channel = coordinator_.reach(ranks_[i].shim, known_by_);
      if (channel) ranks_[i].channel = std::move(*channel);
      else problems[i] = channel.error().message();
    });
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (!ranks_[i].channel) drop(ranks_[i], problems[i]);
  }

  /// Leaves out a rank; its shim then takes back its agreement.
  void drop(Rank& rank, const std::string& why) {
    rank.channel = Channel();
    if (report_.why.empty()) report_.why = fmt::format("rank {}: {}", &rank - ranks_.data(), why);
  }

  bool takes_part() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return static_cast<bool>(rank.channel); });
  }

  std::uint64_t farthest() const {
    std::uint64_t step = 0;
    for (const Rank& rank : ranks_)
      if (rank.channel) step = std::max(step, rank.step);
    return step;
  }

  void send_all(Op op, const std::string& body) {
    for (Rank& rank : ranks_)
      if (rank.channel)
        if (auto sent = rank.channel.send(static_cast<std::uint16_t>(op), body); !sent)
          drop(rank, sent.error().message());
  }

  /// Asks all ranks that take part, and passes each answer to `take`. Leaves out a rank that
  /// refuses, or does not answer until `by`.
  template <typename Take>
  void ask_all(Op op, const std::string& body, Deadline by, const Take& take) {
    send_all(op, body);
    for (Rank& rank : ranks_) {
      if (!rank.channel || is_off_) continue;
      const auto answer = coordinator_.answer_unless_off(rank.channel, by);
      if (answer) take(rank, answer->body);
      else if (answer.error().code() == ErrorCode::cancelled) is_off_ = true;
      else drop(rank, answer.error().message());
    }
  }

  /// Returns whether no program has passed the step; programs that reach it stop there.
  bool agree(std::uint64_t step) {
    bool all_stand = true;
    const std::string body = ByteWriter().put(step).take();
    ask_all(Op::agree, body, within(round_), [&](Rank& rank, std::string_view answer) {
      ByteReader reader(answer);
      const auto is = reader.get<AgreeAnswer>();
      rank.step = reader.get<std::uint64_t>();
      if (!reader.done()) drop(rank, "its shim's answer cannot be read");
      else if (is == AgreeAnswer::no_program) drop(rank, "no program trains there");
      else if (is == AgreeAnswer::leaves) leaves_already(rank);
      else all_stand = all_stand && is == AgreeAnswer::stands;
    });
    return all_stand;
  }

  void leaves_already(Rank& rank) {
    report_.step = rank.step;
    rank.is_told = true;
    rank.channel = Channel();
  }

  /// Sends the decision; it cannot be cancelled from here on.
  void tell(Op op, const std::string& body) {
    send_all(op, body);
    for (Rank& rank : ranks_) {
      if (!rank.channel) continue;
      const auto answer = rank.channel.receive(told_by_);
      rank.is_told = answer.ok() && answer->op == kDoneOp;
      if (!answer) drop(rank, answer.error().message());
      else if (!rank.is_told) drop(rank, ByteReader(answer->body).text(4096));
    }
  }

  RequestReport finish() {
    std::vector<Shim> all;
    for (const Rank& rank : ranks_) {
      all.push_back(rank.shim);
      if (!rank.is_told) report_.untold.push_back(rank.shim);
    }
    if (report_.untold.size() == ranks_.size()) report_.step = 0;
    if (!is_off_) return std::move(report_);
    report_.why = called_off().message();
    report_.code = ErrorCode::cancelled;
    coordinator_.abort_all(all);
    return std::move(report_);
  }

  Coordinator& coordinator_;
  const std::uint64_t request_;
  const Deadline known_by_;
  const Deadline asked_by_;  ///< no other step is tried after it
  const Deadline told_by_;
  /// Time limit for a shim to answer whether its program will stop.
  const std::chrono::milliseconds round_;
  std::vector<Rank> ranks_;
  RequestReport report_;
  bool is_off_ = false;
};

RequestReport Coordinator::request(std::uint64_t request, const std::vector<Shim>& ranks,
                                   std::chrono::milliseconds limit) {
  return Requesting(*this, request, ranks, limit).run();
}

}  // namespace swell::runtime
