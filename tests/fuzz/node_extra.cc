// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a node's Extra field: other tools' members stay, and a description that was read is
// written and read back the same, once its rates have been rounded.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/cluster/node_description.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

swell::cluster::NodeDescription through_text(const swell::cluster::NodeDescription& node) {
  const auto text = swell::cluster::write_extra("", node);
  check(text.ok());
  const auto read = swell::cluster::read_extra(*text);
  check(read.ok() && read->has_value());
  return **read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell;
  const std::string_view extra(reinterpret_cast<const char*>(data), size);
  cluster::NodeDescription own;
  own.leaf = "leaf1";
  own.gpus.resize(2);
  if (const auto written = cluster::write_extra(extra, own)) {
    const auto read = cluster::read_extra(*written);
    check(read.ok() && read->has_value() && **read == own);
    const auto before = Json::parse(extra), after = Json::parse(*written);
    if (before && is_object(*before))
      for (const auto& [key, value] : members(*before))
        if (key != "swell") check(after->at(key.c_str()).dump() == value.dump());
  }

  const auto read = cluster::read_extra(extra);
  if (!read || !*read) return 0;
  const cluster::NodeDescription& node = **read;
  check(node.network_bytes_per_s() >= 0);
  const int gpus = static_cast<int>(node.gpus.size());
  for (const auto& each : node.links)
    check(each.a >= 0 && each.a < each.b && each.b < gpus && node.link(each.b, each.a).a == each.a);
  for (const auto& port : node.ports)
    for (const int gpu : port.nearest_gpus) check(gpu >= 0 && gpu < gpus);
  const cluster::NodeDescription rounded = through_text(node);
  check(rounded.gpus == node.gpus && rounded.leaf == node.leaf &&
        rounded.ports.size() == node.ports.size());
  check(through_text(rounded) == rounded);
  return 0;
}
