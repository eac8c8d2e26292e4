// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "core/result.h"

namespace swell::runtime {

/// GPU memory that a program allocated itself, as other programs of the node map it: one allocation
/// of cuMemAlloc(), or one piece of an expandable segment that PyTorch made by cuMemCreate().
struct OwnShare {
  std::uint64_t address = 0;  ///< start address in the program that allocated it
  std::uint64_t bytes = 0;
  std::string handle;  ///< the driver's handle, kHandleBytes long; empty: map `fd`
  std::shared_ptr<const Descriptor> fd;

  static constexpr std::size_t kHandleBytes = 64;
  /// Maximum number in a program: PyTorch's pieces have 20 MiB, and a GPU may have 300 GB.
  static constexpr std::size_t kMost = 16384;
  bool has(std::uint64_t at) const noexcept { return at >= address && at - address < bytes; }
};

/// Writes everything but the descriptor.
std::string write(const OwnShare& share);
/// Reads what write() wrote. `fd`: the descriptor that was passed with it, which is duplicated. The
/// error is one sentence.
Result<OwnShare> read_own_share(std::string_view body, const Descriptor& fd);

}  // namespace swell::runtime
