// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/agent_sessions.h"
#include "controller/config.h"
#include "controller/elastic_job.h"
#include "controller/event_log.h"
#include "controller/grant_book.h"
#include "controller/history.h"
#include "controller/meters.h"
#include "controller/state_file.h"
#include "controller/tag_book.h"
#include "controller/type_move.h"
#include "slurm/slurm_api.h"

namespace swell::controller {

/// Whether work of the loop is asked for and not done yet.
class Due {
 public:
  void ask() noexcept { is_asked_ = true; }
  void done() noexcept { is_asked_ = false; }
  bool is_asked() const noexcept { return is_asked_; }

 private:
  bool is_asked_ = false;
};

/// Data that all parts of the elastic loop use: what is known of the cluster and of its elastic
/// jobs, and what they write and send through. One thread uses it; only the GrantBook and the
/// TagBook are shared with others.
struct LoopState {
  Config config;
  slurm::SlurmApi& slurm;
  GrantBook& book;
  TagBook* tags = nullptr;     ///< null: nobody asks for them
  History* history = nullptr;  ///< null: none is kept
  EventLog events;
  AgentSessions sessions;
  Meters meters{};
  JobTable jobs{};
  TypeMoves moves{};           ///< of jobs to another GPU type; only TypeSwitcher begins them
  slurm::Snapshot snapshot{};  ///< Slurm's records at the last look
  SavedState saved{};
  bool draining = false;  ///< nothing is lent, and what is lent is reclaimed
  Due decision{};         ///< something has changed that the policy reads
  Due save{};             ///< decisions or owners have changed `saved`

  /// Returns Slurm's record of the job at the last look; null if it had none.
  const slurm::JobRecord* record_of(JobId job) const;
  /// Copies to `saved` what is kept of the job over restarts. It is written in a while: agents
  /// change it as they like.
  void remember(const ElasticJob& job);
  /// The same, to be written in this round.
  void remember_at_once(const ElasticJob& job) {
    remember(job);
    save.ask();
  }
};

}  // namespace swell::controller
