// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/reconcile.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "control/speed_table.h"
#include "core/saturating.h"
#include "core/slurm_text/hostlist.h"
#include "core/slurm_text/lists.h"

namespace swell::controller {

class Reconciler {
 public:
  Reconciler(const slurm::Snapshot& snapshot, JobTable& jobs, const IssuedGrants& issued,
             double now)
      : snapshot_(snapshot), jobs_(jobs), issued_(issued), now_(now) {}

  Reconciled run() {
    for (const slurm::JobRecord& record : snapshot_.jobs) see_parent(record);
    drop_ended();
    for (const slurm::JobRecord& record : snapshot_.jobs) see_companion(record);
    drop_gone_companions();
    return std::move(result_);
  }

 private:
  static bool holds_its_nodes(const slurm::JobRecord& record) {
    return record.phase == slurm::JobPhase::running || record.phase == slurm::JobPhase::suspended;
  }

  void see_parent(const slurm::JobRecord& record) {
    if (!holds_its_nodes(record)) return;
    const auto tag = control::Tag::find(record.admin_comment);
    const std::string elastic = tag ? tag->get("elastic") : "";
    auto found = jobs_.find(record.id);
    // If somebody has removed the tag of a known job, the job stays elastic and the tag is written
    // again.
    if (elastic.empty() && (found == jobs_.end() || found->second.started != record.start_time))
      return;
    if (found != jobs_.end() && found->second.started != record.start_time) {
      end_job(found->second);  // requeued and started again between two looks
      jobs_.erase(found);
      found = jobs_.end();
    }
    if (found == jobs_.end()) {
      const auto spec = control::ElasticSpec::parse(elastic);
      if (!spec || record.gpu_count() < 1) return;
      ElasticJob job;
      job.id = record.id;
      job.uid = record.uid;
      job.started = record.start_time;
      job.spec = *spec;
      job.wanted_gpus = saturated_int(tag->number("wanted").value_or(0));
      if (tag->get("deadline").starts_with("missed")) job.deadline.was_missed();
      job.first_seen = now_;
      job.agent.await(now_);
      job.lending = LendingRecord(static_cast<int>(tag->number("grants").value_or(0)),
                                  static_cast<int>(tag->number("reclaims").value_or(0)),
                                  control::as_sentence(tag->get("taken_back")));
      job.offers =
          Offers(now_, {static_cast<int>(tag->number("refused").value_or(0)), tag->get("why")});
      const std::string speeds = tag->get("speeds");
      job.description = JobDescription(control::SpeedTable::parse(speeds) ? speeds : "",
                                       control::as_sentence(tag->get("chosen")),
                                       tag->number("moved").value_or(0));
      for (const control::CompanionWord& word : control::companions_from(tag->get("companions")))
        named_[{record.id, word.id}] = word;
      jobs_.emplace(record.id, std::move(job));
      add(Change::Kind::job_started, record.id, {});
    }
    ElasticJob& job = jobs_.at(record.id);
    job.basic_gpus = record.gpu_count();
    // It may have been changed with scontrol since its submission, or lost nodes since its start.
    job.wanted_gpus = control::ElasticSpec::owed_at_most(job.wanted_gpus, job.basic_gpus);
    if (record.phase != slurm::JobPhase::suspended) job.suspended_since.reset();
    else if (!job.suspended_since) job.suspended_since = now_;
    alive_.insert(record.id);
  }

  void drop_ended() {
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      if (alive_.contains(it->first)) {
        ++it;
        continue;
      }
      end_job(it->second);
      it = jobs_.erase(it);
    }
  }

  void end_job(const ElasticJob& job) {
    add(Change::Kind::job_ended, job.id, {});
    for (const Companion& companion : job.companions)
      cancel(job.identity(companion),
             fmt::format("its parent, job {}, is not running any more", job.id));
  }

