// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runtime/descriptor.h"

namespace swell::runtime {

/// Memory of a program's own on its GPU, as other programs of the node map it: one allocation of
/// cuMemAlloc(), or one piece of what PyTorch expands by cuMemCreate().
struct OwnShare {
  std::uint64_t address = 0;  ///< where it begins in the program that has it
  std::uint64_t bytes = 0;
  std::string handle;  ///< the driver's, of kHandleBytes; empty: `fd` is what is mapped
  std::shared_ptr<const Descriptor> fd;

  static constexpr std::size_t kHandleBytes = 64;
  /// The most that a program may have.
  static constexpr std::size_t kMost = 4096;
  bool has(std::uint64_t at) const noexcept { return at >= address && at - address < bytes; }
};

/// Writes all but the descriptor.
std::string write(const OwnShare& share);
/// `fd`: what came along. Takes a descriptor of its own. The error is one sentence.
Result<OwnShare> read_own_share(std::string_view body, const Descriptor& fd);

}  // namespace swell::runtime
