// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace swell::runtime {

/// xxHash (XXH3, 64 bits), built for one set of the machine's instructions; all give the same
/// values.
struct HashFunctions {
  void* (*create)();  ///< an empty state; nullptr: out of memory
  void (*destroy)(void* state);
  void (*add)(void* state, const void* bytes, std::size_t count);
  std::uint64_t (*value)(const void* state);
};
/// Returns the functions of the installed library, which its distribution builds for every machine
/// of the architecture.
const HashFunctions& library_hash() noexcept;
/// Returns functions that use AVX2, which halves the time of a checked copy; nullptr if this
/// machine has no AVX2.
const HashFunctions* avx2_hash() noexcept;

/// A checksum in steps, by the widest instructions that the machine has.
class Hash {
 public:
  explicit Hash(const HashFunctions& functions = widest());
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  ~Hash() { functions_.destroy(state_); }
  void add(const void* bytes, std::size_t count) { functions_.add(state_, bytes, count); }
  std::uint64_t value() const { return functions_.value(state_); }

 private:
  static const HashFunctions& widest() noexcept;
  const HashFunctions& functions_;
  void* state_;
};

}  // namespace swell::runtime
