// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace swell::runtime {

/// xxHash (XXH3, 64 bits) by some instructions of the machine; all give the same values.
struct HashFunctions {
  void* (*create)();  ///< a state that nothing was added to; nullptr: there is no memory
  void (*destroy)(void* state);
  void (*add)(void* state, const void* bytes, std::size_t count);
  std::uint64_t (*value)(const void* state);
};
/// The library's, which its distribution builds for every machine of the kind.
const HashFunctions& library_hash() noexcept;
/// With AVX2, which halves the time of a copy that is checked; nullptr: this machine has none.
const HashFunctions* avx2_hash() noexcept;

/// A checksum in steps, by the widest instructions that there are.
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
