// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/select/bitmaps.h"
#include "plugins/select/narrowing.h"
#include "slurm/records.h"

namespace swell::select {

/// Nodes from which slurmctld has not heard since it started. It does not yet know which GPUs they
/// have. Nothing starts on them, because their state is UNKNOWN. But if one of several jobs on such
/// a node ends meanwhile, Slurm considers the node usable, and a job that it starts there gets none
/// of the GPUs that it requested.
struct Absent {
  std::string names;  ///< joined by commas; empty: none
  int count = 0;
  bool known = true;  ///< false: slurmctld has not been asked yet, and any node may be absent

  bool operator==(const Absent&) const = default;
};

/// Returns those of the nodes that have GPUs and have not registered.
Absent absent_among(const std::vector<slurm::NodeRecord>& nodes);

/// Decides how long nodes count as absent: until they register, or Slurm has given them up.
class AbsenceWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// Slurm gives up nodes that do not answer within SlurmdTimeout, by default 300 s.
  static constexpr auto kLimit = std::chrono::seconds(300);
  enum class News { none, waits, all_there, gave_up };

  /// Takes the nodes that are absent now. If there are more than before, kLimit begins again for
  /// all of them.
  News see(Absent absent, Clock::time_point now);
  /// Ends the absence after kLimit. REQUIRES: called regularly, even if nothing changes.
  News pass(Clock::time_point now);
  bool waits() const noexcept { return absent_.count > 0 && !gave_up_; }
  const Absent& absent() const noexcept { return absent_; }

 private:
  Absent absent_;
  Clock::time_point since_;
  bool gave_up_ = false;
};

/// Removes absent nodes from the candidates of jobs that start now. Such a job waits for another
/// node, or for the registration, which slurmctld requests within seconds.
///
/// Used under slurmctld's write lock on nodes, hence by one thread at a time.
class Absence {
 public:
  using Base = int (*)(const JobTest&);  ///< chooses among the other candidates
  Absence(const Bitmaps& api, Base base) : api_(api), base_(base) {}
  ~Absence();
  Absence(const Absence&) = delete;
  Absence& operator=(const Absence&) = delete;

  /// Returns what `base` returned, or ESLURM_NODES_BUSY if no candidate is left. `absent` null: all
  /// nodes are present. `node_table`: changes whenever a bit may stand for another node than
  /// before.
  int test(const JobTest& call, const std::shared_ptr<const Absent>& absent,
           std::uint32_t node_table);

 private:
  const Bitmap* present(const std::shared_ptr<const Absent>& absent, std::uint32_t node_table);
  void forget();

  const Bitmaps& api_;
  const Base base_;
  std::shared_ptr<const Absent> absent_;
  std::uint32_t node_table_ = 0;
  Bitmap* present_ = nullptr;  ///< all nodes except those of absent_
};

}  // namespace swell::select
