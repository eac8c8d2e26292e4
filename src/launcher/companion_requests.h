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

/// The Grows that are being tried: for each offer an salloc, then a look at what Slurm granted, and
/// where asked for at its node. A companion that cannot be used is cancelled here. `now`: seconds
/// of one clock.
class CompanionRequests {
 public:
  struct Settings {
    JobId job = 0;  ///< the companions' parent
    int gpus_per_worker = 1;
    int warning = 0;           ///< signal by which Slurm warns a companion's step
    bool wants_ports = false;  ///< companions' nodes are asked for their description
  };
  /// Called once for each Grow, with a result for each of its offers. One whose node still runs its
  /// Prolog comes later, by itself.
  using Done = std::function<void(const std::vector<Granted>&)>;
  /// `descriptions`: of the nodes that are known already, by name; new ones are added. It and
  /// `runner` must outlive this.
  CompanionRequests(Settings settings, ProcessRunner& runner,
                    std::map<std::string, cluster::NodeDescription>& descriptions, Done done)
      : settings_(settings), runner_(runner), descriptions_(descriptions), done_(std::move(done)) {}

  void begin(const control::Grow& grow, double now);
  /// Goes on after a process that has ended; false: it is another part's.
  bool take(const ProcessRunner::Ended& ended);
  /// The time of the next expire(); nothing: none is open.
  std::optional<double> deadline() const;
  /// Ends what an offer has not become by its expiry. A companion that Slurm has granted, whose
  /// node still runs its Prolog, may take kProlog_s longer.
  void expire(double now);
  /// Kills every salloc, at the end of the run.
  void kill() const;
  /// Returns the name of the companion's offer; "" for a job that came of none.
  std::string name_of(JobId companion) const;

  static constexpr double kProlog_s = 300;

 private:
  /// How Slurm is asked for what it has granted. `scontrol -d` tells everything, but may fail for
  /// users: then `scontrol` says whether the companion is right, and a step which GPUs it has.
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
    std::map<pid_t, std::size_t> sallocs;  ///< by the offer they are for
    std::map<pid_t, Look> looks;
    std::set<pid_t> node_shows;
    bool is_slow = false;         ///< its node still runs the Prolog
    std::set<std::size_t> moved;  ///< offers that became slow requests of their own
  };
  /// Each returns whether another process goes on for the offer.
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
