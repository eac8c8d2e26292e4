// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/state/store.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// The snapshots that a keeper holds: those of its own rank, and those of the ranks whose partner
/// it is.
///
/// A rank takes its K-th snapshot only when its partner has the previous one. While one rank waits
/// for its partner, the other ranks, whose next step waits for that rank, may already have taken
/// their K-th; then K - 2 is the last snapshot that this rank's partner has. Therefore the last
/// three snapshots of each rank of a generation are kept. From an earlier generation, whose end all
/// ranks have reached, two are kept until a later generation has three. A snapshot for a switch is
/// dropped with the next snapshot of its rank, whatever its purpose. Not thread-safe.
class Snapshots {
 public:
  explicit Snapshots(Store& store) : store_(store) {}
  /// Adds a snapshot, with the uses that its table has of the store.
  void add(Snapshot snapshot);
  /// Takes memory of the store for a copy of `table`, and returns the copy's table; memory that
  /// several tensors share is copied once. `runs` gets what to copy, by the kind of memory of the
  /// source.
  static Result<std::vector<Held>> take_copy(Store& store, const std::vector<Held>& table,
                                             std::vector<Run>& runs,
                                             std::vector<Memory>* from = nullptr);
  /// Returns whether some snapshot has all bytes of the run's source.
  bool has(const Run& run) const;
  const std::vector<Snapshot>& all() const noexcept { return all_; }

 private:
  void drop(const Snapshot& snapshot);
  Store& store_;
  std::vector<Snapshot> all_;  ///< oldest first
};

/// A copy of the whole job's state: each rank's snapshot of one step, and its holder.
struct Consistent {
  std::uint64_t generation = 0, step = 0;
  std::vector<OldRank> ranks;  ///< by number
  Roster roster;               ///< has the tables of `ranks`
};
/// One shim, and the snapshots that it reports.
struct Holder {
  cluster::GpuRef gpu;
  Endpoint endpoint;
  std::vector<Snapshot> snapshots;
};
/// Returns the newest step of which the holders together have every rank; nothing if there is none.
std::optional<Consistent> newest_of(const std::vector<Holder>& holders);

}  // namespace swell::runtime
