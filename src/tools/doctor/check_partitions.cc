// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of the partitions that elastic jobs run in, and of the partition for companions if there
// is no slurmdbd.
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <sstream>

#include "core/cluster/node_description.h"
#include "core/count_of.h"
#include "slurm/release.h"
#include "tools/doctor/checks.h"

namespace swell::tools::doctor {

namespace {

using slurm::SitePartition;

/// Returns commands that change a partition at once, and permanently.
std::vector<std::string> set_partition(const std::string& partition,
                                       const std::string& assignment) {
  return {fmt::format("scontrol update PartitionName={} {}", partition, assignment),
          fmt::format("in slurm.conf, on the line PartitionName={}: {}", partition, assignment)};
}

bool lists(const std::string& comma_list, const std::string& wanted) {
  std::istringstream in(comma_list);
  for (std::string word; std::getline(in, word, ',');)
    if (word == wanted) return true;
  return false;
}

std::vector<std::string> missing_from(const std::vector<std::string>& all,
                                      const std::vector<std::string>& some) {
  const std::set<std::string> have(some.begin(), some.end());
  std::vector<std::string> missing;
  for (const std::string& each : all)
    if (!have.contains(each)) missing.push_back(each);
  return missing;
}

std::string few(std::vector<std::string> names) {
  constexpr std::size_t max = 5;
  const std::size_t all = names.size();
  if (all > max) names.resize(max);
  return fmt::format("{}{}", fmt::join(names, ","),
                     all > max ? fmt::format(" and {} more", all - max) : "");
}

/// Checks AllocNodes: companions are allocated from the node that the job's agent runs on.
Finding check_alloc_nodes(const SitePartition& partition) {
  const std::string check = fmt::format("AllocNodes of {}", partition.name);
  if (partition.alloc_nodes.empty()) return good(check, "ALL");
  const std::vector<std::string> missing = missing_from(partition.nodes, partition.alloc_nodes);
  if (missing.empty()) return good(check, "its nodes are among them");
  return fault(
      check,
      fmt::format("jobs may not be submitted from {}, so swellrun cannot take grants up there",
                  few(missing)),
      set_partition(partition.name, "AllocNodes=ALL"));
}

void check_qos_of(const SitePartition& partition, const std::string& qos, Findings& findings) {
  const std::string check = fmt::format("QOS of {}", partition.name);
  if (!partition.allow_qos.empty() && !lists(partition.allow_qos, qos))
    findings.push_back(fault(
        check,
        fmt::format("AllowQos={} refuses companions, which run under QOS \"{}\" there",
                    partition.allow_qos, qos),
        set_partition(partition.name, fmt::format("AllowQos={},{}", partition.allow_qos, qos))));
  else if (lists(partition.deny_qos, qos))
    findings.push_back(
        fault(check,
              fmt::format("DenyQos={} refuses companions, which run under QOS \"{}\" there",
                          partition.deny_qos, qos),
              {fmt::format("in slurm.conf, on the line PartitionName={}: take {} out of DenyQos",
                           partition.name, qos),
               "scontrol reconfigure"}));
}

std::vector<std::string> create_partition(const Site& site, const std::string& name) {
  std::set<std::string> nodes;
  for (const SitePartition& each : site.gpu_partitions())
    nodes.insert(each.nodes.begin(), each.nodes.end());
  return {
      fmt::format(
          "in slurm.conf: PartitionName={} Nodes={} Hidden=YES PriorityTier=1 PreemptMode=CANCEL GraceTime=60",
          name, nodes.empty() ? "ALL" : fmt::format("{}", fmt::join(nodes, ","))),
      "scontrol reconfigure"};
}

class ExpansionPartitionChecks {
 public:
  ExpansionPartitionChecks(const Site& site, const SitePartition& partition, Findings& findings)
      : site_(site), own_(partition), findings_(findings) {}

