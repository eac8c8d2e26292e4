// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <optional>

namespace swell::slurm_text {

namespace {

std::string shown(std::string_view text) {
  return std::string(text.substr(0, 60)) + (text.size() > 60 ? "..." : "");
}

/// Returns whether `text` is a host's number: maybe wide (0000000000017) or large (20261129001).
bool is_number(std::string_view text) {
  constexpr std::size_t widest = 64, largest = 18;  // maximum digits with and without leading zeros
  return !text.empty() && text.size() <= widest &&
         text.size() - std::min(text.find_first_not_of('0'), text.size()) <= largest &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::uint64_t number(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

struct Range {
  std::uint64_t first = 0, last = 0;
  std::size_t width = 0;  ///< minimum number of digits, that of `first`
};
/// Reads "07" or "01-12"; returns nothing for other text, and for ranges larger than any cluster.
std::optional<Range> range_of(std::string_view text) {
  constexpr std::uint64_t most = 1'000'000'000;
  const std::size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash),
                         last = dash == text.npos ? first : text.substr(dash + 1);
  if (!is_number(first) || !is_number(last)) return std::nullopt;
  const Range range{number(first), number(last), first.size()};
  if (range.last < range.first || range.last - range.first >= most) return std::nullopt;
  return range;
}

/// Expands the text between two brackets, such as "01-04,7". Keeps widths, as Slurm does.
Result<std::vector<std::string>> expand_ranges(std::string_view text, std::size_t max) {
  std::vector<std::string> result;
  while (true) {
    const std::string_view range = text.substr(0, text.find(','));
    const std::optional<Range> read = range_of(range);
    if (!read)
      return Error(
          fmt::format("\"[{}]\" is not a range of numbers; write e.g. [1-4,7]", shown(text)));
    if (read->last - read->first >= max - std::min(max, result.size()))
      return Error(fmt::format("\"[{}]\" stands for more than {} names", shown(text), max));
    for (std::uint64_t n = read->first; n <= read->last; ++n)
      result.push_back(fmt::format("{:0{}}", n, read->width));
    if (range.size() == text.size()) return result;
    text.remove_prefix(range.size() + 1);
  }
}

/// Expands one entry of the list: text and brackets in turn. Each combination is a name.
Result<std::vector<std::string>> expand_entry(std::string_view entry, std::size_t max) {
  std::vector<std::string> names{""};
  while (!entry.empty()) {
    const std::size_t open = entry.find('[');
    for (std::string& name : names) name += entry.substr(0, open);
    if (open == entry.npos) return names;
    const std::size_t close = entry.find(']', open);
    if (close == entry.npos)
      return Error(fmt::format("\"{}\" has a [ without its ]", shown(entry)));
    auto numbers = expand_ranges(entry.substr(open + 1, close - open - 1), max);
    if (!numbers) return numbers.error();
    if (names.size() * numbers->size() > max)
      return Error(fmt::format("\"{}\" stands for more than {} names", shown(entry), max));
    std::vector<std::string> longer;
    longer.reserve(names.size() * numbers->size());
    for (const std::string& name : names)
      for (const std::string& number : *numbers) longer.push_back(name + number);
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  return names;
}

/// Visits the names of one entry with one pair of brackets. Returns whether to go on.
Result<bool> visit_ranges(std::string_view before, std::string_view ranges, std::string_view after,
                          const std::function<bool(std::string_view)>& see) {
  std::string name(before);
  while (true) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    const std::optional<Range> read = range_of(range);
    if (!read)
      return Error(
          fmt::format("\"[{}]\" is not a range of numbers; write e.g. [1-4,7]", shown(ranges)));
    for (std::uint64_t n = read->first; n <= read->last; ++n) {
      char digits[24];
      const auto size =
          static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, n).ptr - digits);
      name.resize(before.size());
      name.append(read->width - std::min(size, read->width), '0');
      name.append(digits, size).append(after);
      if (!see(name)) return false;
    }
    if (range.size() == ranges.size()) return true;
    ranges.remove_prefix(range.size() + 1);
  }
}

/// Splits a name into the text before the number at its end, and the number as text.
std::pair<std::string, std::string> split(const std::string& name) {
  std::size_t begin = name.size();
  while (begin > 0 && name.size() - begin < 9 && name[begin - 1] >= '0' && name[begin - 1] <= '9')
    --begin;
  return {name.substr(0, begin), name.substr(begin)};
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t max) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1)
      return Error(fmt::format("\"{}\" has brackets that do not match", shown(text)));
    if (i < text.size() && (c != ',' || depth > 0)) continue;
    if (depth > 0) return Error(fmt::format("\"{}\" has a [ without its ]", shown(text)));
    if (i > begin) {
      auto names = expand_entry(text.substr(begin, i - begin), max);
      if (!names) return names.error();
      if (result.size() + names->size() > max)
        return Error(fmt::format("\"{}\" stands for more than {} names", shown(text), max));
      result.insert(result.end(), names->begin(), names->end());
    }
    begin = i + 1;
  }
  return result;
}