  void see_companion(const slurm::JobRecord& record) {
    if (record.phase == slurm::JobPhase::pending || record.phase == slurm::JobPhase::ended) return;
    const auto identity = identity_in(record);
    if (!identity) return;
    const bool holding = holds_its_nodes(record);
    const auto parent = jobs_.find(identity->parent);
    if (parent == jobs_.end() || parent->second.uid != record.uid) {
      if (holding)
        cancel(*identity,
               fmt::format("its parent, job {}, is not running any more", identity->parent));
      return;
    }
    ElasticJob& job = parent->second;
    if (Companion* old = job.companions.find(record.id);
        old != nullptr && old->grant != identity->grant)
      drop(job, Companion(*old));  // slurmctld gave its id out again
    const auto grant = issued_.find(identity->grant);
    const bool issued = grant != issued_.end() && grant->second.parent == job.id;
    Companion* companion = job.companions.find(record.id);
    if (companion == nullptr) {
      if (!holding) return;
      const auto word = named_.find({job.id, record.id});
      const bool named = word != named_.end() && is_as_named(record, word->second);
      const bool used = job.companions.has_grant(identity->grant);
      if (used || (!issued && !named)) {
        cancel(*identity, used ? fmt::format("job {} has a companion on the same grant", job.id)
                               : fmt::format("job {} does not name it as its companion", job.id));
        return;
      }
      Companion fresh;
      fresh.id = record.id;
      fresh.grant = identity->grant;
      fresh.since = now_;
      companion = &job.companions.add(std::move(fresh));
      learn(*companion, record);
      if (word == named_.end()) job.lending.count_grant();
      if (!issued) adopt(record, *companion, job.id);
      add(Change::Kind::companion_started, job.id, *companion);
    }
    shown_.insert(record.id);
    companion->suspended = record.phase == slurm::JobPhase::suspended;
    companion->ends = record.time_limit_min > 0 ? record.end_time : 0;
    if (!holding) {
      // Slurm is ending its processes: the job can no longer use its GPUs, which are not free yet.
      if (!companion->is_leaving()) {
        companion->departure_.lose();
        add(Change::Kind::companion_lost, job.id, *companion);
      }
      return;
    }
    if (issued) check_excess(job, *companion, record, grant->second, *identity);
    if (record.preempt_time != 0 && !companion->departure().is_by_slurm()) {
      companion->departure_.preempt(
          now_ + static_cast<double>(std::max<std::time_t>(record.end_time - snapshot_.taken, 0)),
          preempted_for(companion->node));
      add(Change::Kind::companion_preempted, job.id, *companion);
    }
  }

  /// Returns the only pending job that may start on the node, for which Slurm preempts. 0: there is
  /// none, or several, and Slurm's records do not say which of them it is.
  JobId preempted_for(const std::string& node) const {
    std::set<std::string> partitions;
    for (const slurm::PartitionRecord& each : snapshot_.partitions)
      if (std::find(each.nodes.begin(), each.nodes.end(), node) != each.nodes.end())
        partitions.insert(each.name);
    ListsOf lists(node);
    JobId only = 0;
    for (const slurm::JobRecord& record : snapshot_.jobs) {
      const bool may_start = may_start_on(record, partitions, lists);
      if (lists.ran_out()) return 0;
      if (!may_start || identity_in(record)) continue;
      const JobId id = record.het_leader != 0 ? record.het_leader : record.id;
      if (only != 0 && only != id) return 0;
      only = id;
    }
    return only;
  }

  /// Reads the host lists of pending jobs to find one node in them. Reads equal lists once, and at
  /// most kMaxNames names in total.
  class ListsOf {
   public:
    explicit ListsOf(const std::string& node) : node_(node) {}
    struct Seen {
      bool has = false;  ///< the node
      long names = 0;
    };
    Seen look(const slurm::SharedText& list) {
      if (list.empty()) return {};
      const auto [found, is_new] = seen_.try_emplace(list.get());
      if (is_new)
        static_cast<void>(slurm_text::visit_hostlist(list.get(), [&](std::string_view name) {
          found->second.has = found->second.has || name == node_;
          ++found->second.names;
          return ++names_ < kMaxNames;
        }));
      return found->second;
    }
    bool ran_out() const noexcept { return names_ >= kMaxNames; }

