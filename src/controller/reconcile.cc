// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/reconcile.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace swell::controller {

namespace {

/// A companion that the agent told of and that Slurm's records did not show for so long is gone.
constexpr double unseen_kept_s = 5;

class Reconciler {
 public:
  Reconciler(const slurm::Snapshot& snapshot, JobTable& jobs, const std::map<std::string, JobId>& issued, double now)
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
    if (!tag) return;
    const std::string elastic = tag->get("elastic");
    if (elastic.empty()) return;
    auto found = jobs_.find(record.id);
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
      job.first_seen = now_;
      job.agent_seen = now_;
      job.written = record.admin_comment;
      job.grants = static_cast<int>(tag->number("grants").value_or(0));
      job.reclaims = static_cast<int>(tag->number("reclaims").value_or(0));
      for (const control::CompanionWord& word : control::companions_from(tag->get("companions")))
        named_.insert({record.id, word.id});
      jobs_.emplace(record.id, std::move(job));
      add(Change::Kind::job_started, record.id, {});
    }
    ElasticJob& job = jobs_.at(record.id);
    job.basic_gpus = record.gpu_count();
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
      cancel(companion.id, fmt::format("its parent, job {}, is not running any more", job.id));
  }

  void see_companion(const slurm::JobRecord& record) {
    if (record.phase == slurm::JobPhase::pending || record.phase == slurm::JobPhase::ended) return;
    const auto tag = control::Tag::find(record.admin_comment);
    const auto parent_id = tag ? tag->number("parent") : std::nullopt;
    if (!parent_id) return;
    const bool holding = holds_its_nodes(record);
    const auto parent = jobs_.find(static_cast<JobId>(*parent_id));
    if (parent == jobs_.end() || parent->second.uid != record.uid) {
      if (holding) cancel(record.id, fmt::format("its parent, job {}, is not running any more", *parent_id));
      return;
    }
    ElasticJob& job = parent->second;
    Companion* companion = job.find(record.id);
    if (companion != nullptr && companion->grant != tag->get("grant")) return;  // an old id, used again
    if (companion == nullptr) {
      if (!holding) return;
      const auto grant = issued_.find(tag->get("grant"));
      const bool named = named_.contains({job.id, record.id});
      if (!named && (grant == issued_.end() || grant->second != job.id)) {
        cancel(record.id, fmt::format("job {} does not name it as its companion", job.id));
        return;
      }
      Companion fresh;
      fresh.id = record.id;
      fresh.grant = tag->get("grant");
      fresh.since = now_;
      job.companions.push_back(fresh);
      companion = &job.companions.back();
      learn(*companion, record);
      if (!named) ++job.grants;
      add(Change::Kind::companion_adopted, job.id, *companion);
    } else if (!companion->seen) {
      learn(*companion, record);
      ++job.grants;
      add(Change::Kind::companion_started, job.id, *companion);
    }
    shown_.insert(record.id);
    if (!holding) {
      // Its processes are being ended: no use to the job any more, not free yet.
      if (!companion->leaving) {
        companion->leaving = companion->lost = true;
        add(Change::Kind::companion_lost, job.id, *companion);
      }
    } else if (record.preempt_time != 0 && !companion->by_slurm) {
      companion->by_slurm = true;
      companion->leaving = true;
      companion->reason = "preempted by Slurm";
      companion->deadline = now_ + static_cast<double>(std::max<std::time_t>(record.end_time - snapshot_.taken, 0));
      add(Change::Kind::companion_preempted, job.id, *companion);
    }
  }

  static void learn(Companion& companion, const slurm::JobRecord& record) {
    companion.seen = true;
    companion.node = record.nodes.empty() ? companion.node : record.nodes.front();
    if (!record.gpus.empty()) companion.gpus = record.gpus.front().gpus;
    companion.held = {companion.gpus.count, record.cpus, record.memory_mib};
  }

  void drop_gone_companions() {
    for (auto& [id, job] : jobs_) {
      std::erase_if(job.companions, [&, parent = id](const Companion& companion) {
        if (shown_.contains(companion.id)) return false;
        if (!companion.seen && now_ - companion.since < unseen_kept_s) return false;
        if (!companion.leaving) add(Change::Kind::companion_lost, parent, companion);
        else if (!companion.lost) add(Change::Kind::companion_ended, parent, companion);
        return true;
      });
    }
  }

  void add(Change::Kind kind, JobId job, const Companion& companion) {
    result_.changes.push_back({kind, job, companion});
  }
  void cancel(JobId companion, const std::string& why) {
    if (cancelled_.insert(companion).second) result_.cancel.emplace_back(companion, why);
  }

  const slurm::Snapshot& snapshot_;
  JobTable& jobs_;
  const std::map<std::string, JobId>& issued_;
  double now_;
  std::set<JobId> alive_, shown_, cancelled_;
  std::set<std::pair<JobId, JobId>> named_;  ///< parent and companion, as AdminComment said
  Reconciled result_;
};

}  // namespace

Reconciled reconcile(const slurm::Snapshot& snapshot, JobTable& jobs, const std::map<std::string, JobId>& issued,
                     double now) {
  return Reconciler(snapshot, jobs, issued, now).run();
}

}  // namespace swell::controller
