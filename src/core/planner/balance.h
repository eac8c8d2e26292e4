// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <span>
#include <vector>

namespace swell::planner {

/// Splits `items` over bins so that the largest load (items times the bin's cost) is minimal: min
/// max a_i c_i with sum a_i = items and 1 <= a_i <= cap_i. `share` receives a_i. Returns false if
/// there are more bins than items or the caps are too small. Suika, appendix B: a heap distributes
/// what proportional shares leave over, in O(bins log bins).
bool min_max_split(int items, std::span<const double> cost, std::span<const int> cap,
                   std::vector<int>& share);

/// Does the same for bins that have the load `base[i]` already: min max (a_i c_i + base_i).
bool min_max_split(int items, std::span<const double> cost, std::span<const double> base,
                   std::span<const int> cap, std::vector<int>& share);

/// Lowers the sum of all loads without raising the largest: moves items from the bins of highest
/// cost to bins of lowest cost that have room.
void lighten(std::span<const double> cost, std::span<const int> cap, std::vector<int>& share);

}  // namespace swell::planner
