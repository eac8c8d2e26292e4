// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/arena.h"

#include <criterion/criterion.h>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/wire/sha256.h"

using namespace swell::runtime;

namespace {

std::string hex(const Digest256& digest) {
  std::string text;
  for (std::uint8_t byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

}  // namespace

Test(arena, a_second_mapping_sees_the_same_bytes_and_outlives_the_first) {
  auto arena = std::make_optional(Arena::create(10'000).value());
  cr_assert_eq(arena->bytes(), 12'288, "whole pages");
  std::memset(arena->data() + 5000, 7, 100);
  const Arena other = Arena::map(swell::Descriptor(dup(arena->fd())), 12'288).value();
  arena.reset();
  cr_assert_eq(static_cast<int>(other.data()[5099]), 7);
  cr_assert_neq(ftruncate(other.fd(), 4096), 0, "nobody can shrink it");
}

Test(arena, takes_memory_as_it_is_written_and_gives_it_back) {
  const Arena arena = Arena::create(std::uint64_t{1} << 36).value();
  cr_assert_eq(arena.used_bytes(), 0);
  std::memset(arena.data() + 8192, 1, 40'960);
  cr_assert_eq(arena.used_bytes(), 40'960);
  arena.release(8192, 20'480);
  cr_assert_eq(arena.used_bytes(), 20'480);
  cr_assert_eq(static_cast<int>(arena.data()[8192]), 0);
}

Test(arena, refuses_what_is_not_sealed_or_of_another_size) {
  swell::Descriptor plain(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  cr_assert_eq(ftruncate(plain.get(), 4096), 0);
  cr_assert_eq(Arena::map(std::move(plain), 4096).error().message(),
               "what was passed as an arena is not sealed against shrinking");
  const Arena arena = Arena::create(4096).value();
  cr_assert_eq(Arena::map(swell::Descriptor(dup(arena.fd())), 8192).error().message(),
               "an arena of 8192 bytes was announced; the file has 4096");
}

Test(extents, never_overlap_and_join_again) {
  std::mt19937 random(1);
  Extents extents(1 << 20);
  std::map<std::uint64_t, std::uint64_t> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const std::uint64_t bytes = 1 + random() % 30'000;
      const auto at = extents.take(bytes);
      if (!at) continue;
      const auto after = taken.lower_bound(*at);
      cr_assert(after == taken.end() || *at + bytes <= after->first);
      cr_assert(after == taken.begin() ||
                std::prev(after)->first + std::prev(after)->second <= *at);
      cr_assert_leq(*at + bytes, 1u << 20);
      taken[*at] = bytes;
    } else if (!taken.empty()) {
      const auto one = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      extents.give(one->first, one->second);
      taken.erase(one);
    }
  }
  for (const auto& [at, bytes] : taken) extents.give(at, bytes);
  cr_assert_eq(extents.taken_bytes(), 0);
  cr_assert_eq(extents.take(1 << 20), std::optional<std::uint64_t>(0), "one gap again");
  cr_assert_not(extents.take(1).has_value());
}

Test(sha256, is_what_the_standards_say) {
  cr_assert_eq(hex(sha256("abc")),
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  cr_assert_eq(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  cr_assert_eq(hex(sha256(std::string(1'000'000, 'a'))),
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  cr_assert_eq(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  cr_assert_eq(hex(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
