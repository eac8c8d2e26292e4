// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/json.h"

namespace swell::controller {

/// One line an event: to Slurm's log for people, and to EventLog as JSON
/// {"time": seconds since 1970, "event": ..., ...} for timelines and tests. Never fails its caller.
class EventLog {
 public:
  EventLog(std::string path, std::function<void(const std::string&)> log)
      : path_(std::move(path)), log_(std::move(log)) {}

  /// `sentence` goes to the log where not empty.
  void event(const char* name, std::initializer_list<std::pair<const char*, Json>> members,
             const std::string& sentence = {});
  void say(const std::string& sentence) { log_(sentence); }

 private:
  std::string path_;
  std::function<void(const std::string&)> log_;
  bool complained_ = false;
};

}  // namespace swell::controller
