// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/slurm_topology.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <map>

#include "base/lower.h"
#include "core/slurm_text/hostlist.h"

namespace swell::cluster {

namespace {

using Group = SlurmTopology::Group;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<SlurmTopology> parse() {
    if (is_yaml()) {
      made_.notes.push_back(
          "topology.yaml is not read: distances come from what the nodes publish");
      return std::move(made_);
    }
    while (!text_.empty()) {
      const std::string line = next_line();
      if (auto good = read_line(line); !good)
        return good.error().while_doing(fmt::format("line {}", line_));
    }
    if (auto good = made_.kind == SlurmTopology::Kind::block ? nest_blocks() : connect_switches();
        !good)
      return good.error();
    return std::move(made_);
  }

 private:
  bool is_yaml() const {
    const std::size_t begin = text_.find_first_not_of(" \t\r\n");
    return begin != text_.npos &&
           (text_.substr(begin, 3) == "---" || text_.substr(begin, 2) == "- ");
  }

  /// Returns the next line without its comment, joined with the line after it if it ends in a
  /// backslash.
  std::string next_line() {
    std::string line;
    for (bool more = true; more && !text_.empty();) {
      const std::size_t end = text_.find('\n');
      std::string_view part = text_.substr(0, end);
      text_.remove_prefix(end == text_.npos ? text_.size() : end + 1);
      ++line_;
      part = part.substr(0, part.find('#'));
      while (!part.empty() && std::isspace(static_cast<unsigned char>(part.back())))
        part.remove_suffix(1);
      more = !part.empty() && part.back() == '\\';
      if (more) part.remove_suffix(1);
      line += part;
    }
    return line;
  }

  static std::map<std::string, std::string> words_of(const std::string& line) {
    std::map<std::string, std::string> words;
    for (std::size_t begin = line.find_first_not_of(" \t\r"); begin != line.npos;
         begin = line.find_first_not_of(" \t\r", begin)) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
      const std::string word = line.substr(begin, end - begin);
      const std::size_t equals = word.find('=');
      words[lower(word.substr(0, equals))] = equals == word.npos ? "" : word.substr(equals + 1);
      begin = end;
    }
    return words;
  }

  Result<void> read_line(const std::string& line) {
    const auto words = words_of(line);
    if (words.empty()) return {};
    if (words.contains("switchname"))
      return read_group(words, "switchname", SlurmTopology::Kind::tree);
    if (words.contains("blockname"))
      return read_group(words, "blockname", SlurmTopology::Kind::block);
    if (words.contains("blocksizes")) return read_sizes(words.at("blocksizes"));
    made_.notes.push_back(
        fmt::format("line {}: \"{}\" is not known and is passed over", line_, line.substr(0, 60)));
    return {};
  }

  Result<void> read_group(const std::map<std::string, std::string>& words, const char* key,
                          SlurmTopology::Kind kind) {
    Group group;
    group.name = words.at(key);
    if (group.name.empty()) return Error(fmt::format("{} has no value", key));
    if (made_.kind != SlurmTopology::Kind::none && made_.kind != kind)
      return Error("switches and blocks are mixed; Slurm takes either");
    made_.kind = kind;
    if (!index_.emplace(group.name, made_.groups.size()).second)
      return Error(fmt::format("{} is named twice", group.name));
    if (words.contains("nodes")) {
      auto nodes = slurm_text::expand_hostlist(words.at("nodes"));
      if (!nodes) return nodes.error().while_doing(group.name);
      group.nodes = *std::move(nodes);
    }
    std::vector<std::string> below;
    if (words.contains("switches")) {
      auto switches = slurm_text::expand_hostlist(words.at("switches"));
      if (!switches) return switches.error().while_doing(group.name);
      below = *std::move(switches);
    }
    below_.push_back(std::move(below));
    made_.groups.push_back(std::move(group));
    return {};
  }

  Result<void> read_sizes(const std::string& list) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      int size = 0;
      const auto [at, problem] = std::from_chars(list.data() + begin, list.data() + end, size);
      if (problem != std::errc{} || at != list.data() + end || size < 1)
        return Error(
            fmt::format("BlockSizes={} is not a list of numbers above 0", list.substr(0, 60)));
      sizes_.push_back(size);
      begin = end + 1;
    }
    std::sort(sizes_.begin(), sizes_.end());
    return {};
  }

  Result<void> connect_switches() {
    for (std::size_t i = 0; i < below_.size(); ++i)
      for (const std::string& name : below_[i]) {
        const auto found = index_.find(name);
        if (found == index_.end())
          return Error(
              fmt::format("switch {} has a switch {} below it, which has no line of its own",
                          made_.groups[i].name, name));
        Group& child = made_.groups[found->second];
        if (found->second == i) return Error(fmt::format("switch {} is below itself", name));
        if (child.parent >= 0) {
          // If a tree names several parents, keep the first.
          if (child.parent != static_cast<int>(i))
            made_.notes.push_back(
                fmt::format("switch {} is below several switches; the first one is used", name));
          continue;
        }
        child.parent = static_cast<int>(i);
      }
    const int max = static_cast<int>(made_.groups.size());
    for (const Group& leaf : made_.groups) {
      int height = 1;
      for (int up = leaf.parent; up >= 0; up = made_.groups[static_cast<std::size_t>(up)].parent) {
        if (++height > std::min(max, kMaxLevels))
          return Error(max < kMaxLevels || height > max
                           ? fmt::format("switch {} is above and below itself", leaf.name)
                           : fmt::format("more than {} levels of switches", kMaxLevels));
        int& known = made_.groups[static_cast<std::size_t>(up)].height;
        known = std::max(known, height);
      }
    }
    return {};
  }

  /// Makes a block of the next level from each run of consecutive blocks; with BlockSizes=4,16, a
  /// run has four blocks.
  Result<void> nest_blocks() {
    const std::size_t blocks = made_.groups.size();
    for (std::size_t level = 1, first = 0, count = blocks;
         level < sizes_.size() && level < kMaxLevels; ++level) {
      const auto each = static_cast<std::size_t>(std::max(sizes_[level] / sizes_[level - 1], 1));
      if (each < 2) continue;
      const std::size_t next = made_.groups.size();
      for (std::size_t begin = 0; begin < count; begin += each) {
        const std::size_t last = std::min(begin + each, count) - 1;
        Group group;
        group.name = made_.groups[first + begin].name.substr(0, 64) + ".." +
                     made_.groups[first + last].name.substr(0, 64);
        group.height = made_.groups[first].height + 1;
        for (std::size_t i = begin; i <= last; ++i)
          made_.groups[first + i].parent = static_cast<int>(made_.groups.size());
        made_.groups.push_back(std::move(group));
      }
      first = next;
      count = made_.groups.size() - next;
    }
    return {};
  }

  static constexpr int kMaxLevels = 16;
  std::string_view text_;
  int line_ = 0;
  SlurmTopology made_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<std::vector<std::string>> below_;
  std::vector<int> sizes_;
};

}  // namespace

Result<SlurmTopology> SlurmTopology::parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace swell::cluster
