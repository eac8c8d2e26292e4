// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/plan/sort_runs.h"

namespace swell::runtime {

/// A range of memory: consecutive whole pages, or a slab. Empty: memory outside of the bound.
struct Stretch {
  std::uint64_t begin = 0, end = 0;
};

/// Collects the addresses at which one shim's memory is cut: where each range begins and ends.
class Cutter {
 public:
  void cut(Stretch pages) {
    if (pages.begin == pages.end) return;
    if (begins_.empty() || begins_.back() != pages.begin) begins_.push_back(pages.begin);
    if (ends_.empty() || ends_.back() != pages.end) ends_.push_back(pages.end);
  }
  /// Appends all cuts in order to `cuts`, and forgets them.
  void seal(std::vector<std::uint64_t>& cuts) {
    begins_.insert(begins_.end(), ends_.begin(), ends_.end());
    sort_runs(begins_, spare_, std::less<>());
    cuts.insert(cuts.end(), begins_.begin(), std::unique(begins_.begin(), begins_.end()));
    begins_.clear();
    ends_.clear();
  }

 private:
  std::vector<std::uint64_t> begins_, ends_, spare_;
};

/// Finds segments by address; fast if the addresses rise.
class Finder {
 public:
  explicit Finder(std::span<const std::uint64_t> cuts) : cuts_(cuts) {}
  /// Returns the segment that begins at `at`. REQUIRES: there is a cut at `at`.
  std::size_t operator()(std::uint64_t at) {
    for (std::size_t i = last_; i < std::min(last_ + 3, cuts_.size()); ++i)
      if (cuts_[i] == at) return last_ = i;
    return last_ = static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), at) -
                                            cuts_.begin());
  }

 private:
  std::span<const std::uint64_t> cuts_;
  std::size_t last_ = 0;
};

}  // namespace swell::runtime
