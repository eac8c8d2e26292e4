// SPDX-License-Identifier: BSD-3-Clause
// xxHash with AVX2, inlined from its header. The headers that are included before it are compiled
// without AVX2, because other files may share their functions.
#include "runtime/wire/hash.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#define XXH_VECTOR 2  // AVX2, as the header numbers it
#include <xxhash.h>

namespace swell::runtime {

namespace {

void* create() {
  XXH3_state_t* state = XXH3_createState();
  if (state != nullptr) XXH3_64bits_reset(state);
  return state;
}
void destroy(void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }
void add(void* state, const void* bytes, size_t count) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, count);
}
uint64_t value(const void* state) {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
}

}  // namespace

}  // namespace swell::runtime
#pragma GCC pop_options

namespace swell::runtime {

const HashFunctions* avx2_hash() noexcept {
  static constexpr HashFunctions functions{create, destroy, add, value};
  return __builtin_cpu_supports("avx2") ? &functions : nullptr;
}

}  // namespace swell::runtime

#else

namespace swell::runtime {

const HashFunctions* avx2_hash() noexcept { return nullptr; }

}  // namespace swell::runtime

#endif