  void run() {
    state();
    tier();
    mode();
    grace();
    nodes();
    access();
    time_limit();
    without_plugin();
    findings_.push_back(check_alloc_nodes(own_));
    known_limit();
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  void state() {
    if (own_.up && !own_.root_only)
      return add(good("expansion-partition", fmt::format("{} is up", own_.name)));
    add(fault("expansion-partition",
              fmt::format("{} {}", own_.name,
                          own_.up ? "is for root only" : "is not up, so nothing can be lent"),
              set_partition(own_.name, own_.up ? "RootOnly=NO" : "State=UP")));
  }

  void tier() {
    std::vector<std::string> not_above;
    for (const SitePartition& each : site_.gpu_partitions())
      if (each.priority_tier <= own_.priority_tier)
        not_above.push_back(fmt::format("{} ({})", each.name, each.priority_tier));
    if (not_above.empty())
      return add(good("PriorityTier", fmt::format("{} has {}, below every partition with GPUs",
                                                  own_.name, own_.priority_tier)));
    if (own_.priority_tier > 1)
      return add(
          fault("PriorityTier", tier_words(not_above), set_partition(own_.name, "PriorityTier=1")));
    std::vector<std::string> fix;
    for (const SitePartition& each : site_.gpu_partitions())
      if (each.priority_tier <= own_.priority_tier)
        for (std::string& line :
             set_partition(each.name, fmt::format("PriorityTier={}", own_.priority_tier + 9)))
          fix.push_back(std::move(line));
    add(fault("PriorityTier", tier_words(not_above), std::move(fix)));
  }
  std::string tier_words(const std::vector<std::string>& not_above) const {
    return fmt::format("{} has {}: jobs of {} could not take lent GPUs back by themselves",
                       own_.name, own_.priority_tier, fmt::join(not_above, ", "));
  }

  void mode() {
    using slurm::PreemptMode;
    const bool ends =
        own_.preempt_mode == PreemptMode::cancel || own_.preempt_mode == PreemptMode::requeue ||
        (own_.preempt_mode == PreemptMode::of_cluster && site_.config.preempt_cancels);
    if (ends)
      return add(
          good("PreemptMode", fmt::format("companions in {} are ended when preempted", own_.name)));
    add(fault("PreemptMode",
              fmt::format("that of {} is {}: a preempted companion would keep its GPUs", own_.name,
                          to_text(own_.preempt_mode)),
              set_partition(own_.name, "PreemptMode=CANCEL")));
  }

  void grace() {
    if (own_.grace_s > 0) return add(good("GraceTime", fmt::format("{} s", own_.grace_s)));
    add(fault(
        "GraceTime",
        fmt::format(
            "that of {} is 0: a preempted companion is killed at once, and the training falls back to its "
            "last checkpoint",
            own_.name),
        set_partition(own_.name, "GraceTime=60")));
  }

  void nodes() {
    std::set<std::string> all;
    for (const SitePartition& each : site_.gpu_partitions())
      all.insert(each.nodes.begin(), each.nodes.end());
    const std::vector<std::string> wanted(all.begin(), all.end());
    const std::vector<std::string> missing = missing_from(wanted, own_.nodes);
    if (missing.empty())
      return add(
          good("nodes", fmt::format("{} has every node that elastic jobs may run on", own_.name)));
    const Finding finding = warning(
        "nodes",
        fmt::format("GPUs of {} are never lent: they are not in {}", few(missing), own_.name),
        set_partition(own_.name, fmt::format("Nodes={}", fmt::join(wanted, ","))));
    add(missing.size() < wanted.size() ? finding : fault(finding.check, finding.what, finding.fix));
  }

  void access() {
    std::string what, fix;
    auto note = [&](const char* key, std::string SitePartition::*member, const char* open) {
      const std::string& value = own_.*member;
      if (value.empty() || is_the_same_everywhere(member)) return;
      what += fmt::format("{}{}={}", what.empty() ? "" : " ", key, value);
      fix += fmt::format("{}{}={}", fix.empty() ? "" : " ", key, open);
    };
    note("AllowAccounts", &SitePartition::allow_accounts, "ALL");
    note("AllowGroups", &SitePartition::allow_groups, "ALL");
    note("DenyAccounts", &SitePartition::deny_accounts, "");
    if (what.empty())
      return add(good(
          "access", fmt::format("{} is open to whom partitions with GPUs are open to", own_.name)));
    add(warning("access", fmt::format("{} of {}: jobs of others never grow", what, own_.name),
                set_partition(own_.name, fix)));
  }

  bool is_the_same_everywhere(std::string SitePartition::*member) const {
    const auto all = site_.gpu_partitions();
    return std::all_of(all.begin(), all.end(),
                       [&](const SitePartition& each) { return each.*member == own_.*member; });
  }

  /// Checks that users' jobs would gain nothing in the partition: only job_submit/swell, if loaded,
  /// keeps them out.
  void without_plugin() {
    std::vector<std::string> gains, settings;
    auto compare = [&](const char* key, std::string SitePartition::*member) {
      for (const SitePartition& each : site_.gpu_partitions()) {
        if ((each.*member).empty() || !(own_.*member).empty()) continue;
        gains.push_back(fmt::format("{}={} of {}", key, each.*member, each.name));
        settings.push_back(fmt::format("{}={}", key, each.*member));
        return;
      }
    };
    auto compare_number = [&](const char* key, std::uint32_t SitePartition::*member) {
      std::uint32_t most = 0;
      for (const SitePartition& each : site_.gpu_partitions()) {
        if (each.*member == 0) return;
        most = std::max(most, each.*member);
      }
      if (most == 0 || (own_.*member != 0 && own_.*member <= most)) return;
      gains.push_back(fmt::format("{}={}", key, most));
      settings.push_back(fmt::format("{}={}", key, most));
    };
    compare("AllowAccounts", &SitePartition::allow_accounts);
    compare("AllowGroups", &SitePartition::allow_groups);
    compare("AllowQos", &SitePartition::allow_qos);
    compare("DenyAccounts", &SitePartition::deny_accounts);
    compare("DenyQos", &SitePartition::deny_qos);
    compare("QOS", &SitePartition::qos);
    compare_number("MaxTime", &SitePartition::max_time_min);
    compare_number("MaxNodes", &SitePartition::max_nodes);
    if (gains.empty())
      return add(good("without-plugin",
                      fmt::format("jobs in {} gain nothing, should job_submit/swell not be loaded",
                                  own_.name)));
    add(warning(
        "without-plugin",
        fmt::format(
            "should job_submit/swell not be loaded, any user's job in {} would not be held by {}",
            own_.name, fmt::join(gains, ", ")),
        set_partition(own_.name, fmt::format("{}", fmt::join(settings, " ")))));
  }

  void time_limit() {
    if (own_.max_time_min == 0) return;
    std::vector<std::string> longer;
    for (const SitePartition& each : site_.gpu_partitions())
      if (each.max_time_min == 0 || each.max_time_min > own_.max_time_min)
        longer.push_back(each.name);
    if (longer.empty()) return;
    add(warning("MaxTime",
                fmt::format("that of {} is {} min; jobs of {} that last longer cannot grow",
                            own_.name, own_.max_time_min, fmt::join(longer, ", ")),
                set_partition(own_.name, "MaxTime=UNLIMITED")));
  }

  void known_limit() {
    const std::string what =
        "with preempt/partition_prio, newer versions of Slurm (seen on 26.05) refuse companions while any job of a higher "
        "tier waits for the same nodes";
    if (!slurm::higher_tiers_hold_companions_up(site_.slurmctld->version))
      return add(good("note", fmt::format("{}; not this one", what)));
    add(warning("note", what, {"use ExpansionQOS with slurmdbd: swell-admin(7)"}));
  }

  const Site& site_;
  const SitePartition& own_;
  Findings& findings_;
};

/// Reports that Slurm is too old for jobs with types= and table= to change their GPU type later.
void check_types(const Site& site, Findings& findings) {
  std::set<std::string> types;
  for (const slurm::NodeRecord& node : site.queue.nodes)
    for (const slurm::GpuRequest& gpus : node.gpus) types.insert(gpus.type);
  if (types.size() < 2 || slurm::changes_gpu_types(site.slurmctld->version)) return;
  findings.push_back(
      good("note",
           fmt::format("Slurm {} does not change the GPU type of jobs that wait (24.11 does): with "
                       "table= it is chosen at submission alone, and switch=requeue is not used",
                       site.slurmctld->version)));
}

/// Reports the partitions in which Slurm itself preempts nothing for a pending job.
void check_sharing(const Site& site, Findings& findings) {
  std::vector<std::string> where;
  for (const slurm::PartitionRecord& each : site.queue.partitions)
    if (each.sole_user) where.push_back("partition " + each.name + " (ExclusiveUser)");
  if (site.queue.labelled_nodes == slurm::LabelledNodes::of_all)
    where.emplace_back("all partitions (MCSParameters=select)");
  if (where.empty()) return;
  findings.push_back(good(
      "note", fmt::format("{}: a node has jobs of one user or label at a time, and Slurm preempts "
                          "nothing there for others; the controller takes back what is lent there, "
                          "once another job needs the node",
                          fmt::join(where, ", "))));
}

/// Checks that nodes publish their topology: slurmd has them do so once it was started with the
/// lines of slurm.conf and plugstack.conf. Reports nothing if the site does not want this.
void check_topology(const Site& site, Findings& findings) {
  const bool wanted = site.plugstack && *site.plugstack && (*site.plugstack)->publishes;
  if (!wanted || !site.not_yet_running.empty()) return;
  int with_gpus = 0, published = 0;
  for (const slurm::NodeRecord& node : site.queue.nodes) {
    if (node.gpus.empty()) continue;
    ++with_gpus;
    const auto read = cluster::read_extra(node.extra);
    if (!read || read->has_value()) ++published;
  }
  if (with_gpus == 0) return;
  if (published > 0)
    return findings.push_back(
        good("topology", fmt::format("{} of {} with GPUs publish what they are made of", published,
                                     count_of(with_gpus, "node"))));
  findings.push_back(warning(
      "topology",
      "no node publishes what it is made of, so that companions go to any node: slurmd reads slurm.conf and plugstack.conf "
      "when it starts",
      {"systemctl restart slurmd   # on every node; running jobs go on"}));
}

}  // namespace

void check_expansion_partition(const Site& site, Findings& findings) {
  const std::string& type = site.slurmctld->preempt_type;
  if (type == "preempt/partition_prio") findings.push_back(good("PreemptType", type));
  else
    findings.push_back(fault(
        "PreemptType",
        fmt::format("it is {}: with ExpansionPartition, Slurm must preempt by partition",
                    type.empty() ? "preempt/none" : type),
        {"in slurm.conf: PreemptType=preempt/partition_prio", "in slurm.conf: PreemptMode=CANCEL",
         "systemctl restart slurmctld   # running jobs go on"}));
  const std::string& name = site.swell_conf->expansion_partition;
  const auto found = std::find_if(site.partitions.begin(), site.partitions.end(),
                                  [&](const SitePartition& each) { return each.name == name; });
  if (found == site.partitions.end())
    findings.push_back(
        fault("expansion-partition",
              fmt::format("there is no partition \"{}\", which swell.conf names", name),
              create_partition(site, name)));
  else ExpansionPartitionChecks(site, *found, findings).run();
}

void check_partitions(const Site& site, Findings& findings) {
  const std::vector<SitePartition> partitions = site.gpu_partitions();
  if (partitions.empty()) {
    findings.push_back(warning("partitions",
                               "none that is up has nodes with GPUs, so there is nothing to lend",
                               {"sinfo -o '%P %a %D %G'"}));
    return;
  }
  for (const SitePartition& each : partitions) {
    if (site.swell_conf && !site.swell_conf->expansion_qos.empty()) {
      findings.push_back(check_alloc_nodes(each));
      check_qos_of(each, site.swell_conf->expansion_qos, findings);
    }
  }
  check_topology(site, findings);
  check_types(site, findings);
  check_sharing(site, findings);
}

}  // namespace swell::tools::doctor
