// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as measured runs.
#include <cstdint>
#include <string_view>

#include "tools/predict/training_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)swell::predict::training_runs_from_csv({reinterpret_cast<const char*>(data), size});
  return 0;
}
