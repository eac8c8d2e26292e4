// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/conf_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "base/lower.h"

namespace swell::slurm {

namespace {

/// Adds a host such as "head(10.0.0.1)" with its name and its address; without an address, the name
/// is the address.
void add_host(const std::string& value, SlurmConf& conf) {
  const std::size_t open = value.find('(');
  const std::string name = value.substr(0, open);
  conf.hosts.push_back(name.substr(0, name.find('.')));
  conf.addresses.push_back(
      open == std::string::npos ? name : value.substr(open + 1, value.find(')') - open - 1));
}

constexpr std::string_view kBlanks = " \t";

void skip_blanks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
}

/// Removes the first word of the text, and returns it.
std::string take_word(std::string_view& text) {
  const std::string word(text.substr(0, text.find_first_of(kBlanks)));
  text.remove_prefix(word.size());
  return word;
}

/// Returns the file that an Include names; nothing: the line is not an Include.
std::optional<std::string> included(std::string_view line) {
  skip_blanks(line);
  if (lower(take_word(line)) != "include") return std::nullopt;
  skip_blanks(line);
  return take_word(line);
}

Result<void> read_file(const std::string& path, SlurmConf& conf, int depth) {
  // Reading a FIFO would block, and a device has no end.
  std::error_code missing;
  if (std::filesystem::exists(path, missing) && !std::filesystem::is_regular_file(path, missing))
    return Error(fmt::format("{}: it is not a file; SLURM_CONF must name slurm.conf", path));
  std::ifstream in(path);
  if (!in) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string line;
  for (std::string part; std::getline(in, part);) {
    if (part.ends_with('\r')) part.pop_back();
    part = part.substr(0, part.find('#'));
    if (part.ends_with('\\')) {
      line += part.substr(0, part.size() - 1);
      continue;
    }
    const std::string whole = std::exchange(line, std::string()) + part;
    std::string_view rest = whole;
    if (const auto other = included(rest)) {
      const std::string named =
          other->starts_with('/') ? *other : path.substr(0, path.rfind('/') + 1) + *other;
      if (depth == 0) return Error(fmt::format("{}: included too deep", named));
      if (Result<void> read = read_file(named, conf, depth - 1); !read) return read;
      continue;
    }
    while (auto setting = next_setting(rest)) {
      const std::string key = lower(setting->key);
      // The rest of such a line is only about those nodes.
      if (key == "nodename" || key == "partitionname" || key == "downnodes" || key == "nodeset")
        break;
      if (key == "slurmctldhost") add_host(setting->value, conf);
      else conf.values[key] = std::move(setting->value);
    }
  }
  return {};
}

}  // namespace

std::optional<Setting> next_setting(std::string_view& line) {
  skip_blanks(line);
  Setting setting;
  const std::size_t end = line.find_first_of(" \t=");
  if (end == line.npos) return std::nullopt;
  setting.key = line.substr(0, end);
  line.remove_prefix(end);
  skip_blanks(line);
  if (!line.starts_with('=')) return std::nullopt;
  line.remove_prefix(1);
  skip_blanks(line);
  const std::size_t closed = line.starts_with('"') ? line.find('"', 1) : line.npos;
  if (closed == line.npos) {
    setting.value = take_word(line);
  } else {
    setting.value = line.substr(1, closed - 1);
    line.remove_prefix(closed + 1);
  }
  return setting;
}

const std::string* SlurmConf::find(const std::string& key) const {
  const auto found = values.find(lower(key));
  return found != values.end() ? &found->second : nullptr;
}

Result<SlurmConf> SlurmConf::load(const std::string& path) {
  SlurmConf conf;
  if (Result<void> read = read_file(path, conf, 8); !read) return read.error();
  return conf;
}

}  // namespace swell::slurm
