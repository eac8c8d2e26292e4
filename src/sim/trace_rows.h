// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/trace.h"

namespace swell::sim {

/// One job of a trace file, whatever the file's form.
struct TraceRow {
  std::optional<double> submit_s, duration_s;
  double gpus = 0;
  std::string state;    ///< as the file has it; empty: none
  std::string account;  ///< whom it is of; empty: nobody is named
};

/// Collects the jobs of a file, and counts what cannot be simulated by its reason.
class TraceRows {
 public:
  /// Adds a job, or counts why it is left out. The error, which begins with `where`, is of a
  /// submission years apart from the others. REQUIRES: row.duration_s is set.
  Result<void> add(const TraceRow& row, const std::string& where);
  void leave_out(const char* reason) { ++file_.left_out[reason]; }
  /// Returns all, sorted; an error where no job is left.
  Result<TraceFile> finish() &&;

 private:
  TraceFile file_;
  double first_ = 0, last_ = 0;
};

/// "2026-11-20T16:02:51", with a blank in place of the T, with parts of a second or an offset from
/// UTC, as seconds since 1970; or such seconds themselves; nothing of other text. Times without an
/// offset are taken for UTC.
std::optional<double> time_of(std::string_view text);

/// Whether a cell says that its value is not known: "", "None", "Unknown" and the like.
bool is_unknown(std::string_view text);

/// Reads what trace_from_text() is given where it is JSON.
Result<TraceFile> trace_from_json(std::string_view text);

}  // namespace swell::sim
