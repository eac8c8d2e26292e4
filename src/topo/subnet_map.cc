// SPDX-License-Identifier: GPL-2.0-or-later
#include "topo/subnet_map.h"

#include <charconv>
#include <fmt/format.h>
#include <map>

namespace swell::topo {

namespace {

std::optional<std::uint64_t> hex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (problem != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// Returns the text between two marks; empty if they are missing.
std::string_view between(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t begin = text.find(open);
  if (begin == text.npos) return {};
  text.remove_prefix(begin + open.size());
  return text.substr(0, text.find(close));
}

/// Returns the name of a switch from its description, such as "MF0;sw1:MQM8700/U1": the part that
/// the admin chose.
std::string switch_name(std::string_view description, std::uint64_t guid) {
  if (const std::string_view inner = between(description, ";", ":"); !inner.empty())
    description = inner;
  while (!description.empty() && description.back() == ' ') description.remove_suffix(1);
  if (description.empty() || description.size() > 64) return fmt::format("S-{:016x}", guid);
  return std::string(description);
}

using Leaves = std::map<std::uint64_t, std::string>;  ///< by port GUID

/// Reads one line of a block: a switch, then its ports with their other ends: [1]
/// "H-..."[1](0c42a103001235a7).
void read_ibnetdiscover_line(std::string_view line, std::string& current, Leaves& leaves) {
  if (line.starts_with("Switch")) {
    const auto guid = hex(between(line, "\"S-", "\""));
    current = guid ? switch_name(between(line, "# \"", "\""), *guid) : "";
  } else if (line.starts_with("Ca") || line.starts_with("Rt")) {
    current.clear();
  } else if (line.starts_with("[") && !current.empty() && line.find("\"H-") != line.npos) {
    std::string_view after = line.substr(line.find("\"H-"));
    if (const auto port = hex(between(after, "](", ")"))) leaves.emplace(*port, current);
  }
}

struct End {
  bool is_switch = false;
  std::uint64_t node = 0, port = 0;
  std::string_view description;
};

End read_end(std::string_view text) {
  End end;
  end.is_switch = text.starts_with(" SW") || text.starts_with("SW");
  end.node = hex(between(text, "NodeGUID:", " ")).value_or(0);
  end.port = hex(between(text, "PortGUID:", " ")).value_or(0);
  end.description = between(text, "{", "}");
  return end;
}

/// Reads one link: { CA ... PortGUID:... {host HCA-1} LID:... } { SW ... NodeGUID:... {name}
/// LID:... }.
void read_opensm_line(std::string_view line, Leaves& leaves) {
  const std::size_t second = line.find("} {", line.find("LID:"));
  if (second == line.npos || line.size() < 2) return;
  const End one = read_end(line.substr(1, second - 1)), other = read_end(line.substr(second + 3));
  if (one.is_switch == other.is_switch) return;
  const End& host = one.is_switch ? other : one;
  const End& leaf = one.is_switch ? one : other;
  if (host.port != 0) leaves.emplace(host.port, switch_name(leaf.description, leaf.node));
}

}  // namespace

std::optional<std::string> leaf_switch(std::string_view list,
                                       const std::vector<std::uint64_t>& port_guids) {
  Leaves leaves;
  std::string current;
  while (!list.empty()) {
    const std::size_t end = list.find('\n');
    const std::string_view line = list.substr(0, end);
    list.remove_prefix(end == list.npos ? list.size() : end + 1);
    if (line.starts_with("{")) read_opensm_line(line, leaves);
    else read_ibnetdiscover_line(line, current, leaves);
  }
  for (const std::uint64_t guid : port_guids)
    if (const auto found = leaves.find(guid); found != leaves.end()) return found->second;
  return std::nullopt;
}

}  // namespace swell::topo
