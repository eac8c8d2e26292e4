// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <span>
#include <vector>

namespace swell::planner {

/// Splits `items` over bins so that the largest load, items times the bin's cost, is minimal: min
/// max a_i c_i with sum a_i = items and 1 <= a_i <= cap_i. Suika, appendix B; a heap hands out what
/// proportional shares leave over, O(bins log bins). `share` receives a_i. False where the bins are
/// too many or their caps too small.
bool min_max_split(int items, std::span<const double> cost, std::span<const int> cap,
                   std::vector<int>& share);

/// The same where bin i has the load `base[i]` already: min max (a_i c_i + base_i).
bool min_max_split(int items, std::span<const double> cost, std::span<const double> base,
                   std::span<const int> cap, std::vector<int>& share);

/// Lowers the sum of all loads without raising the largest: moves items from the bins of highest
/// cost to those of lowest cost that have room.
void lighten(std::span<const double> cost, std::span<const int> cap, std::vector<int>& share);

}  // namespace swell::planner
