// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string_view>
#include <vector>

#include "core/models/model.h"

namespace swell::models {

/// A model of one of the papers and the plan it starts with there.
struct CatalogueEntry {
  Model model;
  const char* source;  ///< the table it is from
  int pp = 1;          ///< the paper's default degrees
  int dp = 1;
  int tp = 1;
  int micro_batches = 16;
};

/// Suika's Table 1, FlexTrain's Table 2, Arena's Table 2 without its convolutional Wide-ResNet,
/// which is no transformer. What a table leaves out is filled in as docs/performance-model.md says.
const std::vector<CatalogueEntry>& catalogue();

/// Upper or lower case alike; the error lists the names there are.
Result<CatalogueEntry> find_model(std::string_view name);

}  // namespace swell::models
