// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "control/server.h"
#include "controller/history_store.h"

namespace swell::controller {

/// Writes the history on a thread of its own: neither the controller nor slurmctld ever waits for
/// the disk, or for readers of the file. Where others have the file for long, or the disk is full,
/// what happens meanwhile waits here, within bounds. A damaged file is set aside and a new one
/// begun, which knows the jobs that run. Its owner calls from one thread.
class History {
 public:
  struct Options {
    std::string path;
    int keep_days = 90;  ///< jobs that ended longer ago are forgotten
    std::function<void(const std::string&)> log;
    std::function<void()> ready;  ///< take() has something; from the thread; may be null
    /// Others have the file: they are waited for so long, and then a pause as long is made.
    int busy_ms = kBusy_ms;
    /// Bytes of all jobs of a user, and of all users; the oldest make room.
    std::int64_t max_bytes_of_user = std::int64_t{64} << 20;
    std::int64_t max_bytes = std::int64_t{1} << 30;
  };
  explicit History(Options options);
  /// Writes what was handed over.
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  /// Hands a record over; where the disk is slower than the cluster for long, the newest are lost,
  /// and that is said.
  void add(history::Record record);
  /// The jobs that run, once after a start: others have ended meanwhile.
  void running(std::vector<control::JobId> jobs);

  /// Request for records; see HistoryStore::of_job(), and last_changes() where `last` is not 0.
  struct Question {
    control::ConnectionId connection = 0;
    control::JobId job = 0;
    std::optional<uid_t> uid;
    std::int64_t after = 0;
    int last = 0;
    bool with_profiles = false;
  };
  struct Reply {
    control::ConnectionId connection = 0;
    Result<Json> found;
  };
  /// False: too many wait for an answer.
  bool ask(Question question);
  /// Answers that have come.
  std::vector<Reply> take();
  /// Why nothing can be kept now; empty: nothing speaks against it.
  std::string trouble();
  /// The kept scale tables of the jobs that running() named, once, when they have been read.
  std::vector<history::Scale> take_scales();

 private:
  struct Records {
    std::vector<history::Stamped> list;
    std::size_t bytes = 0;
    std::optional<std::vector<control::JobId>> running;
    double running_since = 0;  ///< when `running` was said
    bool empty() const { return list.empty() && !running; }
  };
  void run() noexcept;
  void open();
  void take_wanted() SWELL_REQUIRES(mutex_);
  Result<Json> answer(const Question& question) const;
  void write();
  Result<void> write_to(HistoryStore& store);
  /// Leaves the records for later; `why` is said once until one is written.
  void wait(const char* why);
  void done_with_records();
  void say(const std::string& line) const;

  const Options options_;
  Mutex mutex_;
  Condition changed_;
  Records wanted_ SWELL_GUARDED_BY(mutex_);
  std::size_t taken_ SWELL_GUARDED_BY(mutex_) = 0;
  std::size_t taken_bytes_ SWELL_GUARDED_BY(mutex_) = 0;  ///< of waiting_, which the thread has
  std::vector<Question> questions_ SWELL_GUARDED_BY(mutex_);
  std::vector<Reply> replies_ SWELL_GUARDED_BY(mutex_);
  std::vector<history::Scale> scales_ SWELL_GUARDED_BY(mutex_);
  std::string trouble_ SWELL_GUARDED_BY(mutex_);
  bool stops_ SWELL_GUARDED_BY(mutex_) = false;
  bool complained_ SWELL_GUARDED_BY(mutex_) = false;
  // Used by the thread alone.
  std::optional<HistoryStore> store_;
  std::string problem_;              ///< why there is none
  Records waiting_;                  ///< handed over, and not written yet
  std::vector<history::Job> known_;  ///< they run, and are written once there is a file
  bool are_known_written_ = false;   ///< in this file
  bool waits_ = false;               ///< for others who have the file, or for room on the disk
  std::string said_waiting_;         ///< for what, as it was said; empty: nothing was written since
  std::chrono::steady_clock::time_point again_;
  double forgotten_ = 0;
  std::size_t written_ = 0;  ///< bytes since sizes were looked at
  std::thread thread_;
};

}  // namespace swell::controller
