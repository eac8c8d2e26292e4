// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/gres.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/number.h"
#include "core/slurm_text/lists.h"

namespace swell::slurm_text {

namespace {

constexpr int kMaxCount = 1'000'000;  // limit of GPUs of a list, and of tasks of an array
constexpr double kMaxTres = 1e18;

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string indices_of(std::string_view parenthesis) {
  const std::size_t begin = parenthesis.find("IDX:");
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = parenthesis.substr(begin + 4);
  return std::string(rest.substr(0, rest.find_first_of(");")));
}

}  // namespace

std::vector<GpuRequest> parse_gpus(std::string_view list) {
  std::vector<GpuRequest> found;
  for (std::string_view entry : split_list(list)) {
    if (!take_prefix(entry, "gres:")) take_prefix(entry, "gres/");
    if (!take_prefix(entry, "gpu")) continue;
    GpuRequest request;
    const std::size_t parenthesis = entry.find('(');
    if (parenthesis != std::string_view::npos) {
      request.indices = indices_of(entry.substr(parenthesis));
      entry = entry.substr(0, parenthesis);
    }
    if (entry.empty()) {
      request.count = 1;  // "gpu" alone asks for one
    } else if (entry.front() != ':' && entry.front() != '=') {
      continue;  // another resource whose name begins with gpu
    } else {
      std::string_view rest = entry.substr(1);
      const std::size_t separator = rest.find_last_of(":=");
      const std::string_view last =
          separator == std::string_view::npos ? rest : rest.substr(separator + 1);
      if (const auto count = read_whole<std::int64_t>(last)) {
        request.count = static_cast<int>(std::min<std::int64_t>(*count, kMaxCount));
        if (separator != std::string_view::npos) request.type = rest.substr(0, separator);
      } else {
        request.count = 1;  // "gpu:h100"
        request.type = rest;
      }
    }
    found.push_back(std::move(request));
  }
  return found;
}

GpuRequest sum_gpus(std::string_view list) {
  GpuRequest sum;
  for (GpuRequest& request : parse_gpus(list)) {
    sum.count = std::min(sum.count + request.count, kMaxCount);
    if (sum.type.empty()) sum.type = std::move(request.type);
  }
  return sum;
}

namespace {

/// Returns `list` with the text of its GPU entry, up to a parenthesis, replaced by `changed(text,
/// gpus)`; nothing if it has no such entry, or several.
template <typename Changed>
std::optional<std::string> with_changed_gpus(std::string_view list, const Changed& changed) {
  std::string made;
  int found = 0;
  for (const std::string_view entry : split_list(list)) {
    if (!made.empty()) made += ',';
    const std::vector<GpuRequest> gpus = parse_gpus(entry);
    if (gpus.empty()) {
      made += entry;
      continue;
    }
    ++found;
    const std::size_t parenthesis = std::min(entry.find('('), entry.size());
    made += changed(entry.substr(0, parenthesis), gpus.front());
    made += entry.substr(parenthesis);
  }
  if (found != 1) return std::nullopt;
  return made;
}

}  // namespace

std::optional<std::string> with_gpus(std::string_view list, int count) {
  return with_changed_gpus(list, [count](std::string_view name, const GpuRequest&) {
    const std::size_t last = name.find_last_of(":=");
    const bool has_count = last != std::string_view::npos &&
                           read_whole<std::int64_t>(name.substr(last + 1)).has_value();
    return std::string(has_count ? name.substr(0, last) : name) + (has_count ? name[last] : ':') +
           std::to_string(count);
  });
}

std::optional<std::string> with_gpu_type(std::string_view list, std::string_view type) {
  return with_changed_gpus(list, [type](std::string_view rest, const GpuRequest& gpus) {
    std::string made;
    for (const std::string_view prefix : {"gres:", "gres/"})
      if (take_prefix(rest, prefix)) made += prefix;
    const char sign = rest.size() > 3 && rest[3] == '=' ? '=' : ':';
    made += "gpu:";
    made += type;
    made += sign + std::to_string(gpus.count);
    return made;
  });
}

std::optional<GpuLists> with_gpu_type_in_both(const GpuLists& lists, std::string_view type) {
  GpuLists made;
  for (std::string GpuLists::*each : {&GpuLists::in_all, &GpuLists::per_node}) {
    if (sum_gpus(lists.*each).count == 0) continue;
    auto typed = with_gpu_type(lists.*each, type);
    if (!typed) return std::nullopt;
    made.*each = *std::move(typed);
  }
  if (made.in_all.empty() && made.per_node.empty()) return std::nullopt;
  return made;
}

std::int64_t tres_value(std::string_view tres, std::string_view key) {
  for (std::string_view entry : split_list(tres)) {
    if (!take_prefix(entry, key) || !take_prefix(entry, "=")) continue;
    double scale = 1;
    if (!entry.empty()) {
      switch (entry.back()) {
        case 'K': scale = 1.0 / 1024; break;
        case 'M': scale = 1; break;
        case 'G': scale = 1024; break;
        case 'T': scale = 1024.0 * 1024; break;
        case 'P': scale = 1024.0 * 1024 * 1024; break;
        default: scale = 0;
      }
      if (scale != 0) entry.remove_suffix(1);
      else scale = 1;
    }
    const auto value = read_number<double>(entry);
    if (value && std::isfinite(*value))
      return static_cast<std::int64_t>(std::clamp(*value * scale, 0.0, kMaxTres));
  }
  return 0;
}

int count_array_tasks(std::string_view expression) {
  expression = expression.substr(0, expression.find('%'));
  std::int64_t tasks = 0;
  for (std::string_view range : split_list(expression)) {
    std::int64_t step = 1;
    if (const std::size_t colon = range.find(':'); colon != std::string_view::npos) {
      step =
          std::max<std::int64_t>(read_whole<std::int64_t>(range.substr(colon + 1)).value_or(1), 1);
      range = range.substr(0, colon);
    }
    const std::size_t dash = range.find('-');
    const auto first = read_whole<std::int64_t>(range.substr(0, dash));
    if (!first) continue;
    const auto last =
        dash == std::string_view::npos ? first : read_whole<std::int64_t>(range.substr(dash + 1));
    if (last && *last >= *first)
      tasks += std::min<std::int64_t>((*last - *first) / step, kMaxCount - 1) + 1;
  }
  return static_cast<int>(std::clamp<std::int64_t>(tasks, 1, kMaxCount));
}

}  // namespace swell::slurm_text
