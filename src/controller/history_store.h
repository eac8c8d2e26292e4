// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/history_records.h"
#include "core/json.h"
#include "core/result.h"

struct sqlite3;

namespace swell::controller {

/// Whether this build has SQLite; without it nothing can be opened.
bool history_is_built_in() noexcept;

/// Time for which the writer waits for a reader of the file.
inline constexpr int kBusy_ms = 5000;

/// The history of elastic jobs in one SQLite file: docs/history.md has its tables. Others may read
/// the file meanwhile. One thread at a time.
class HistoryStore {
 public:
  enum class Access { write, read };
  /// Opens the file; with Access::write makes it where there is none, with mode 600. An error where
  /// it is damaged, of a newer version or no database, or others keep it for longer than `busy_ms`.
  static Result<HistoryStore> open(const std::string& path, Access access = Access::write,
                                   int busy_ms = kBusy_ms);
  struct Opening;
  /// Opens as above for writing. A damaged file is set aside as PATH.damaged-TIME, one of a newer
  /// Swell as PATH.newer-TIME, and a new one is begun; any other stays where it is.
  static Opening open_or_rebuild(const std::string& path, int busy_ms = kBusy_ms);

  /// Keeps all of them or none; events of jobs that are not known are left out.
  Result<void> write(const std::vector<history::Stamped>& records);
  /// Says of all other jobs that they have ended meanwhile: of all or none.
  Result<void> only_these_run(double time, const std::vector<control::JobId>& jobs);
  /// Whether the last failure was that others have the file: it is good, and free later.
  bool was_busy() const noexcept { return trouble_ == Trouble::busy; }
  /// Whether it was that the disk is full, or failed: the file is good.
  bool was_full() const noexcept { return trouble_ == Trouble::full || disk_failed(); }
  /// Whether the disk failed otherwise than by being full, as by a quota: the file is to be opened
  /// anew before the next try, since it may be another by then.
  bool disk_failed() const noexcept { return trouble_ == Trouble::disk; }
  /// Forgets jobs that ended before `time`.
  Result<void> forget_before(double time);

  /// Drops the oldest runs of users with more than `of_user` bytes, and then of the largest users
  /// until there are at most `in_all`: whole runs that have ended first.
  Result<void> keep_within(std::int64_t of_user, std::int64_t in_all);

  /// Returns {"jobs": [...], "events": [...], "more": bool} of one job, oldest first: as many
  /// events with an id above `after` as fit `max_bytes`. `uid`: only of jobs of this user.
  /// `with_profiles`: with each profile as it was reported; of one that does not fit, only its
  /// size. The error is a sentence for the requester.
  Result<Json> of_job(control::JobId job, std::optional<uid_t> uid, std::int64_t after,
                      std::size_t max_bytes, bool with_profiles = false) const;
  /// As of_job(), of the last `count` times that the job's GPUs changed (history::kGpuChanges), or
  /// the newest of them that fit; there are never more.
  Result<Json> last_changes(control::JobId job, std::optional<uid_t> uid, int count,
                            std::size_t max_bytes) const;
  /// The newest scale table of the newest run of each of `jobs` that has one.
  std::vector<history::Scale> scales_of(const std::vector<control::JobId>& jobs) const;

 private:
  enum class Trouble { none, busy, full, disk, damaged, newer, other };
  struct Close {
    void operator()(sqlite3* database) const noexcept;
  };
  explicit HistoryStore(sqlite3* database, std::string path)
      : database_(database), path_(std::move(path)) {}
  /// As open(); `trouble` receives the kind of its error.
  static Result<HistoryStore> open(const std::string& path, Access access, int busy_ms,
                                   Trouble& trouble);
  /// The runs of a job that belong to a user: as JSON, and as a list for SQL.
  struct Runs {
    Json json = Json::array();
    std::string list;
  };
  Result<Runs> runs_of(control::JobId job, std::optional<uid_t> uid) const;
  Error failure(const char* doing) const;
  Result<void> run(const char* sql) const;
  Result<void> prepare_file();
  /// Runs `work` in a transaction: all of it is kept or none.
  template <typename Work>
  Result<void> at_once(Work work);
  Result<void> end_others(double time, const std::vector<control::JobId>& jobs);
  /// The newest run of a job; 0: the job is not known.
  std::int64_t run_of(control::JobId job) const;
  /// Adds a row to the timeline; its id, or 0 where it is there already.
  Result<std::int64_t> add(double time, std::int64_t run, const history::Event& event);
  Result<void> keep(double time, const history::Job& job);
  Result<void> keep(double time, const history::Event& event);
  Result<void> keep(double time, const history::Profile& profile);
  Result<void> keep(double time, const history::Pause& pause);
  Result<void> keep(double time, const history::Scale& scale);

  std::unique_ptr<sqlite3, Close> database_;
  std::string path_;
  int version_ = 0;  ///< of the file
  mutable Trouble trouble_ = Trouble::none;
};

/// Result of opening a file.
struct HistoryStore::Opening {
  std::optional<HistoryStore> store;
  std::string problem;   ///< why there is none
  bool is_busy = false;  ///< others have it: it is good, and free later
  bool is_full = false;  ///< the disk is full, or failed
  std::string said;      ///< a sentence for the administrator; empty: nothing to say
};

}  // namespace swell::controller
