// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <sys/types.h>
#include <utility>

#include "core/json.h"

namespace swell::controller {

/// One line an event: to Slurm's log for people, and to EventLog as JSON
/// {"time": seconds since 1970, "event": ..., ...} for timelines and tests. Never fails its caller.
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
  /// May one more line be written that a user's program causes at will? A hundred at once and one a
  /// second on average, for each `source` (a job's id, a uid), so that nobody fills a disk. What is
  /// left out is only missing here.
  bool may_say(std::uint64_t source, double now);

 private:
  std::string path_;
  std::function<void(const std::string&)> log_;
  off_t max_bytes_;
  std::function<void(const std::string&, const Json&)> listener_;
  bool complained_ = false;
  struct Allowance {
    double lines, at;
  };
  std::map<std::uint64_t, Allowance> allowances_;
};

}  // namespace swell::controller
