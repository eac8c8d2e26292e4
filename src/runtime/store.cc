// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/store.h"

#include <fmt/format.h>
#include <utility>

namespace swell::runtime {

Store::Store(Arena arena)
    : arena_(std::make_shared<const Arena>(std::move(arena))), extents_(arena_->bytes()) {
  extents_.take(Extents::kPage);
}

Result<std::uint64_t> Store::take(std::uint64_t bytes) {
  const auto at = extents_.take(bytes);
  if (!at)
    return Error(fmt::format("the arena has no {} bytes left in one piece; {} of its {} are taken",
                             bytes, extents_.taken_bytes(), arena_->bytes()));
  taken_[*at] = {bytes, 0};
  return *at;
}

void Store::use(std::uint64_t at) { ++std::prev(taken_.upper_bound(at))->second.uses; }

void Store::drop(std::uint64_t at) {
  const auto extent = std::prev(taken_.upper_bound(at));
  if (--extent->second.uses == 0) free(extent);
}

void Store::sweep() {
  for (auto at = taken_.begin(); at != taken_.end();)
    at = at->second.uses == 0 ? free(at) : std::next(at);
}

Store::Taken::iterator Store::free(Taken::iterator extent) {
  arena_->release(extent->first, extent->second.bytes);
  extents_.give(extent->first, extent->second.bytes);
  return taken_.erase(extent);
}

}  // namespace swell::runtime
