// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/state/tensor.h"

namespace swell::runtime {

/// One piece of the training state on one rank.
struct Entry {
  TensorInfo tensor;
  Part part;
  /// Another name of the same values (tied weights); empty: none.
  std::string alias_of;
  std::uintptr_t address = 0;  ///< address of the part's first element in the program
  int device = -1;             ///< device that has the memory; -1: host memory
  std::int64_t bytes() const noexcept { return part.elements() * bytes_of(tensor.dtype); }
};

/// The training state of one rank, as its program registers it: Suika 3.3. A tensor may be held in
/// several parts (Q, K and V of a fused weight under TP), each with an entry of its own. One thread
/// at a time.
class Registry {
 public:
  /// Adds an entry. The error names the tensor and the wrong value. Refuses:
  ///  - an empty or too long name;
  ///  - a shape or part that check() refuses;
  ///  - a null address;
  ///  - another shape, dtype, kind or layer than an earlier part of the same name;
  ///  - elements that another part of the same name already holds;
  ///  - memory that overlaps that of another tensor, unless the entry is an alias;
  ///  - an alias of itself or of an alias;
  ///  - an alias of another shape or dtype, or with elements at another address than under the
  ///    other name.
  Result<void> add(Entry entry);
  /// Removes all parts of the tensor. Returns whether there were any.
  bool remove(std::string_view name);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// Returns the number of bytes held; those of an alias count once.
  std::int64_t bytes() const noexcept;

 private:
  Result<void> check_alias(const Entry& entry) const;
  Result<void> check_memory(const Entry& entry) const;
  std::vector<Entry> entries_;
};

}  // namespace swell::runtime
