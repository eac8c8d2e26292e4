// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <atomic>

namespace swell::controller {

/// Tells states of an object apart without a look at them: copies are equal until one changes.
class Version {
 public:
  void change() noexcept {
    static std::atomic<long> last{0};
    value_ = ++last;
  }
  friend bool operator==(const Version&, const Version&) = default;

 private:
  long value_ = 0;
};

}  // namespace swell::controller
