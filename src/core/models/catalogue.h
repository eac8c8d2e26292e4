// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string_view>
#include <vector>

#include "core/models/model.h"

namespace swell::models {

/// A model of one of the papers and the plan with which it starts there.
struct CatalogueEntry {
  Model model;
  const char* source;  ///< table of the paper that lists it
  int pp = 1;          ///< the paper's default degrees
  int dp = 1;
  int tp = 1;
  int micro_batches = 16;
};

/// All models of Suika's Table 1, FlexTrain's Table 2 and Arena's Table 2, except its
/// convolutional Wide-ResNet (swell plan takes its graph); and BERT, of which Arena publishes rows.
/// docs/performance-model.md says how figures that a table leaves out are filled in.
const std::vector<CatalogueEntry>& catalogue();

/// The model called `name` in any case; the error lists the names there are.
Result<CatalogueEntry> find_model(std::string_view name);

}  // namespace swell::models
