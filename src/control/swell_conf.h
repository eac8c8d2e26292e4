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
  std::string expansion_partition;  ///< ExpansionPartition: or in it, if there is no slurmdbd
  std::string
      control_address;         ///< ControlAddress: where agents connect; empty: slurmctld's address
  int control_port = 6829;     ///< ControlPort
  double poll_interval_s = 1;  ///< PollInterval: how often the queue is checked for changes
  double growth_interval_s = 60;      ///< GrowthInterval: minimum time between growths of one job
  double grant_expiry_s = 15;         ///< GrantExpiry: how long an offer is valid
  double agent_timeout_s = 15;        ///< AgentTimeout: how long expansions outlive a lost agent
  double min_remaining_s = 120;       ///< LeastRemaining: no growth of a job that ends sooner
  double profile_wait_s = 10;         ///< ProfileWait: no growth of a live job without a profile
  bool lends_without_profile = true;  ///< LendWithoutProfile: also to jobs that cannot be planned
  /// MaxShortfall: share of a promised gain that may be missing; 1: any
  double max_shortfall = 0.95;
  /// ScaleUpChance, ArrivalWindow, ArrivalGPUs: of Policy=flextrain
  policy::ArrivalFilter arrivals;
  int max_gpus_per_job = 0;        ///< MaxGPUsPerJob: the site's cap on a job's total; 0: none
  LentLimits max_lent_by_account;  ///< MaxLentByAccount: of the account that a job runs under
  LentLimits max_lent_by_qos;      ///< MaxLentByQOS: of the QOS that a job runs under
  int max_grace_s = 0;             ///< MaxGrace: for any job; 0: GraceTime of the expansions' place
  double withhold_s = 3600;        ///< WithholdTime: of a node after failed companions; 0: none
  double type_interval_s = 180;  ///< TypeInterval: between checks of pending jobs' types; 0: never
  double switch_interval_s = 3600;  ///< SwitchInterval: between two moves of one running job
  bool lowers_requests = true;      ///< LowerRequests: jobs with min= ask Slurm for only so many
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
  /// Returns whether this place is among those that a submission names. Both arguments are lists in
  /// Slurm's form ("train,expansion"), in any case.
  bool named_in(std::string_view qos_list, std::string_view partition_list) const;
};

/// Reads ExpansionQOS and ExpansionPartition of a swell.conf, even if the rest of it is wrong: they
/// are reserved for companions even while elasticity is off.
ExpansionPlace expansion_place_in(std::string_view text);

/// Returns the path of swell.conf beside the given slurm.conf.
std::string swell_conf_path(std::string_view slurm_conf);

/// Returns the swell.conf for programs on any node: the file beside the node's own slurm.conf
/// (`own_slurm_conf`: SLURM_CONF there, or Slurm's folder for configless nodes), else the one
/// beside slurmctld's slurm.conf. Configless Slurm does not send it to nodes: if there is none, the
/// defaults apply, with `port` (SWELL_CONTROL_PORT) in place of ControlPort.
Result<SwellConf> swell_conf_on_node(const char* own_slurm_conf, std::string_view slurmctlds,
                                     const char* port);

/// Returns the text with Elasticity=`value` in place of the line that is there, or at the end. All
/// else stays as it was.
std::string with_elasticity(std::string_view text, std::string_view value);

}  // namespace swell::control
