// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/cluster/node_description.h"
#include "launcher/event.h"
#include "launcher/process_runner.h"

namespace swell::launcher {

/// Carries out Grow orders: runs salloc for each offer, then looks at what Slurm granted, and, if
/// `wants_ports`, at the node. Cancels companions that cannot be used. `now`: seconds of one
/// clock.
class CompanionRequests {
 public:
  struct Settings {
    JobId job = 0;  ///< the companions' parent
    int gpus_per_worker = 1;
    int warning = 0;           ///< signal by which Slurm warns a companion's step
    bool wants_ports = false;  ///< descriptions of companions' nodes are read
  };
  /// Called once for each Grow, with a result for each of its offers. An offer whose node still
  /// runs its Prolog is reported later, in a call of its own.
  using Done = std::function<void(const std::vector<Granted>&)>;
  /// `descriptions`: those of known nodes, by name; descriptions of new nodes are added. It and
  /// `runner` must outlive this object.
  CompanionRequests(Settings settings, ProcessRunner& runner,
                    std::map<std::string, cluster::NodeDescription>& descriptions, Done done)
      : settings_(settings), runner_(runner), descriptions_(descriptions), done_(std::move(done)) {}

  void begin(const control::Grow& grow, double now);
  /// Handles a process that has ended. Returns false if another part started it.
  bool take(const ProcessRunner::Ended& ended);
  /// Returns when expire() is due; nullopt: no request is open.
  std::optional<double> deadline() const;
  /// Ends the requests that have expired, and begins no look for them. A companion that Slurm has
  /// granted may take kProlog_s longer while its node runs the Prolog.
  void expire(double now);
  /// Kills every salloc, at the end of the run.
  void kill() const;
  /// Returns the name of the companion's offer; "" if the job was not offered.
  std::string name_of(JobId companion) const;

  static constexpr double kProlog_s = 300;

 private:
  /// How to find out what Slurm granted. `scontrol -d` shows all, but may fail for users: then
  /// `scontrol` shows whether the companion is as offered, and a step shows its GPUs.
  enum class LookBy { details, summary, step };
  struct Look {
    std::size_t offer = 0;
    LookBy by = LookBy::details;
  };
  /// One Grow that is being tried.
  struct Request {
    std::vector<control::Offer> offers;
    std::vector<Granted> results;
    std::size_t open = 0;
    double expires = 0;
    std::map<pid_t, std::size_t> sallocs;  ///< index of the offer of each
    std::map<pid_t, Look> looks;
    std::set<pid_t> node_shows;
    bool is_slow = false;         ///< its node still runs the Prolog
    bool is_over = false;         ///< its time has passed: nothing more is begun
    std::set<std::size_t> moved;  ///< offers that became slow requests of their own
  };
  /// Each returns whether it started another process for the offer.
  bool salloc_ended(Request& request, std::size_t offer, const ProcessRunner::Ended& ended);
  bool look_ended(Request& request, const Look& look, const ProcessRunner::Ended& ended);
  bool begin_look(Request& request, const Look& look);
  bool describe_node(Request& request, const control::Offer& offered);
  void finish(std::size_t index);
  void cancel_unused(const std::string& name, JobId companion);
  void give_up(const std::string& name, Granted& result, std::string why);

  const Settings settings_;
  ProcessRunner& runner_;
  std::map<std::string, cluster::NodeDescription>& descriptions_;
  Done done_;
  std::vector<Request> requests_;
  std::map<JobId, std::string> names_;  ///< of companions, for the whole run
};

}  // namespace swell::launcher
