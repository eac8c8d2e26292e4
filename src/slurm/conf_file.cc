// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/conf_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <utility>

namespace swell::slurm {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Adds a host such as "head(10.0.0.1)" with its name and its address; the name is the address
/// where none is given.
void add_host(const std::string& value, SlurmConf& conf) {
  const std::size_t open = value.find('(');
  const std::string name = value.substr(0, open);
  conf.hosts.push_back(name.substr(0, name.find('.')));
  conf.addresses.push_back(
      open == std::string::npos ? name : value.substr(open + 1, value.find(')') - open - 1));
}

Result<void> read_file(const std::string& path, SlurmConf& conf, int depth) {
  std::ifstream in(path);
  if (!in) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string line;
  for (std::string part; std::getline(in, part);) {
    part = part.substr(0, part.find('#'));
    if (part.ends_with('\\')) {
      line += part.substr(0, part.size() - 1);
      continue;
    }
    line += part;
    std::istringstream words(std::exchange(line, std::string()));
    std::string first;
    if (!(words >> first)) continue;
    if (lower(first) == "include") {
      std::string other;
      words >> other;
      if (!other.starts_with('/')) other = path.substr(0, path.rfind('/') + 1) + other;
      if (depth == 0) return Error(fmt::format("{}: included too deep", other));
      if (Result<void> read = read_file(other, conf, depth - 1); !read) return read;
      continue;
    }
    const std::size_t equals = first.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = lower(first.substr(0, equals));
    if (key == "nodename" || key == "partitionname" || key == "downnodes" || key == "nodeset")
      continue;
    if (key == "slurmctldhost") add_host(first.substr(equals + 1), conf);
    else conf.values[key] = first.substr(equals + 1);
  }
  return {};
}

}  // namespace

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
