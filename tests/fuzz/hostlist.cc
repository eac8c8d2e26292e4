// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a host list: never more names than are allowed, and folded they expand to the same
// names.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/slurm_text/hostlist.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell::slurm_text;
  constexpr std::size_t max_names = 1024;
  auto names = expand_hostlist({reinterpret_cast<const char*>(data), size}, max_names);
  if (!names) return 0;
  if (names->size() > max_names) std::abort();
  const std::string folded = fold_hostlist(*names);
  auto again = expand_hostlist(folded, max_names);
  if (!again) std::abort();
  std::sort(names->begin(), names->end());
  std::sort(again->begin(), again->end());
  if (*again != *names) std::abort();
  return 0;
}
