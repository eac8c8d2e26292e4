// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/wire/word_hash.h"

#include <algorithm>
#include <cstring>

#include "runtime/transport/transport.h"

namespace swell::runtime {

std::uint64_t WordHash::finished(std::uint64_t sum, std::span<const Run> runs) noexcept {
  std::uint64_t bytes = 0;
  for (const Run& run : runs) bytes += run.bytes;
  return mixed(sum, bytes);
}

void WordHash::add(const void* bytes, std::size_t count) noexcept {
  const auto* at = static_cast<const unsigned char*>(bytes);
  while (count > 0 && (left_ > 0 || next_ < runs_.size())) {
    if (left_ == 0) {
      left_ = runs_[next_++].bytes;
      continue;
    }
    std::size_t done = static_cast<std::size_t>(std::min<std::uint64_t>(count, left_));
    if (bits_ == 0 && done >= kWord) {
      done -= done % kWord;
      std::uint64_t sum = sum_, number = number_, word = 0;
      for (const auto* end = at + done; at != end; at += kWord) {
        std::memcpy(&word, at, kWord);
        sum += mixed(word, number++);
      }
      sum_ = sum;
      number_ = number;
    } else {
      done = 1;
      begun_ |= static_cast<std::uint64_t>(*at++) << bits_;
      bits_ += 8;
      if (bits_ == 64 || left_ == 1) {
        sum_ += mixed(begun_, number_++);
        begun_ = bits_ = 0;
      }
    }
    count -= done;
    left_ -= done;
  }
}

RunHash::RunHash(Checksum by, std::span<const Run> runs) {
  if (by == Checksum::xxhash) xxhash_.emplace();
  if (by == Checksum::words) words_.emplace(runs);
}

void RunHash::add(const void* bytes, std::size_t count) noexcept {
  if (xxhash_) xxhash_->add(bytes, count);
  if (words_) words_->add(bytes, count);
}

std::uint64_t RunHash::value() const noexcept {
  return xxhash_ ? xxhash_->value() : words_ ? words_->value() : 0;
}

}  // namespace swell::runtime
