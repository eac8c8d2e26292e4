// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/coordinator/leavers.h"

#include <algorithm>

namespace swell::runtime {

Leavers judge_leavers(std::span<const Progress> shims, double elapsed_s, double left_s) noexcept {
  if (elapsed_s < left_s) return Leavers::wait;
  // Returns whether all bytes arrive in time at the rate so far.
  const auto comes = [&](const Progress& shim, std::uint64_t bytes) {
    return bytes == 0 ||
           static_cast<double>(bytes) * elapsed_s <= static_cast<double>(shim.come) * left_s;
  };
  const bool has_all_of_them = std::all_of(
      shims.begin(), shims.end(), [](const Progress& shim) { return shim.only_there == 0; });
  if (has_all_of_them) {
    const bool is_in_time = std::all_of(shims.begin(), shims.end(),
                                        [&](const Progress& s) { return comes(s, s.rest); });
    return is_in_time ? Leavers::wait : Leavers::let_go;
  }
  const bool is_in_time = std::all_of(shims.begin(), shims.end(),
                                      [&](const Progress& s) { return comes(s, s.only_there); });
  return is_in_time ? Leavers::wait : Leavers::late;
}

}  // namespace swell::runtime
