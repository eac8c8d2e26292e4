// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string_view>
#include <vector>

#include "core/models/model.h"

namespace swell::models {

/// A model of one of the papers, and its initial plan there.
struct CatalogueEntry {
  Model model;
  const char* source;  ///< table in the paper
  int pp = 1;          ///< the paper's default degrees
  int dp = 1;
  int tp = 1;
  int micro_batches = 16;
};

/// Returns all models of Suika's Table 1, FlexTrain's Table 2 and Arena's Table 2, except Arena's
/// convolutional Wide-ResNet (swell plan reads its graph); and BERT, for which Arena publishes
/// measured rows. docs/performance-model.md says how figures missing from a table are filled in.
const std::vector<CatalogueEntry>& catalogue();

/// Returns the model called `name`, ignoring case. The error lists the known names.
Result<CatalogueEntry> find_model(std::string_view name);

}  // namespace swell::models
