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

/// Nodes that slurmctld has not heard of since it started. It does not know yet which GPUs they
/// have. They are in state UNKNOWN, where nothing starts; but where one of several jobs ends
/// meanwhile, Slurm takes the node for usable, and a job that it starts there gets none of the GPUs
/// that it asked for.
struct Absent {
  std::string names;  ///< joined by commas; empty: none
  int count = 0;
  bool known = true;  ///< false: slurmctld has not been asked yet, and any node may be one

  bool operator==(const Absent&) const = default;
};

/// Those of the nodes that have GPUs and have not registered.
Absent absent_among(const std::vector<slurm::NodeRecord>& nodes);

/// For how long nodes count as absent: until they register, or Slurm has given them up.
class AbsenceWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// Slurm gives up nodes that do not answer within SlurmdTimeout, 300 s by default.
  static constexpr auto kLimit = std::chrono::seconds(300);
  enum class News { none, waits, all_there, gave_up };

  /// Takes the nodes that are absent now. If there are more than before, kLimit begins anew for
  /// all.
  News see(Absent absent, Clock::time_point now);
  /// REQUIRES: called now and then, also where nothing changes.
  News pass(Clock::time_point now);
  bool waits() const noexcept { return absent_.count > 0 && !gave_up_; }
  const Absent& absent() const noexcept { return absent_; }

 private:
  Absent absent_;
  Clock::time_point since_;
  bool gave_up_ = false;
};

/// Takes absent nodes out of the candidates of jobs that start now. Such a job waits for another
/// node, or for the registration, which slurmctld asks for within seconds.
///
/// Used under slurmctld's write lock on nodes, hence by one thread at a time.
class Absence {
 public:
  using Base = int (*)(const JobTest&);  ///< the choice among the others
  Absence(const Bitmaps& api, Base base) : api_(api), base_(base) {}
  ~Absence();
  Absence(const Absence&) = delete;
  Absence& operator=(const Absence&) = delete;

  /// @param absent  null: all nodes are there.
  /// @param node_table  another value whenever a bit may mean another node than before.
  /// @return what `base` returned, or ESLURM_NODES_BUSY where no candidate is left.
  int test(const JobTest& call, const std::shared_ptr<const Absent>& absent,
           std::uint32_t node_table);

 private:
  const Bitmap* present(const std::shared_ptr<const Absent>& absent, std::uint32_t node_table);
  void forget();

  const Bitmaps& api_;
  const Base base_;
  std::shared_ptr<const Absent> absent_;
  std::uint32_t node_table_ = 0;
  Bitmap* present_ = nullptr;  ///< all nodes but those of absent_
};

}  // namespace swell::select
