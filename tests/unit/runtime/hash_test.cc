// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/wire/hash.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <random>
#include <vector>
#include <xxhash.h>

using namespace swell::runtime;

Test(hash, is_the_library_s_by_whatever_instructions_and_steps) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(300'003);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (const std::size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 1024, 4096, 65'537, 300'002}) {
    // Memory of a state is aligned to nothing in particular.
    const std::uint64_t expected = XXH3_64bits(bytes.data() + 1, size);
    for (const HashFunctions* functions : {&library_hash(), avx2_hash()}) {
      if (functions == nullptr) continue;
      for (const std::size_t step : {std::size_t{7}, std::size_t{1000}, size + 1}) {
        Hash hash(*functions);
        for (std::size_t at = 0; at < size; at += step)
          hash.add(bytes.data() + 1 + at, std::min(step, size - at));
        cr_assert_eq(hash.value(), expected, "%zu bytes in steps of %zu", size, step);
        cr_assert_eq(hash.value(), expected, "asked again");
      }
    }
    Hash hash;
    hash.add(bytes.data() + 1, size);
    cr_assert_eq(hash.value(), expected);
  }
}
