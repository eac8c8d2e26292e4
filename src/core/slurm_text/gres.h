// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::slurm_text {

/// One GPU entry of a list in Slurm's text: "gres:gpu:h100:4", "gres/gpu:4", "gpu:h100:8(S:0-1)",
/// "gpu:h100:4(IDX:0-3)". Covers all spellings from Slurm 22.05 on.
struct GpuRequest {
  int count = 0;
  std::string type;     ///< empty: not named
  std::string indices;  ///< "0-3,7"; empty if Slurm does not say which
  friend bool operator==(const GpuRequest&, const GpuRequest&) = default;
};

/// Returns every GPU entry of a comma-separated GRES or TRES list; skips other resources.
std::vector<GpuRequest> parse_gpus(std::string_view list);

/// Returns the sum of parse_gpus(), at most a million; the type is the first one named.
GpuRequest sum_gpus(std::string_view list);

/// Returns the list with `count` (at least 1) in its GPU entry, and all else unchanged; nothing if
/// it has no such entry, or several.
std::optional<std::string> with_gpus(std::string_view list, int count);

/// Returns the list with `type` in its GPU entry, and all else unchanged; nothing if it has no such
/// entry, or several.
std::optional<std::string> with_gpu_type(std::string_view list, std::string_view type);

/// The two lists in which a job names its GPUs: in all, and on each node. with_gpu_type_in_both()
/// puts `type` into both, and empties a list without GPUs. It returns nothing if neither has GPUs,
/// or if one has several GPU entries.
struct GpuLists {
  std::string in_all, per_node;
};
std::optional<GpuLists> with_gpu_type_in_both(const GpuLists& lists, std::string_view type);

/// Returns the value of `key` in Slurm's TRES text ("cpu=32,mem=4000M,node=1,gres/gpu=4"); memory
/// in MiB; 0 if absent.
std::int64_t tres_value(std::string_view tres, std::string_view key);

/// Returns how many task ids an array expression has ("0-9:2%3": 5), at least 1; skips "...".
int count_array_tasks(std::string_view expression);

}  // namespace swell::slurm_text
