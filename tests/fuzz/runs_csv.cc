// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as measured runs and as an all-reduce table.
#include <cstdint>
#include <string_view>

#include "tools/predict/allreduce_table.h"
#include "tools/predict/training_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)swell::predict::training_runs_from_csv(text);
  static const auto gpu = *swell::cluster::find_gpu_type("a100");
  const auto table = swell::predict::AllreduceTable::from_csv(text, gpu);
  if (table) (void)table->seconds(2, 1e6);
  return 0;
}
