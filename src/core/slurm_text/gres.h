// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::slurm_text {

/// One entry of GPUs in Slurm's text: "gres:gpu:h100:4", "gres/gpu:4", "gpu:h100:8(S:0-1)",
/// "gpu:h100:4(IDX:0-3)". All spellings from 22.05 on.
struct GpuRequest {
  int count = 0;
  std::string type;     ///< empty: not named
  std::string indices;  ///< "0-3,7"; empty where Slurm does not say which
  friend bool operator==(const GpuRequest&, const GpuRequest&) = default;
};

/// Every GPU entry of a comma-separated GRES or TRES list; other resources are skipped.
std::vector<GpuRequest> parse_gpus(std::string_view list);

/// The sum of parse_gpus(), at most a million; the type is the first that is named.
GpuRequest sum_gpus(std::string_view list);

/// The list with its GPU entry asking for `count` (at least 1), all else as it was; nothing where
/// it has no such entry, or several.
std::optional<std::string> with_gpus(std::string_view list, int count);

/// The list with its GPU entry asking for GPUs of `type`, all else as it was; nothing where it has
/// no such entry, or several.
std::optional<std::string> with_gpu_type(std::string_view list, std::string_view type);

/// The two lists in which a job names its GPUs, in all and on each node, with `type` in both; a
/// list without GPUs becomes empty. Nothing where neither has GPUs, or one has several entries of
/// them.
struct GpuLists {
  std::string in_all, per_node;
};
std::optional<GpuLists> with_gpu_type_in_both(const GpuLists& lists, std::string_view type);

/// Value of `key` in Slurm's TRES text ("cpu=32,mem=4000M,node=1,gres/gpu=4"); memory in MiB; 0
/// where absent.
std::int64_t tres_value(std::string_view tres, std::string_view key);

/// Number of task ids in an array expression ("0-9:2%3" -> 5); at least 1; "..." counts as nothing.
int count_array_tasks(std::string_view expression);

}  // namespace swell::slurm_text
