// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/wire/word_hash.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/transport/transport.h"

using namespace swell::runtime;

namespace {

/// Runs of these lengths, one after the other from `at` on.
std::vector<Run> runs_of(std::initializer_list<std::uint64_t> lengths, std::uint64_t at = 0) {
  std::vector<Run> runs;
  for (const std::uint64_t bytes : lengths) {
    runs.push_back({at, at, bytes});
    at += bytes;
  }
  return runs;
}

std::vector<unsigned char> random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(count);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

/// As the definition says it, word by word.
std::uint64_t defined(const unsigned char* bytes, const std::vector<Run>& runs) {
  std::uint64_t sum = 0, number = 0;
  for (const Run& run : runs)
    for (std::uint64_t at = 0; at < run.bytes; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + run.to + at, std::min<std::uint64_t>(8, run.bytes - at));
      sum += WordHash::mixed(word, number++);
    }
  return WordHash::finished(sum, runs);
}

std::uint64_t hash_of(const unsigned char* bytes, std::size_t count, const std::vector<Run>& runs,
                      std::size_t step) {
  WordHash hash(runs);
  for (std::size_t at = 0; at < count; at += step) hash.add(bytes + at, std::min(step, count - at));
  return hash.value();
}

}  // namespace

Test(word_hash, is_the_same_in_whatever_steps_and_at_whatever_address) {
  auto bytes = random_bytes(70'001);
  for (const auto& runs : {runs_of({70'000}), runs_of({1, 7, 8, 9, 16, 3, 69'956}),
                           runs_of({0, 3, 0, 69'997}), runs_of({64, 64, 64, 69'808})}) {
    const std::uint64_t expected = defined(bytes.data(), runs);
    for (const std::size_t step : {1, 3, 8, 1000, 70'000})
      cr_assert_eq(hash_of(bytes.data(), 70'000, runs, step), expected, "in steps of %zu", step);
  }
  const auto whole = runs_of({70'000});
  const std::uint64_t before = hash_of(bytes.data(), 70'000, whole, 70'000);
  std::rotate(bytes.begin(), bytes.end() - 1, bytes.end());
  cr_assert_eq(hash_of(bytes.data() + 1, 70'000, whole, 70'000), before);
}

Test(word_hash, finds_a_wrong_bit_words_that_changed_places_and_missing_zeros) {
  auto bytes = random_bytes(4096);
  const auto whole = runs_of({4096});
  const std::uint64_t right = hash_of(bytes.data(), 4096, whole, 4096);
  for (const std::size_t at : {0, 7, 2048, 4095}) {
    bytes[at] ^= 0x80;
    cr_assert_neq(hash_of(bytes.data(), 4096, whole, 4096), right);
    bytes[at] ^= 0x80;
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 1024);
  cr_assert_neq(hash_of(bytes.data(), 4096, whole, 4096), right);
  const std::vector<unsigned char> zeros(64);
  cr_assert_neq(hash_of(zeros.data(), 63, runs_of({63}), 63),
                hash_of(zeros.data(), 64, runs_of({64}), 64));
}

Test(word_hash, the_hash_of_a_million_bytes_equals_that_of_earlier_versions) {
  // Shims of several versions compare it with one another's.
  const auto bytes = random_bytes(1'000'000);
  const auto runs = runs_of({999'999, 1});
  cr_assert_eq(hash_of(bytes.data(), 1'000'000, runs, 4096), 0x8842fd2cc4e09c96u, "%lx",
               hash_of(bytes.data(), 1'000'000, runs, 4096));
}
