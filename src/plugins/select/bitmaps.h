// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace swell::select {

/// Slurm's set of nodes, opaque: its bits are indexes into slurmctld's node table.
struct Bitmap;

/// Slurm's own functions for them. They are exported by slurmctld and are in no public header,
/// hence looked up by name at start; in tests they stand for sets of the test's own.
struct Bitmaps {
  Bitmap* (*copy)(const Bitmap*) = nullptr;
  void (*free)(Bitmap**) = nullptr;
  void (*assign)(Bitmap* to, const Bitmap* from) = nullptr;  ///< both of one size
  void (*keep_common)(Bitmap* in, const Bitmap* with) = nullptr;
  void (*add)(Bitmap* to, const Bitmap* more) = nullptr;
  void (*invert)(Bitmap*) = nullptr;
  /// The first so many nodes; null where there are fewer. The caller frees it.
  Bitmap* (*first_of)(const Bitmap*, std::int64_t how_many) = nullptr;
  std::int32_t (*count)(const Bitmap*) = nullptr;
  std::int32_t (*count_common)(const Bitmap*, const Bitmap*) = nullptr;
  std::int64_t (*size)(const Bitmap*) = nullptr;
  /// The nodes of a host list; names that slurmctld does not have are left out.
  int (*from_names)(const char* names, bool leave_out_unknown, Bitmap** made,
                    void* unknown) = nullptr;
  Bitmap* const* idle = nullptr;  ///< slurmctld's set of nodes that nobody uses

  /// From the program that this runs in. @return the name of the first that it does not have, or
  /// null.
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