Result<void> visit_hostlist(std::string_view text,
                            const std::function<bool(std::string_view)>& see) {
  while (!text.empty()) {
    const std::size_t open = text.find('['), comma = text.find(',');
    if (open == text.npos || comma < open) {  // a name without brackets
      const std::string_view name = text.substr(0, comma);
      if (name.find(']') != name.npos)
        return Error(fmt::format("\"{}\" has brackets that do not match", shown(name)));
      if (!name.empty() && !see(name)) return {};
      text.remove_prefix(std::min(name.size() + 1, text.size()));
      continue;
    }
    const std::size_t close = text.find(']', open);
    if (close == text.npos) return Error(fmt::format("\"{}\" has a [ without its ]", shown(text)));
    const std::size_t end = text.find_first_of(",[", close);
    const std::string_view entry = text.substr(0, end);
    if (end != text.npos && text[end] == '[') {  // several brackets: few sites have such names
      const std::size_t last = text.find(',', text.find(']', end));
      auto names = expand_hostlist(text.substr(0, last));
      if (!names) return names.error();
      for (const std::string& name : *names)
        if (!see(name)) return {};
      text.remove_prefix(std::min(last == text.npos ? last : last + 1, text.size()));
      continue;
    }
    auto done = visit_ranges(entry.substr(0, open), entry.substr(open + 1, close - open - 1),
                             entry.substr(close + 1), see);
    if (!done) return done.error();
    if (!*done) return {};
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
  }
  return {};
}

std::string fold_hostlist(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, bool>> order;  // name or prefix; true: a prefix of numbers
  std::map<std::string, std::vector<std::string>> numbers;
  for (const std::string& name : names) {
    auto [prefix, digits] = split(name);
    if (digits.empty() || numbers[prefix].empty()) order.emplace_back(prefix, !digits.empty());
    if (!digits.empty()) numbers[prefix].push_back(digits);
  }
  std::string text;
  for (const auto& [prefix, is_numbered] : order) {
    text += text.empty() ? prefix : "," + prefix;
    if (!is_numbered) continue;
    std::vector<std::string>& all = numbers[prefix];
    std::sort(all.begin(), all.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    if (all.size() == 1) {
      text += all[0];
      continue;
    }
    text += '[';
    for (std::size_t first = 0; first < all.size();) {
      std::size_t last = first;
      while (last + 1 < all.size() && all[last + 1].size() == all[last].size() &&
             number(all[last + 1]) == number(all[last]) + 1)
        ++last;
      text += (first == 0 ? "" : ",") + all[first] + (last > first ? "-" + all[last] : "");
      first = last + 1;
    }
    text += ']';
  }
  return text;
}

}  // namespace swell::slurm_text
