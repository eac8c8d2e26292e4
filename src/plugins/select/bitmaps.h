// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace swell::select {

/// Slurm's set of nodes, which is opaque here: its bits are indexes into slurmctld's node table.
struct Bitmap;

/// Slurm's own functions for Bitmap. slurmctld exports them, but no public header declares them, so
/// they are looked up by name at start; tests set their own functions.
struct Bitmaps {
  Bitmap* (*copy)(const Bitmap*) = nullptr;
  void (*free)(Bitmap**) = nullptr;
  /// REQUIRES: both have the same size.
  void (*assign)(Bitmap* to, const Bitmap* from) = nullptr;
  void (*keep_common)(Bitmap* in, const Bitmap* with) = nullptr;
  void (*add)(Bitmap* to, const Bitmap* more) = nullptr;
  void (*invert)(Bitmap*) = nullptr;
  /// Returns the first `how_many` nodes; null if there are fewer. The caller frees it.
  Bitmap* (*first_of)(const Bitmap*, std::int64_t how_many) = nullptr;
  std::int32_t (*count)(const Bitmap*) = nullptr;
  std::int32_t (*count_common)(const Bitmap*, const Bitmap*) = nullptr;
  std::int64_t (*size)(const Bitmap*) = nullptr;
  /// Makes the set of a host list's nodes; leaves out names that slurmctld does not have.
  int (*from_names)(const char* names, bool leave_out_unknown, Bitmap** made,
                    void* unknown) = nullptr;
  Bitmap* const* idle = nullptr;  ///< slurmctld's set of nodes without jobs

  /// Sets all members to the symbols of the running program. Returns the name of the first symbol
  /// that is missing, or null.
  const char* look_up() noexcept;
};

/// Frees a bitmap at the end of a block.
class ScopedBitmap {
 public:
  ScopedBitmap(const Bitmaps& api, Bitmap* bitmap) : api_(api), bitmap_(bitmap) {}
  ~ScopedBitmap() {
    if (bitmap_ != nullptr) api_.free(&bitmap_);
  }
  ScopedBitmap(const ScopedBitmap&) = delete;
  ScopedBitmap& operator=(const ScopedBitmap&) = delete;
  Bitmap* get() const noexcept { return bitmap_; }

 private:
  const Bitmaps& api_;
  Bitmap* bitmap_;
};

}  // namespace swell::select
