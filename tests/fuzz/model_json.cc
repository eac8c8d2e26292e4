// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a model, in Swell's form or HuggingFace's.
#include <cstdint>
#include <string_view>

#include <cstdlib>

#include "core/models/model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = swell::Json::parse(text);
  if (!json) return 0;
  const auto model = swell::models::model_from_json(*json);
  if (!model) return 0;
  if (!(model->parameters() > 0) || !(model->layer_forward_flop() > 0)) std::abort();
  const auto again = swell::models::model_from_json(swell::models::to_json(*model));
  if (!again || !(*again == *model)) std::abort();
  return 0;
}
