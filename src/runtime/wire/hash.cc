// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/wire/hash.h"

#include <new>
#include <xxhash.h>

namespace swell::runtime {

const HashFunctions& library_hash() noexcept {
  static constexpr HashFunctions functions{
      []() -> void* {
        XXH3_state_t* state = XXH3_createState();
        if (state != nullptr) XXH3_64bits_reset(state);
        return state;
      },
      [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); },
      [](void* state, const void* bytes, std::size_t count) {
        XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, count);
      },
      [](const void* state) -> std::uint64_t {
        return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
      }};
  return functions;
}

const HashFunctions& Hash::widest() noexcept {
  static const HashFunctions& found = avx2_hash() != nullptr ? *avx2_hash() : library_hash();
  return found;
}

Hash::Hash(const HashFunctions& functions) : functions_(functions), state_(functions.create()) {
  if (state_ == nullptr) throw std::bad_alloc();
}

}  // namespace swell::runtime
