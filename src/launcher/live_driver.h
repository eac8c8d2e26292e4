// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "runtime/coordinator/coordinator.h"

namespace swell::launcher {

/// Runs a job's coordinator on a thread of its own, one order at a time, so that the agent's loop
/// never waits for it. Thread-safe.
class LiveDriver {
 public:
  /// The job's first generation, or the first one after a restart: its programs adopt the newest
  /// snapshot that the holders have, or else create new state.
  struct Begin {
    std::uint64_t generation = 0;
    std::vector<runtime::Shim> ranks;
    std::vector<runtime::Shim> holders = {};
  };
  struct Switch {
    std::uint64_t generation = 0;
    std::vector<runtime::Shim> from, to;
  };
  /// Programs of the generation leave, all at one step.
  struct Stop {
    std::uint64_t generation = 0;
    std::vector<runtime::Shim> ranks;
    runtime::Deadline by;  ///< for the programs to agree on a step
  };
  using Order = std::variant<Begin, Switch, Stop>;

  struct Begun {
    std::uint64_t generation = 0;
    std::string why;                  ///< empty: it has begun
    std::uint64_t snapshot_step = 0;  ///< with the snapshot of this step; 0: with new state
    bool stays = false;               ///< its programs may keep their processes
  };
  struct InPhase {
    std::uint64_t generation = 0;
    runtime::SwitchMachine::Phase phase = runtime::SwitchMachine::Phase::prepare;
  };
  /// The ranks that leave with the switch may leave now, before its commit.
  struct LetGo {
    std::uint64_t generation = 0;
  };
  struct Stopped {
    std::uint64_t generation = 0;
    runtime::RequestReport report;
  };
  using News = std::variant<Begun, InPhase, LetGo, Stopped, runtime::SwitchReport>;

  /// `wake` is called from the thread whenever take() has something new.
  LiveDriver(std::string key, std::function<void()> wake);
  /// Calls off what is under way.
  ~LiveDriver();

  /// Gives an order. An earlier one that is not over is called off, and answered first.
  void order(Order order, const cluster::Cluster& cluster,
             runtime::Coordinator::Options limits = {});
  /// Calls off the order under way, which is still answered. Returns its generation if it is too
  /// late for that: all shims are told to commit it.
  std::optional<std::uint64_t> call_off();
  std::vector<News> take();

 private:
  struct Job {
    Order order;
    std::shared_ptr<runtime::Coordinator> coordinator;
    std::uint64_t generation = 0;
  };
  void run();
  void carry_out(const Job& job);
  static Stopped stop_one(runtime::Coordinator& coordinator, const Stop& stop);
  static runtime::SwitchReport switch_one(runtime::Coordinator& coordinator, const Switch& one);
  static Begun begin_one(runtime::Coordinator& coordinator, const Begin& begin);
  void tell(News news);

  const std::string key_;
  const std::function<void()> wake_;
  Mutex mutex_;
  Condition changed_;
  std::vector<Job> waiting_ SWELL_GUARDED_BY(mutex_);
  std::shared_ptr<runtime::Coordinator> under_way_ SWELL_GUARDED_BY(mutex_);
  std::uint64_t its_generation_ SWELL_GUARDED_BY(mutex_) = 0;  ///< of under_way_
  std::vector<News> news_ SWELL_GUARDED_BY(mutex_);
  bool stopping_ SWELL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace swell::launcher
