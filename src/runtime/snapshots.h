// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/messages.h"
#include "runtime/store.h"

namespace swell::runtime {

/// The snapshots that a keeper holds, of its own rank and of those whose partner it is.
///
/// A rank takes its K-th once its last is with its partner, so that while one waits there, the
/// others, whose next step waits for it, may have taken the K-th: then K - 2 is the last that the
/// partner of that rank has, too. So of each rank the last three of an epoch are kept; of an epoch
/// before, whose end all ranks have reached, two, until there are three of a later one. A snapshot
/// for a switch is dropped with the next one of its rank, whatever its purpose. Not thread-safe.
class Snapshots {
 public:
  explicit Snapshots(Store& store) : store_(store) {}
  /// Takes over the uses that `snapshot`'s table has of the store.
  void add(Snapshot snapshot);
  /// Takes memory of the store for a copy of `table`, as a table of its own: each piece that
  /// several tensors share once. `runs` is told from where to where, `from` of which memory each.
  static Result<std::vector<Held>> take_copy(Store& store, const std::vector<Held>& table,
                                             std::vector<Run>& runs,
                                             std::vector<Memory>* from = nullptr);
  /// Whether some snapshot has all of these bytes.
  bool has(const Run& run) const;
  const std::vector<Snapshot>& all() const noexcept { return all_; }

 private:
  void drop(const Snapshot& snapshot);
  Store& store_;
  std::vector<Snapshot> all_;  ///< oldest first
};

/// A copy of the whole job's state: each rank's snapshot of one step, and who holds it.
struct Consistent {
  std::uint64_t epoch = 0, step = 0;
  std::vector<OldRank> ranks;  ///< by number
  Roster roster;               ///< what their tables are of
};
/// One shim, and the snapshots that it says it holds.
struct Holder {
  cluster::GpuRef gpu;
  Endpoint endpoint;
  std::vector<Snapshot> snapshots;
};
/// The newest step of which the holders together have every rank; nothing where there is none.
std::optional<Consistent> newest_of(const std::vector<Holder>& holders);

}  // namespace swell::runtime
