// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/cluster/cluster.h"
#include "launcher/generation_machine.h"
#include "launcher/live_driver.h"
#include "launcher/worker_connections.h"

namespace swell::launcher {

/// Live mode's part of the agent: an order of the generation machine waits until the keepers of its
/// workers listen; then the driver carries it out, and the machine gets the result.
class LiveOrders {
 public:
  struct Settings {
    std::string key;  ///< the key of the job's keepers
    JobId job = 0;    ///< the job's own
    int gpus_per_worker = 1;
    runtime::Verify verify = runtime::Verify::network;  ///< --switch-verify
    std::uint64_t memory_bytes = 0;                     ///< --switch-memory
  };
  /// `workers` and `machine` must outlive this. `wake` is called from another thread when
  /// take_news() has something. Throws std::system_error if no thread can be started.
  LiveOrders(Settings settings, const WorkerConnections& workers, GenerationMachine& machine,
             std::function<void()> wake);

  const std::string& key() const noexcept { return settings_.key; }
  /// Notes that the worker's keeper listens at `address`, or has the `problem` that prevents it.
  void keeper_listens(WorkerId worker, const std::string& address, const std::string& problem);
  /// Forgets a worker that is not connected any more.
  void lost(WorkerId worker) { keepers_.erase(worker); }

  void begin(const action::BeginLive& begin);
  void change(const action::SwitchLive& order);
  void stop(const action::StopLive& stop);
  void call_off();
  /// Passes the driver's results on to the machine. `after_each` is called after each of them.
  void take_news(const std::function<void()>& after_each);

 private:
  struct Keeper {
    std::string address, problem;
  };
  void give();
  void answer(const Error& why);
  void take_stopped(const LiveDriver::Stopped& stopped);
  void take_switch_report(const runtime::SwitchReport& report);
  bool all_listen(const std::vector<WorkerId>& ranks) const;
  std::vector<WorkerId> workers_of(const std::vector<runtime::Shim>& shims) const;
  Result<std::vector<runtime::Shim>> shims_of(const std::vector<WorkerId>& ranks) const;
  std::vector<runtime::Shim> own_shims() const;
  cluster::Cluster cluster_of_nodes() const;

  const Settings settings_;
  const WorkerConnections& workers_;
  GenerationMachine& machine_;
  std::map<WorkerId, Keeper> keepers_;
  /// The order that waits until the keepers of its workers listen.
  std::variant<std::monostate, action::BeginLive, action::SwitchLive> order_;
  bool told_of_tmp_ = false, told_of_memory_ = false;
  std::set<std::string> told_notes_;  ///< notes on transports slower than requested
  LiveDriver driver_;
};

}  // namespace swell::launcher
