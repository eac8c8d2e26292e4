// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/hash.h"
#include "runtime/verify.h"

namespace swell::runtime {

struct Run;

/// A checksum that a GPU makes as well as a host: the sum of all 8-byte words, each of them mixed
/// with its number, so that the order in which they are added does not matter. Each run begins a
/// new word, and its last word is filled with zeros. Both sides must cut the bytes into runs of
/// equal lengths; alignment does not matter. A change of a single word always changes the sum.
class WordHash {
 public:
  static constexpr std::size_t kWord = 8;
  static constexpr std::uint64_t kFactors[3] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9,
                                                0x94d049bb133111eb};
  /// Returns what word `number` of all adds to the sum.
  static constexpr std::uint64_t mixed(std::uint64_t word, std::uint64_t number) noexcept {
    std::uint64_t x = word + (number + 1) * kFactors[0];
    x = (x ^ x >> 32) * kFactors[1];
    x = (x ^ x >> 29) * kFactors[2];
    return x ^ x >> 32;
  }
  static constexpr std::uint64_t words_of(std::uint64_t bytes) noexcept {
    return bytes / kWord + (bytes % kWord != 0 ? 1 : 0);
  }
  /// The checksum of runs whose words have this sum.
  static std::uint64_t finished(std::uint64_t sum, std::span<const Run> runs) noexcept;

  /// REQUIRES: `runs` outlives it. Their lengths alone count.
  explicit WordHash(std::span<const Run> runs) noexcept : runs_(runs) {}
  /// Adds the next bytes of the runs, in their order, in whatever pieces.
  void add(const void* bytes, std::size_t count) noexcept;
  /// REQUIRES: all bytes of the runs were added.
  std::uint64_t value() const noexcept { return finished(sum_, runs_); }

 private:
  const std::span<const Run> runs_;
  std::size_t next_ = 0;     ///< the run to begin
  std::uint64_t left_ = 0;   ///< of the run before it
  std::uint64_t begun_ = 0;  ///< the first bytes of a word
  unsigned bits_ = 0;        ///< how much of it there is
  std::uint64_t number_ = 0, sum_ = 0;
};

/// A checksum of runs by the function that was asked for.
class RunHash {
 public:
  /// REQUIRES: `runs` outlives it.
  RunHash(Checksum by, std::span<const Run> runs);
  void add(const void* bytes, std::size_t count) noexcept;
  /// 0 where none was asked for.
  std::uint64_t value() const noexcept;

 private:
  std::optional<Hash> xxhash_;
  std::optional<WordHash> words_;
};

}  // namespace swell::runtime
