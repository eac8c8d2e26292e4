// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a GRES list, a TRES list and an array expression: counts stay in range however many
// entries there are, and what is read is written and reads back the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <string_view>

#include "core/slurm_text/gres.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void sums(const std::string& list) {
  const auto entries = swell::slurm_text::parse_gpus(list);
  const auto sum = swell::slurm_text::sum_gpus(list);
  std::int64_t in_all = 0;
  for (const auto& each : entries) {
    check(each.count >= 0 && each.count <= sum.count);
    in_all += each.count;
  }
  check(sum.count == std::min<std::int64_t>(in_all, sum.count) &&
        (in_all > 1'000'000 || sum.count == in_all));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell::slurm_text;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto entries = parse_gpus(text);
  std::string written;
  for (const GpuRequest& each : entries)
    written += fmt::format("{}gpu{}{}:{}{}", written.empty() ? "" : ",",
                           each.type.empty() ? "" : ":", each.type, each.count,
                           each.indices.empty() ? "" : "(IDX:" + each.indices + ")");
  // Brackets that do not match make one entry of several: such text is read, but not written the
  // same.
  const auto has_bracket = [](const std::string& part) {
    return part.find_first_of("()[]") != std::string::npos;
  };
  if (std::none_of(entries.begin(), entries.end(), [&](const GpuRequest& each) {
        return has_bracket(each.type) || has_bracket(each.indices);
      }))
    check(parse_gpus(written) == entries);
  sums(text);
  if (entries.size() == 1 && written.size() < 24 && size % 64 == 0) {  // slow, so now and then only
    std::string many = written;
    for (int i = 0; i < 12; ++i) many += "," + many;
    sums(many);
  }

  for (const char* key : {"cpu", "mem", "node", "gres/gpu", "billing"}) (void)tres_value(text, key);
  const int tasks = count_array_tasks(text);
  check(tasks >= 1 && tasks <= 1'000'000);
  return 0;
}
