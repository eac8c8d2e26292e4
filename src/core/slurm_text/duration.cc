// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/duration.h"

#include "core/number.h"
#include "core/saturating.h"

namespace swell::slurm_text {

std::int64_t seconds_of(std::string_view text) {
  std::int64_t days = 0, rest = 0;
  if (const std::size_t dash = text.find('-'); dash != text.npos) {
    days = read_whole<std::int64_t>(text.substr(0, dash)).value_or(-1);
    text.remove_prefix(dash + 1);
  }
  if (days < 0) return 0;
  for (std::size_t colon = 0; colon != text.npos; text.remove_prefix(colon + 1)) {
    colon = text.find(':');
    const auto part = read_whole<std::int64_t>(text.substr(0, colon));
    if (!part || *part < 0) return 0;
    rest = saturating_sum(saturating_product(rest, 60), *part);
    if (colon == text.npos) break;
  }
  return saturating_sum(saturating_product(days, 86400), rest);
}

}  // namespace swell::slurm_text
