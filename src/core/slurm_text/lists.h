// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Functions for Slurm's text formats that do not use libslurm. For the controller, the launcher,
/// the tools and the planner.
namespace swell::slurm_text {

/// Splits a comma-separated list; commas within () and [] belong to an entry:
/// "gpu:a:1(IDX:0,2),gpu:b:1" has two. Empty entries are left out. The views are into `list`.
std::vector<std::string_view> split_list(std::string_view list);

/// Returns the number of indices in a list: "0-3,6" has 5. Ignores falling ranges and other text.
int count_indices(std::string_view list);
/// Returns the indices of such a list in their order: at most the first `max`.
std::vector<int> expand_indices(std::string_view list, std::size_t max);
/// Returns rising indices as a list: "0-3,6".
std::string list_of_indices(const std::vector<int>& indices);

}  // namespace swell::slurm_text
