// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/store.h"

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
  taken_[*at] = {Extents::rounded(bytes), 0};
  return *at;
}

/// Cuts the piece that contains `at`, if any. Returns the first piece from there on.
Store::Taken::iterator Store::cut(std::uint64_t at) {
  const auto next = taken_.lower_bound(at);
  if (next == taken_.begin()) return next;
  auto& [begin, piece] = *std::prev(next);
  if (at - begin >= piece.bytes) return next;
  const Piece rest{piece.bytes - (at - begin), piece.uses};
  piece.bytes = at - begin;
  return taken_.emplace_hint(next, at, rest);
}

std::pair<Store::Taken::iterator, Store::Taken::iterator> Store::pieces_of(std::uint64_t at,
                                                                           std::uint64_t bytes) {
  const auto first = cut(at / Extents::kPage * Extents::kPage);
  return {first, cut(Extents::rounded(at + bytes))};
}

void Store::use(std::uint64_t at, std::uint64_t bytes) {
  for (auto [piece, end] = pieces_of(at, bytes); piece != end; ++piece) ++piece->second.uses;
}

void Store::drop(std::uint64_t at, std::uint64_t bytes) {
  std::vector<Pages> left;
  drop(at, bytes, left);
  free(left);
}

void Store::drop(std::uint64_t at, std::uint64_t bytes, std::vector<Pages>& left) {
  for (auto [piece, end] = pieces_of(at, bytes); piece != end;) {
    if (--piece->second.uses > 0) {
      ++piece;
      continue;
    }
    left.push_back({piece->first, piece->second.bytes});
    piece = taken_.erase(piece);
  }
}

void Store::sweep() {
  std::vector<Pages> left;
  std::erase_if(taken_, [&left](const auto& piece) {
    if (piece.second.uses == 0) left.push_back({piece.first, piece.second.bytes});
    return piece.second.uses == 0;
  });
  free(left);
}

void Store::free(const std::vector<Pages>& left) {
  for (const Pages& each : left) arena_->release(each.at, each.bytes);
  give_back(left);
}

void Store::give_back(const std::vector<Pages>& left) {
  for (const Pages& each : left) extents_.give(each.at, each.bytes);
}

}  // namespace swell::runtime
