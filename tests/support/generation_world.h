// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/generation_machine.h"
#include "runtime/wire/messages.h"
#include "support/worker_nodes.h"

/// The environment of an elastic run as the agent sees it, for a fuzzer that chooses the next
/// event: shims, their programs, Slurm, the live coordinator and the controller.
namespace generation_world {

using namespace swell;
using namespace swell::launcher;

inline constexpr JobId kJob = 5;
inline constexpr int kBasicWorkers = 2;
inline constexpr double kAge_s = 1;  ///< maximum delay of a message

/// The fuzzer's choices; 0 when they are used up.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool none() const { return size_ == 0; }
  int next() {
    if (none()) return 0;
    --size_;
    return *data_++;
  }
  int below(int limit) { return next() % limit; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

struct Program {
  bool trains = false;
  bool is_paused = false;  ///< its state is being moved
  bool handles = false;    ///< has a handler for the restart signal
  bool ignores = false;    ///< ignores the restart signal despite its handler
  bool keeps_signal = false;
};

struct Shim {
  JobId job = 0;
  bool is_there = false;
  std::map<int, Program> programs;  ///< by generation
};

/// State of a generation's programs.
struct Generation {
  std::set<WorkerId> members, ended;  ///< workers that had ended when the training ended
  bool is_broken = false;             ///< a worker has died or left: no more steps are possible
  double since = 0;
  bool is_at_its_end = false;      ///< the last step is done: each worker may end at any time
  bool fails_when_broken = false;  ///< programs notice the loss of a peer, and exit with 1
  bool ignores = false;            ///< its programs use the restart signal for something else
  /// GPUs were reclaimed or lost, or have failed: its programs may be killed.
  bool may_be_killed = false;
};

struct Switch {
  int generation = 0, before = 0;
  std::vector<WorkerId> from, to;
  bool may_let_go = false, has_let_go = false, is_called_off = false, in_chunks = false;
  int phase = -1;         ///< index into kPhases
  double goes_on_at = 0;  ///< latest time of the next phase; a shim may be slow to answer
};
inline constexpr SwitchPhase kPhases[] = {SwitchPhase::prepare, SwitchPhase::quiesce,
                                          SwitchPhase::secure, SwitchPhase::move,
                                          SwitchPhase::commit};
enum { kPrepare, kQuiesce, kSecure, kMove, kCommit };

/// Senders of messages; any other value is one worker.
enum Channel { kLive = 100'000, kSlurm, kSalloc };

class World {
 public:
  World(GenerationMachine::Settings settings, bool says_sizes, Choices& choices);

  /// Executes one event chosen by the fuzzer. Events come from Slurm, the controller or the node,
  /// and are never an error of the program itself.
  void step();
  bool is_over() const { return code_.has_value(); }
  /// Lets the training end without further faults.
  void come_to_an_end();

 private:
  using News = std::function<void()>;
  struct Sent {
    double since = 0;
    News news;
  };
  struct Companion {
    bool is_released = false, is_gone = false;
    std::optional<double> must_be_free_by;
  };

  void require(bool holds, const char* what);
  // time
  void advance(double seconds);
  void tick();
  void later(double seconds, News news) { timeline_.emplace(now_ + seconds, std::move(news)); }
  // messages, in order for each sender
  void send(int from, News news) { outbox_[from].push_back({now_, std::move(news)}); }
  void deliver(int from);
  bool deliver_something(int which);
  void handle(const event::Any& event) { machine_.handle(now_, event); }
  // actions of the agent
  void carry_out();
  void act(const action::StartStep& start);
  void act(const action::StartWorkers& start);
  void act(const action::SignalWorkers& signal);
  void act(const action::BeginLive& begin);
  void act(const action::SwitchLive& order);
  void act(const action::StopLive& stop);
  void act(const action::CallOffLive&);
  void act(const action::Allocate& allocate);
  void act(const action::Release& release);
  void act(const action::Finish& finish);
  void act(const action::Tell& tell);
  void act(const action::Say& say) {
    if (trace_) std::fprintf(stderr, "%8.2f   says: %s\n", now_, say.line.c_str());
  }
  void act(const action::Note& note) {
    if (trace_)
      std::fprintf(stderr, "%8.2f   notes: %s %s\n", now_, note.event.c_str(),
                   note.details.dump().c_str());
  }
  // programs
  int channel(WorkerId id) const { return id.node * 8 + id.local; }
  Program* program(WorkerId id, int generation);
  void ends(WorkerId id, int generation, Exit exit);
  void leaves(WorkerId id, int generation);
  void breaks(int generation);
  void may_kill();
  void told(WorkerId id, int generation, int signal);
  void ends_training(int generation);
  // live mode
  void go_on_switching();
  void abort_switch(const Error& why);
  void pause(const Switch& one, bool is_paused);
  // Slurm
  void order_requeue();
  std::vector<JobId> held() const;
  void signal_companion(JobId job, int signal, bool notice_first, int code);
  void take_away(JobId job);

  const GenerationMachine::Settings settings_;
  const bool says_sizes_;
  Choices& choices_;
  const bool trace_ = std::getenv("GENERATIONS_TRACE") != nullptr;
  double now_ = 100;
  GenerationMachine machine_;
  std::map<WorkerId, Shim> shims_;
  std::map<int, Generation> generations_;
  std::map<JobId, Companion> companions_;
  std::map<int, std::deque<Sent>> outbox_;
  std::multimap<double, News> timeline_;
  std::deque<Switch> switches_;  ///< the first one is in progress
  JobId next_job_ = kJob + 1;
  std::int64_t last_order_ = 0;  ///< of the last Requeue that was not called off
  int training_ = -1;            ///< the generation that is training
  std::optional<int> code_;
};

}  // namespace generation_world
