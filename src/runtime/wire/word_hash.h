// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/wire/hash.h"
#include "runtime/wire/verify.h"

namespace swell::runtime {

struct Run;

/// A checksum that a GPU computes as well as a host: the sum of all 8-byte words, each mixed with
/// its number, so that the order of addition does not matter. Each run begins a new word, and its
/// last word is padded with zeros. Both sides must cut the bytes into runs of equal lengths;
/// alignment does not matter. A change of a single word always changes the sum.
class WordHash {
 public:
  static constexpr std::size_t kWord = 8;
  static constexpr std::uint64_t kFactors[3] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9,
                                                0x94d049bb133111eb};
  /// Returns what the word with this number adds to the sum.
  static constexpr std::uint64_t mixed(std::uint64_t word, std::uint64_t number) noexcept {
    std::uint64_t x = word + (number + 1) * kFactors[0];
    x = (x ^ x >> 32) * kFactors[1];
    x = (x ^ x >> 29) * kFactors[2];
    return x ^ x >> 32;
  }
  static constexpr std::uint64_t words_of(std::uint64_t bytes) noexcept {
    return bytes / kWord + (bytes % kWord != 0 ? 1 : 0);
  }
  /// Returns the checksum of runs whose words have this sum.
  static std::uint64_t finished(std::uint64_t sum, std::span<const Run> runs) noexcept;

  /// Uses only the lengths of `runs`. REQUIRES: `runs` outlives it.
  explicit WordHash(std::span<const Run> runs) noexcept : runs_(runs) {}
  /// Adds the next bytes of the runs, in order, in pieces of any size.
  void add(const void* bytes, std::size_t count) noexcept;
  /// Returns the checksum. REQUIRES: all bytes of the runs were added.
  std::uint64_t value() const noexcept { return finished(sum_, runs_); }

 private:
  const std::span<const Run> runs_;
  std::size_t next_ = 0;     ///< the next run to begin
  std::uint64_t left_ = 0;   ///< bytes left of the current run
  std::uint64_t begun_ = 0;  ///< the first bytes of an incomplete word
  unsigned bits_ = 0;        ///< number of bits in it
  std::uint64_t number_ = 0, sum_ = 0;
};

/// A checksum of runs, by the requested function.
class RunHash {
 public:
  /// REQUIRES: `runs` outlives it.
  RunHash(Checksum by, std::span<const Run> runs);
  void add(const void* bytes, std::size_t count) noexcept;
  /// Returns the checksum; 0 if none was requested.
  std::uint64_t value() const noexcept;

 private:
  std::optional<Hash> xxhash_;
  std::optional<WordHash> words_;
};

}  // namespace swell::runtime
