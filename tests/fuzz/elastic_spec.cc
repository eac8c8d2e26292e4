// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as the value of --elastic: what is accepted reads back from its own text, stands in a
// tag unchanged, and never lets a job have less than its basic demand.
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "control/elastic_spec.h"
#include "control/tag.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell::control;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto spec = ElasticSpec::parse(text);
  if (!spec) {
    if (spec.error().message().empty()) std::abort();
    return 0;
  }
  const auto again = ElasticSpec::parse(spec->text());
  if (!again || !(*again == *spec) || again->text() != spec->text()) std::abort();
  const auto tag = Tag::find(Tag{{"elastic", spec->text()}}.text());
  if (!tag || tag->get("elastic") != spec->text()) std::abort();
  for (const int basic : {std::numeric_limits<int>::min(), -1, 0, 1, 2, 7, 64, 1'000'000,
                          std::numeric_limits<int>::max()}) {
    const bool good = spec->check_basic(basic).ok();
    if (good && basic < 1) std::abort();
    if (good && (spec->max_total(basic, false) < basic || spec->max_total(basic, true) < basic))
      std::abort();
  }
  return 0;
}
