// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/state/arena.h"
#include "runtime/state/control_page.h"
#include "runtime/state/slabs.h"

namespace swell::runtime {

/// A range of an arena, in whole pages.
struct Pages {
  std::uint64_t at = 0, bytes = 0;
};

/// A keeper's arena, with its allocated ranges and the number of tensors in each of their pages:
/// tensors of two generations may share pages. The first page is the control page. Not thread-safe,
/// except arena().
class Store {
 public:
  explicit Store(Arena arena);

  const std::shared_ptr<const Arena>& arena() const noexcept { return arena_; }
  /// Returns the GPU memory that the keeper holds beside the arena.
  Slabs& slabs() noexcept { return slabs_; }
  const Slabs& slabs() const noexcept { return slabs_; }
  ControlPage& page() const noexcept { return *reinterpret_cast<ControlPage*>(arena_->data()); }

  /// Takes a range in which no tensor stands yet. The error says how much is left.
  Result<std::uint64_t> take(std::uint64_t bytes);
  /// Counts a tensor of `bytes` at `at`. REQUIRES: it is in a range that was taken.
  void use(std::uint64_t at, std::uint64_t bytes);
  /// Removes a tensor from the count; pages without any tensor go back to the system.
  void drop(std::uint64_t at, std::uint64_t bytes);
  /// Removes a tensor from the count; pages without any tensor are added to `left`, and stay taken
  /// until give_back().
  void drop(std::uint64_t at, std::uint64_t bytes, std::vector<Pages>& left);
  /// Frees the pages in `left`: gives them back to the system, and makes them available to take().
  void free(const std::vector<Pages>& left);
  /// The second half of free(): makes the pages available. REQUIRES: the arena has released them.
  void give_back(const std::vector<Pages>& left);
  /// Frees taken pages in which no tensor stands.
  void sweep();

 private:
  /// Pages in which the same tensors stand.
  struct Piece {
    std::uint64_t bytes = 0;
    int uses = 0;
  };
  using Taken = std::map<std::uint64_t, Piece>;  ///< by offset
  /// Returns the pieces that form the pages of a tensor, cut where the tensor begins and ends.
  std::pair<Taken::iterator, Taken::iterator> pieces_of(std::uint64_t at, std::uint64_t bytes);
  Taken::iterator cut(std::uint64_t at);

  std::shared_ptr<const Arena> arena_;
  Slabs slabs_;
  Extents extents_;
  Taken taken_;
};

}  // namespace swell::runtime