   private:
    static constexpr long kMaxNames = 1'000'000;
    const std::string& node_;
    std::unordered_map<std::string_view, Seen> seen_;
    long names_ = 0;
  };

  static bool may_start_on(const slurm::JobRecord& record, const std::set<std::string>& partitions,
                           ListsOf& lists) {
    if (record.phase != slurm::JobPhase::pending || record.waiting != slurm::Waiting::for_resources)
      return false;
    const std::vector<std::string_view> named = slurm_text::split_list(record.partition);
    if (std::none_of(named.begin(), named.end(),
                     [&](std::string_view each) { return partitions.contains(std::string(each)); }))
      return false;
    if (lists.look(record.excluded_nodes).has) return false;
    const ListsOf::Seen required = lists.look(record.required_nodes);
    return required.has || required.names < record.max_nodes;
  }

  void check_excess(ElasticJob& job, Companion& companion, const slurm::JobRecord& record,
                    const IssuedGrant& grant, const CompanionIdentity& identity) {
    const auto partition =
        std::find_if(snapshot_.partitions.begin(), snapshot_.partitions.end(),
                     [&](const auto& each) { return each.name == record.partition; });
    const bool whole_nodes =
        partition != snapshot_.partitions.end() && partition->gives_whole_nodes;
    const Result<void> within = check_within_grant(record, grant, whole_nodes);
    if (within) return;
    const std::string reason = "it holds more than was granted: " + within.error().message();
    if (!companion.is_leaving()) {
      companion.departure_.begin(now_, reason);
      add(Change::Kind::companion_excessive, job.id, companion);
    }
    cancel(identity, reason);
  }

  static bool is_as_named(const slurm::JobRecord& record, const control::CompanionWord& word) {
    return record.nodes == std::vector<std::string>{word.node} && record.gpu_count() == word.gpus;
  }

  /// Records a grant for what the companion holds now: it may keep that.
  void adopt(const slurm::JobRecord& record, const Companion& companion, JobId parent) {
    IssuedGrant grant;
    grant.parent = parent;
    grant.node = companion.node;
    grant.gpu_type = companion.gpus.type;
    grant.partition = record.partition;
    grant.gpus = companion.gpus.count;
    grant.cpus = record.cpus;
    grant.memory_mib = record.memory_mib;
    result_.adopted[companion.grant] = grant;
  }

  static void learn(Companion& companion, const slurm::JobRecord& record) {
    companion.node = record.nodes.empty() ? companion.node : record.nodes.front();
    if (!record.gpus.empty()) companion.gpus = record.gpus.front().gpus;
    companion.held = {companion.gpus.count, record.cpus, record.memory_mib};
  }

  void drop_gone_companions() {
    for (auto& [id, job] : jobs_)
      for (const Companion& companion : CompanionSet(job.companions))
        if (!shown_.contains(companion.id)) drop(job, companion);
  }

  void drop(ElasticJob& job, const Companion& gone) {
    if (!gone.is_leaving()) add(Change::Kind::companion_lost, job.id, gone);
    else if (!gone.departure().is_lost()) add(Change::Kind::companion_ended, job.id, gone);
    job.companions.remove(gone.id);
  }

  void add(Change::Kind kind, JobId job, const Companion& companion) {
    result_.changes.push_back({kind, job, companion});
  }
  void cancel(const CompanionIdentity& companion, const std::string& why) {
    if (cancelled_.insert(companion.id).second) result_.cancel.emplace_back(companion, why);
  }

  const slurm::Snapshot& snapshot_;
  JobTable& jobs_;
  const IssuedGrants& issued_;
  double now_;
  std::set<JobId> alive_, shown_, cancelled_;
  /// By parent and companion, as AdminComment said.
  std::map<std::pair<JobId, JobId>, control::CompanionWord> named_;
  Reconciled result_;
};

Reconciled reconcile(const slurm::Snapshot& snapshot, JobTable& jobs, const IssuedGrants& issued,
                     double now) {
  return Reconciler(snapshot, jobs, issued, now).run();
}

}  // namespace swell::controller
