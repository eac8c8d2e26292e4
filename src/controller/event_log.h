// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include "core/json.h"

namespace swell::controller {

/// Text of at most `max_bytes`, and whole characters of UTF-8, with "..." where it was longer.
std::string shortened(std::string text, std::size_t max_bytes);

/// One line an event: to Slurm's log for people, and to EventLog as JSON
/// {"time": seconds since 1970, "event": ..., ...} for timelines and tests. Never fails its caller.
/// Events that users' programs cause at will are limited here, for the log, the file and the
/// listener (the history) alike: a hundred at once and one a second of each job, ten times as many
/// of each user. Dropped events are counted, and told once when the flood is over. Lent GPUs come
/// and go at the controller's own pace: their events, and the begin and end of jobs, are all kept.
/// The file is bounded: at kMaxBytes it becomes PATH.1, in place of the one before, and a new one
/// is begun. It is made with mode 640; a link or anything else but a file in its place is not
/// written to.
class EventLog {
 public:
  static constexpr off_t kMaxBytes = off_t{64} << 20;
  EventLog(std::string path, std::function<void(const std::string&)> log,
           off_t max_bytes = kMaxBytes)
      : path_(std::move(path)), log_(std::move(log)), max_bytes_(max_bytes) {}

  /// `sentence` goes to the log where not empty.
  void event(const char* name, std::initializer_list<std::pair<const char*, Json>> members,
             const std::string& sentence = {});
  /// Is there a file that wants events?
  bool kept() const noexcept { return !path_.empty(); }
  /// Hears every event and its line, whether there is a file or not.
  void set_listener(std::function<void(const std::string& name, const Json& line)> listener) {
    listener_ = std::move(listener);
  }
  void say(const std::string& sentence) { log_(sentence); }
  /// Logs what every round would say again: `sentence` only where it is not the last one of this
  /// subject since fixed().
  void say_once(const std::string& of, const std::string& sentence);
  /// Something does not work until fixed(): as say_once(), and anybody who asks is told.
  void trouble(const std::string& of, const std::string& sentence);
  void fixed(const std::string& of);
  /// Returns what does not work now, by subject.
  const std::map<std::string, std::string>& troubles() const noexcept { return troubles_; }
  /// Begins a round: `now`, in seconds, is the time of the events that follow.
  void begin_round(double now);
  /// Tells whose a job is, so that the user's events are limited too.
  void set_owners(std::function<std::optional<uid_t>(std::uint64_t job)> owner_of) {
    owner_of_ = std::move(owner_of);
  }
  /// May one more line be written that a user's program causes at will? A hundred at once and one a
  /// second on average, for each `source` (a job's id, a uid), so that nobody fills a disk.
  /// Other places still have what is dropped here.
  bool may_say(std::uint64_t source, double now);
  /// Returns how many bytes it has tried to write, whether the disk took them or not.
  std::uint64_t tried_bytes() const noexcept { return tried_bytes_; }

 private:
  std::string path_;
  std::function<void(const std::string&)> log_;
  off_t max_bytes_;
  std::function<void(const std::string&, const Json&)> listener_;
  std::string waiting_;      ///< lines for which the disk had no room, from `written_` on
  std::size_t written_ = 0;  ///< of waiting_
  std::uint64_t tried_bytes_ = 0;
  std::map<std::string, std::string> said_;  ///< by subject
  std::map<std::string, std::string> troubles_;
  struct Allowance {
    double lines = 0, at = 0;
    std::uint64_t dropped = 0;  ///< since it was last said
    double dropped_at = 0;
  };
  bool add_waiting(int fd);
  bool add_piece(int fd, std::string_view lines);
  Allowance* allowance_of(std::uint64_t source, double now);
  bool is_left_out(std::string_view name, const Json& job);
  std::function<std::optional<uid_t>(std::uint64_t)> owner_of_;
  double now_ = 0;
  std::map<std::uint64_t, Allowance> allowances_;
};

}  // namespace swell::controller
