// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>

#include "control/lent_limits.h"
#include "core/policy/objective.h"
#include "core/policy/submissions.h"
#include "core/result.h"

namespace swell::control {

/// Content of swell.conf: Key=Value lines, '#' begins a comment, keys in any case; swell.conf(5)
/// describes each key. The file is beside slurm.conf. The controller, swellrun, `swell doctor` and
/// `swell drain` read it.
struct SwellConf {
  bool enabled = true;    ///< Elasticity: false for "no"
  bool draining = false;  ///< Elasticity=drain: lend no more, reclaim what is lent
  std::string base_scheduler = "sched/backfill";  ///< BaseScheduler
  std::string policy = "swell";  ///< Policy: any name; controller/config.h checks it
  policy::Objective objective = policy::Objective::completion;  ///< Objective: of Policy=swell
  double aggressiveness = 1;        ///< Aggressiveness: of policies that lend by benefit
  double fairness = 0;              ///< Fairness: of policies that lend by benefit
  std::string expansion_qos;        ///< ExpansionQOS: companions run under it
  std::string expansion_partition;  ///< ExpansionPartition: or in it, where there is no slurmdbd
  std::string
      control_address;         ///< ControlAddress: where agents connect; empty: slurmctld's address
  int control_port = 6829;     ///< ControlPort
  double poll_interval_s = 1;  ///< PollInterval: how often a changed queue is looked for
  double growth_interval_s = 60;      ///< GrowthInterval: least time between growths of one job
  double grant_expiry_s = 15;         ///< GrantExpiry: how long an offer stands
  double agent_timeout_s = 15;        ///< AgentTimeout: how long expansions outlive a lost agent
  double min_remaining_s = 120;       ///< LeastRemaining: no growth of a job that ends sooner
  double profile_wait_s = 10;         ///< ProfileWait: no growth of a live job without a profile
  bool lends_without_profile = true;  ///< LendWithoutProfile: to jobs that nobody can plan for
  /// MaxShortfall: share of a promised gain that may be missing; 1: any
  double max_shortfall = 0.95;
  /// ScaleUpChance, ArrivalWindow, ArrivalGPUs: of Policy=flextrain
  policy::ArrivalFilter arrivals;
  int max_gpus_per_job = 0;        ///< MaxGPUsPerJob: the site's cap on a job's total; 0: none
  LentLimits max_lent_by_account;  ///< MaxLentByAccount: of the account that a job runs under
  LentLimits max_lent_by_qos;      ///< MaxLentByQOS: of the QOS that a job runs under
  int max_grace_s = 0;             ///< MaxGrace: of any job; 0: GraceTime of the expansions' place
  double withhold_s = 3600;        ///< WithholdTime: of a node where companions fail; 0: none is
  double type_interval_s = 180;  ///< TypeInterval: the type of pending jobs is looked at; 0: never
  double switch_interval_s = 3600;  ///< SwitchInterval: between two moves of one running job
  bool lowers_requests = true;      ///< LowerRequests: jobs with min= are submitted for so few
  int history_days = 90;  ///< HistoryDays: days for which ended jobs are kept; 0: no history
  std::string event_log;  ///< EventLog: a file that gets one JSON line an event

  friend bool operator==(const SwellConf&, const SwellConf&) = default;

  /// Reads the text of a swell.conf. The error names the line, the key, the value and what is
  /// allowed.
  static Result<SwellConf> parse(std::string_view text);
  /// Reads a file. Returns an error if it does not exist: Swell needs the expansion QOS.
  static Result<SwellConf> load(const std::string& path);
};

/// The QOS under which companions run, or their partition if there is no slurmdbd.
struct ExpansionPlace {
  std::string qos, partition;

  bool is_named() const noexcept { return !qos.empty() || !partition.empty(); }
  friend bool operator==(const ExpansionPlace&, const ExpansionPlace&) = default;
  /// Returns whether this place is among those that a submission names. Both are Slurm's own lists
  /// ("train,expansion"), in any case.
  bool named_in(std::string_view qos_list, std::string_view partition_list) const;
};

/// Reads ExpansionQOS and ExpansionPartition of a swell.conf, whatever else is wrong in it: they
/// are reserved for companions even while elasticity is off.
ExpansionPlace expansion_place_in(std::string_view text);

/// Returns the path of swell.conf beside the given slurm.conf.
std::string swell_conf_path(std::string_view slurm_conf);

/// Returns the swell.conf for programs on any node: the one beside the node's own slurm.conf
/// (`own_slurm_conf`: SLURM_CONF there, or Slurm's folder for configless nodes), or beside that of
/// slurmctld. Configless Slurm does not send it to nodes: without one the defaults apply, with
/// `port` (SWELL_CONTROL_PORT) in place of ControlPort.
Result<SwellConf> swell_conf_on_node(const char* own_slurm_conf, std::string_view slurmctlds,
                                     const char* port);

/// Returns the text with Elasticity=`value` in place of the line that is there, or at the end. All
/// else stays as it was.
std::string with_elasticity(std::string_view text, std::string_view value);

}  // namespace swell::control
