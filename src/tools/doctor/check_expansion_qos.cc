// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of the primary set-up: companions run under a QOS that the users' QOS preempt.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <strings.h>
#include <utility>

#include "core/near_name.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/qos_limits.h"

namespace swell::tools::doctor {

namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// Returns whether a limit of a QOS, as sacctmgr prints it, is 0, so that no companion can run.
bool is_zero(const std::string& value) {
  const std::string last =
      value.substr(value.rfind('=') == std::string::npos ? 0 : value.rfind('=') + 1);
  return last == "0" || last == "00:00:00";
}

class QosChecks {
 public:
  QosChecks(const Site& site, Findings& findings)
      : site_(site), findings_(findings), name_(site.swell_conf->expansion_qos) {}

  void run() {
    add(preempt_type());
    add(preempt_mode());
    if (site_.cannot_ask) {
      add(warning(
          "expansion-qos",
          fmt::format("QOS and associations are not checked, since slurmdbd cannot be asked "
                      "{}",
                      site_.munge ? "with this PluginDir" : "without munge"),
          {"swell doctor   # again, once that is fixed"}));
      return;
    }
    if (!site_.accounting) {
      add(fault("expansion-qos",
                fmt::format("the QOS cannot be looked up: {}", site_.accounting.error().message()),
                {"sacctmgr -nP show qos format=Name",
                 "systemctl start slurmdbd   # on the accounting host"}));
      return;
    }
    for (const Qos& qos : site_.accounting->qos)
      if (strcasecmp(qos.name.c_str(), name_.c_str()) == 0) expansion_ = &qos;
    if (expansion_ == nullptr) {
      add(missing());
      return;
    }
    add(own_mode());
    add(preempts_nothing());  // first, since Slurm refuses QOS that preempt each other
    add(preempted_by());
    add(grace());
    add(exempt_time());
    add(associations());
    add(limits_of_associations());
    add(limits());
    add(without_plugin());
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  Finding preempt_type() const {
    const std::string& type = site_.slurmctld->preempt_type;
    if (type == "preempt/qos") return good("PreemptType", type);
    return fault("PreemptType",
                 fmt::format("it is {}: with ExpansionQOS, Slurm must preempt by QOS",
                             type.empty() ? "preempt/none" : type),
                 {"in slurm.conf: PreemptType=preempt/qos",
                  "systemctl restart slurmctld   # running jobs go on"});
  }

  Finding preempt_mode() const {
    if (!site_.config.preempt_off) return good("PreemptMode", "preemption is on");
    return fault("PreemptMode", "it is OFF, so basic demand could not take lent GPUs back",
                 {"in slurm.conf: PreemptMode=CANCEL",
                  "systemctl restart slurmctld   # running jobs go on"});
  }

  std::vector<std::string> create() const {
    const std::string users =
        user_qos().empty() ? "normal" : fmt::format("{}", fmt::join(user_qos(), ","));
    return {
        fmt::format("sacctmgr -i add qos {} set PreemptMode=cancel GraceTime=60 Priority=1", name_),
        fmt::format("sacctmgr -i modify qos where name={} set Preempt+={}", users, name_),
        fmt::format("sacctmgr -i modify cluster {} set QOS+={}", site_.config.cluster_name, name_)};
  }

  /// Returns the existing QOS that was probably meant: one whose name differs in case or by one or
  /// two letters, or the only one that users' QOS may preempt.
  const Qos* meant() const {
    const Qos* preempted = nullptr;
    int how_many = 0;
    for (const Qos& each : site_.accounting->qos) {
      if (strcasecmp(each.name.c_str(), name_.c_str()) == 0 || letters_apart(each.name, name_) <= 2)
        return &each;
      for (const Qos& other : site_.accounting->qos)
        if (contains(other.preempt, each.name)) {
          preempted = &each;
          ++how_many;
          break;
        }
    }
    return how_many == 1 ? preempted : nullptr;
  }

  Finding missing() const {
    const std::string what = fmt::format("there is no QOS \"{}\", which swell.conf names", name_);
    const Qos* other = meant();
    if (other == nullptr) return fault("expansion-qos", what, create());
    return fault("expansion-qos", fmt::format("{}; there is \"{}\"", what, other->name),
                 {fmt::format("in {}: ExpansionQOS={}   # or, if that is another: {}",
                              site_.swell_conf_path, other->name, create().front()),
                  "systemctl restart slurmctld   # running jobs go on"});
  }

  Finding own_mode() const {
    const std::string& mode = expansion_->preempt_mode;
    const bool of_cluster = mode.empty() || mode == "cluster";
    if (mode == "cancel" || mode == "requeue" || (of_cluster && site_.config.preempt_cancels))
      return good("expansion-qos", fmt::format("\"{}\" exists and is ended when preempted", name_));
    return fault(
        "expansion-qos",
        fmt::format("PreemptMode of QOS \"{}\" is {}: a preempted companion would keep its GPUs",
                    name_, of_cluster ? "the cluster's, which does not end jobs" : mode),
        {fmt::format("sacctmgr -i modify qos where name={} set PreemptMode=cancel", name_)});
  }

  /// Returns the names of the QOS that users' jobs run under.
  std::set<std::string> user_qos() const {
    std::set<std::string> names;
    for (const Association& each : site_.accounting->associations)
      if (!each.user.empty()) names.insert(each.qos.begin(), each.qos.end());
    names.erase(name_);
    return names;
  }

  Finding preempted_by() const {
    std::vector<std::string> can, cannot;
    const std::set<std::string> used = user_qos();
    for (const Qos& qos : site_.accounting->qos) {
      if (qos.name == name_ || (!used.empty() && !used.contains(qos.name))) continue;
      (contains(qos.preempt, name_) ? can : cannot).push_back(qos.name);
    }
    if (cannot.empty() && !can.empty())
      return good("preempts", fmt::format("every QOS of a user may preempt \"{}\": {}", name_,
                                          fmt::join(can, ", ")));
    const std::vector<std::string> fix{fmt::format(
        "sacctmgr -i modify qos where name={} set Preempt+={}", fmt::join(cannot, ","), name_)};
    if (can.empty())
      return fault(
          "preempts",
          fmt::format(
              "no QOS of a user has \"{}\" in its Preempt list, so basic demand could not take "
              "lent GPUs back by itself",
              name_),
          fix);
    return warning(
        "preempts",
        fmt::format("jobs of QOS {} cannot take lent GPUs back by themselves: \"{}\" is not in "
                    "their Preempt list",
                    fmt::join(cannot, ", "), name_),
        fix);
  }

  Finding preempts_nothing() const {
    if (expansion_->preempt.empty())
      return good("preempts-nothing", fmt::format("\"{}\" preempts no other QOS", name_));
    return fault("preempts-nothing",
                 fmt::format("\"{}\" may preempt {}: lent GPUs would be taken from basic demand",
                             name_, fmt::join(expansion_->preempt, ", ")),
                 {fmt::format("sacctmgr -i modify qos where name={} set Preempt=", name_)});
  }

  Finding grace() const {
    if (expansion_->grace_s > 0) return good("GraceTime", fmt::format("{} s", expansion_->grace_s));
    return fault(
        "GraceTime",
        fmt::format(
            "that of QOS \"{}\" is 0: a preempted companion is killed at once, and the training falls "
            "back to its last checkpoint",
            name_),
        {fmt::format("sacctmgr -i modify qos where name={} set GraceTime=60", name_)});
  }

  Finding exempt_time() const {
    const std::int64_t own = expansion_->exempt_s, of_cluster = site_.config.preempt_exempt_s;
    if (own == 0 && of_cluster == 0)
      return good("PreemptExemptTime", "0: companions can be preempted from the first second");
    return warning(
        "PreemptExemptTime",
        fmt::format(
            "a companion cannot be preempted for its first {} s; the controller takes it back all the "
            "same",
            own > 0 ? own : of_cluster),
        {own > 0
             ? fmt::format("sacctmgr -i modify qos where name={} set PreemptExemptTime=-1", name_)
             : std::string("in slurm.conf: PreemptExemptTime=00:00:00")});
  }

  Finding associations() const {
    std::vector<std::string> lacking;
    std::set<std::string> users, accounts;
    for (const Association& each : site_.accounting->associations) {
      if (each.user.empty() || contains(each.qos, name_)) continue;
      lacking.push_back(fmt::format("{}/{}", each.account, each.user));
      users.insert(each.user);
      accounts.insert(each.account);
    }
    if (lacking.empty())
      return good("associations", fmt::format("every user may use \"{}\"", name_));
    constexpr std::size_t max = 20;
    const std::size_t left_out = lacking.size() > max ? lacking.size() - max : 0;
    if (left_out > 0) lacking.resize(max);
    const std::string who = fmt::format("{}{}", fmt::join(lacking, ", "),
                                        left_out > 0 ? fmt::format(" and {} more", left_out) : "");
    if (!site_.config.enforces_qos)
      return good(
          "associations",
          fmt::format(
              "AccountingStorageEnforce has no qos, so \"{}\" is open to all; not listed for {}",
              name_, who));
    return fault(
        "associations",
        fmt::format("these may not use QOS \"{}\", so their jobs never grow: {}", name_, who),
        {fmt::format("sacctmgr -i modify user where name={} account={} set QOS+={}",
                     fmt::join(users, ","), fmt::join(accounts, ","), name_)});
  }

  /// Warns of limits that lent GPUs use up: those of associations count jobs of all QOS.
  Finding limits_of_associations() const {
    static const std::set<std::string> kCounting = {"GrpTRES",        "GrpTRESRunMins",
                                                    "GrpJobs",        "GrpSubmitJobs",
                                                    "MaxJobsPerUser", "MaxSubmitJobsPerUser"};
    std::vector<std::string> shown;
    for (const Association& each : site_.accounting->associations)
      for (const auto& [limit, value] : each.limits)
        if (kCounting.contains(limit))
          shown.push_back(fmt::format("{}{}{} has {}={}", each.account,
                                      each.user.empty() ? "" : "/", each.user, limit, value));
    if (shown.empty()) return good("user-limits", "none that companions count for");
    constexpr std::size_t max = 10;
    const std::size_t left_out = shown.size() > max ? shown.size() - max : 0;
    if (left_out > 0) shown.resize(max);
    return warning(
        "user-limits",
        fmt::format("companions count for them like their users' own jobs, so that less is lent "
                    "and it goes back for jobs that wait: {}{}",
                    fmt::join(shown, ", "),
                    left_out > 0 ? fmt::format(" and {} more", left_out) : ""),
        {"set such limits on the QOS of users' own jobs instead, which does not count companions: "
         "sacctmgr modify qos where name=normal set MaxJobsPerUser=N MaxTRESPerUser=gres/gpu=N"});
  }

  Finding limits() const {
    if (expansion_->limits.empty()) return good("limits", fmt::format("none on \"{}\"", name_));
    std::string shown, clearing;
    bool closed = false;
    for (const auto& [limit, value] : expansion_->limits) {
      if (!is_zero(value) && set_by_others(limit, *expansion_, *site_.accounting)) continue;
      shown += fmt::format("{}{}={}", shown.empty() ? "" : " ", limit, value);
      clearing += fmt::format(" {}={}", limit, cleared(value));
      closed = closed || is_zero(value);
    }
    if (shown.empty()) return good("limits", "only those that users' own QOS set too");
    const std::vector<std::string> fix{
        fmt::format("sacctmgr -i modify qos where name={} set{}", name_, clearing)};
    if (!site_.config.enforces_limits)
      return good("limits",
                  fmt::format("{} on \"{}\", which AccountingStorageEnforce does not enforce",
                              shown, name_));
    if (closed)
      return fault("limits", fmt::format("{} on \"{}\" refuses every companion", shown, name_),
                   fix);
    return warning(
        "limits",
        fmt::format(
            "{} on \"{}\": companions beyond that are refused, and the grants come to nothing. "
            "Leave it where it is meant as a cap on lending",
            shown, name_),
        fix);
  }

  /// Checks that users' other jobs would gain nothing in the QOS. Users' associations must allow
  /// it, as users create the companions; only job_submit/swell, if loaded, keeps other jobs out.
  Finding without_plugin() const {
    std::vector<std::string> gains, settings;
    const std::set<std::string> used = user_qos();
    for (const Qos& each : site_.accounting->qos) {
      if (!used.contains(each.name)) continue;
      if (each.usage_factor > expansion_->usage_factor && gains.empty()) {
        gains.push_back(fmt::format("be charged {:g} where \"{}\" is charged {:g}",
                                    expansion_->usage_factor, each.name, each.usage_factor));
        settings.push_back(fmt::format("UsageFactor={:g}", each.usage_factor));
      }
    }
    std::optional<Qos> lowest;
    for (const Qos& each : site_.accounting->qos)
      if (used.contains(each.name) && (!lowest || each.priority < lowest->priority)) lowest = each;
    if (lowest && expansion_->priority > lowest->priority) {
      gains.push_back(fmt::format("have priority {} where \"{}\" has {}", expansion_->priority,
                                  lowest->name, lowest->priority));
      settings.push_back(fmt::format("Priority={}", lowest->priority));
    }
    for (const char* flag :
         {"OverPartQOS", "PartitionMaxNodes", "PartitionMinNodes", "PartitionTimeLimit"})
      if (contains(expansion_->flags, flag)) {
        gains.push_back(fmt::format("pass over limits of partitions ({})", flag));
        settings.push_back(fmt::format("Flags-={}", flag));
      }
    if (site_.config.enforces_limits)
      for (const auto& [limit, hole] : loopholes(*expansion_, *site_.accounting, partition_qos())) {
        gains.push_back(fmt::format("not be held by {}={} of {}", limit, hole.allowed, hole.by));
        settings.push_back(fmt::format("{}={}", limit, hole.fix));
      }
    if (gains.empty())
      return good(
          "without-plugin",
          fmt::format("jobs in \"{}\" gain nothing, should job_submit/swell not be loaded", name_));
    return warning(
        "without-plugin",
        fmt::format("should job_submit/swell not be loaded, any user's job in QOS \"{}\" would {}",
                    name_, fmt::join(gains, "; ")),
        {fmt::format("sacctmgr -i modify qos where name={} set {}", name_,
                     fmt::join(settings, " "))});
  }

  /// Returns the QOS of every partition with GPUs; empty if one of these has no QOS.
  std::vector<std::string> partition_qos() const {
    std::vector<std::string> names;
    for (const slurm::SitePartition& each : site_.gpu_partitions()) {
      if (each.qos.empty()) return {};
      names.push_back(each.qos);
    }
    return names;
  }

  /// Returns the value with which sacctmgr removes a limit: -1, for each TRES of a list.
  static std::string cleared(const std::string& value) {
    if (value.find('=') == std::string::npos) return "-1";
    std::string result;
    for (std::size_t begin = 0; begin < value.size();) {
      const std::size_t comma = std::min(value.find(',', begin), value.size());
      const std::string one = value.substr(begin, comma - begin);
      result += fmt::format("{}{}=-1", result.empty() ? "" : ",", one.substr(0, one.rfind('=')));
      begin = comma + 1;
    }
    return result;
  }

  const Site& site_;
  Findings& findings_;
  std::string name_;
  const Qos* expansion_ = nullptr;
};

}  // namespace

void check_expansion_qos(const Site& site, Findings& findings) { QosChecks(site, findings).run(); }

}  // namespace swell::tools::doctor
