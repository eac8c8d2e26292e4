// SPDX-License-Identifier: GPL-2.0-or-later
// The compact form: {"v":1, "leaf":"sw1", "t":["h100"], "g":[[type,numa,"1b:00.0"],...],
// "l":["n",450,[a,b,"p",32],...], "s":["fe80000000000000"],
// "h":[["mlx5_0",port,"i",Gbit/s,subnet,"guid",numa,"18:00.0",[gpu,...]],...]}. It has lists
// instead of objects, and indexes instead of repeated text, because slurmctld keeps every node's
// text and sends it to every client.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "core/cluster/cluster.h"
#include "core/cluster/node_description.h"
#include "core/count_of.h"

namespace swell::cluster {

namespace {

constexpr int kVersion = 1;
constexpr std::size_t kMaxText = 64;  // maximum characters of a name
constexpr std::size_t kMaxPorts = 64;
constexpr std::size_t kMaxExtra = 65536;  // maximum bytes of an Extra field
constexpr double kGB = 1e9, kGbit = 1e9 / 8;
constexpr double kMaxRate = 1e6;  // maximum of a rate, in GB/s or Gbit/s

const char* letter(LinkKind kind) {
  return kind == LinkKind::nvlink ? "n" : kind == LinkKind::pcie ? "p" : "?";
}
const char* letter(LinkLayer layer) {
  return layer == LinkLayer::infiniband ? "i" : layer == LinkLayer::ethernet ? "e" : "?";
}
LinkKind kind_of(std::string_view text) {
  return text == "n" ? LinkKind::nvlink : text == "p" ? LinkKind::pcie : LinkKind::unknown;
}
LinkLayer layer_of(std::string_view text) {
  return text == "i"   ? LinkLayer::infiniband
         : text == "e" ? LinkLayer::ethernet
                       : LinkLayer::unknown;
}

std::ptrdiff_t colons_in(const std::string& pci) { return std::count(pci.begin(), pci.end(), ':'); }
/// Drops the PCI domain 0000, which nearly all addresses have. with_domain() adds it to addresses
/// with only one colon.
std::string without_domain(const std::string& pci) {
  return pci.starts_with("0000:") && colons_in(pci) == 2 ? pci.substr(5) : pci;
}
std::string with_domain(std::string pci) { return colons_in(pci) == 1 ? "0000:" + pci : pci; }

/// Writes a whole rate as an integer (nearly all are whole), and others with two decimals.
Json rate(double value) {
  if (value == static_cast<double>(static_cast<long>(value))) return static_cast<long>(value);
  return static_cast<double>(static_cast<long>(value * 100 + 0.5)) / 100;
}

/// Returns the index of `value` in `list`; adds it if it is new.
template <typename T>
int index_in(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return static_cast<int>(found - list.begin());
  list.push_back(value);
  return static_cast<int>(list.size()) - 1;
}

/// Reads the items of one list in order and keeps the first error, which names the item by its
/// position.
class Items {
 public:
  Items(Json list, std::string what) : list_(std::move(list)), what_(std::move(what)) {
    if (!is_array(list_)) fail("it must be a list");
  }
  bool at_end() const { return next_ >= list_.size(); }
  bool good() const { return !problem_.has_value(); }
  Error error() const { return problem_->while_doing(what_); }
  Json any() { return list_.at(next_++); }
  int whole(long min, long max) {
    const Json item = any();
    const long long value = json_integer_value(item.get());
    if (!is_integer(item) || value < min || value > max)
      fail(fmt::format("item {} must be a whole number from {} to {}", next_, min, max));
    return good() ? static_cast<int>(value) : 0;
  }
  double number() {
    const Json item = any();
    const double value = json_number_value(item.get());
    if (!is_number(item) || !(value >= 0 && value <= kMaxRate))
      fail(fmt::format("item {} must be a number from 0 to {:g}", next_, kMaxRate));
    return good() ? value : 0;
  }
  std::string text() {
    const Json item = any();
    if (!is_string(item) || json_string_length(item.get()) > kMaxText) {
      fail(fmt::format("item {} must be text of at most {} characters", next_, kMaxText));
      return {};
    }
    return {json_string_value(item.get()), json_string_length(item.get())};
  }
  std::uint64_t hex() {
    const std::string digits = text();
    std::uint64_t value = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (good() && !digits.empty() &&
        (problem != std::errc{} || end != digits.data() + digits.size()))
      fail(fmt::format("item {} must be hexadecimal, 16 digits at most", next_));
    return value;
  }

 private:
  void fail(std::string why) {
    if (good()) problem_ = Error(std::move(why));
  }
  Json list_;
  std::string what_;
  std::size_t next_ = 0;
  std::optional<Error> problem_;
};

std::string hex(std::uint64_t value) { return value == 0 ? "" : fmt::format("{:016x}", value); }

Result<std::vector<std::string>> read_names(const Json& json, const char* key) {
  std::vector<std::string> names;
  if (!json.has(key)) return names;
  Items items(json.at(key), key);
  while (items.good() && !items.at_end()) names.push_back(items.text());
  if (!items.good()) return items.error();
  return names;
}

Result<void> read_gpus(const Json& json, NodeDescription& node) {
  auto types = read_names(json, "t");
  if (!types) return types.error();
  if (!json.has("g")) return {};
  if (!is_array(json.at("g")) || json.at("g").size() > kMaxGpusPerNode)
    return Error(
        fmt::format("\"g\" must be a list of at most {}", count_of(kMaxGpusPerNode, "GPU")));
  for (const Json& each : json.at("g").items()) {
    Items items(each, fmt::format("GPU {}", node.gpus.size()));
    GpuDescription gpu;
    const int type = items.whole(-1, static_cast<long>(types->size()) - 1);
    if (type >= 0 && items.good()) gpu.type = (*types)[static_cast<std::size_t>(type)];
    gpu.numa = items.whole(-1, 1023);
    gpu.pci = with_domain(items.text());
    if (!items.good()) return items.error();
    node.gpus.push_back(std::move(gpu));
  }
  return {};
}

Result<void> read_links(const Json& json, NodeDescription& node) {
  if (!json.has("l")) return {};
  Items items(json.at("l"), "links of GPUs");
  node.usual_link.kind = kind_of(items.text());
  node.usual_link.bytes_per_s = items.number() * kGB;
  const long last = static_cast<long>(node.gpus.size()) - 1;
  while (items.good() && !items.at_end()) {
    Items pair(items.any(), fmt::format("link {}", node.links.size()));
    GpuLink link;
    link.a = pair.whole(0, last);
    link.b = pair.whole(link.a + 1L, last);
    link.kind = kind_of(pair.text());
    link.bytes_per_s = pair.number() * kGB;
    if (!pair.good()) return pair.error();
    if (node.links.size() >= kMaxGpusPerNode * kMaxGpusPerNode / 2)
      return Error("more links than pairs of GPUs");
    node.links.push_back(link);
  }
  if (!items.good()) return items.error();
  return {};
}

Result<void> read_ports(const Json& json, NodeDescription& node) {
  auto prefixes = read_names(json, "s");
  if (!prefixes) return prefixes.error();
  if (!json.has("h")) return {};
  if (!is_array(json.at("h")) || json.at("h").size() > kMaxPorts)
    return Error(fmt::format("\"h\" must be a list of at most {}", count_of(kMaxPorts, "port")));
  Items subnets(json.has("s") ? json.at("s") : Json::array(), "subnets");
  std::vector<std::uint64_t> subnet;
  while (subnets.good() && !subnets.at_end()) subnet.push_back(subnets.hex());
  if (!subnets.good()) return subnets.error();
  for (const Json& each : json.at("h").items()) {
    Items items(each, fmt::format("port {}", node.ports.size()));
    PortDescription port;
    port.device = items.text();
    port.port = items.whole(0, 255);
    port.layer = layer_of(items.text());
    port.bytes_per_s = items.number() * kGbit;
    const int prefix = items.whole(-1, static_cast<long>(subnet.size()) - 1);
    if (prefix >= 0 && items.good()) port.subnet_prefix = subnet[static_cast<std::size_t>(prefix)];
    port.guid = items.hex();
    port.numa = items.whole(-1, 1023);
    port.pci = with_domain(items.text());
    Items nearest(items.any(), "nearest GPUs");
    while (nearest.good() && !nearest.at_end())
      port.nearest_gpus.push_back(nearest.whole(0, static_cast<long>(node.gpus.size()) - 1));
    if (!items.good()) return items.error();
    if (!nearest.good() || port.nearest_gpus.size() > node.gpus.size())
      return Error(fmt::format("port {}: its nearest GPUs must be a list of GPUs of the node",
                               node.ports.size()));
    node.ports.push_back(std::move(port));
  }
  return {};
}

}  // namespace

Json NodeDescription::to_json() const {
  Json json = Json::object({{"v", kVersion}});
  if (!leaf.empty()) json.set("leaf", leaf);
  if (!gpus.empty()) {
    std::vector<std::string> types;
    Json list = Json::array();
    for (const GpuDescription& gpu : gpus)
      list.append(Json::array(
          {gpu.type.empty() ? -1 : index_in(types, gpu.type), gpu.numa, without_domain(gpu.pci)}));
    json.set("t", array_of(types));
    json.set("g", list);
    if (gpus.size() > 1) {
      Json all = Json::array({letter(usual_link.kind), rate(usual_link.bytes_per_s / kGB)});
      for (const GpuLink& each : links)
        all.append(Json::array({each.a, each.b, letter(each.kind), rate(each.bytes_per_s / kGB)}));
      json.set("l", all);
    }
  }
  if (!ports.empty()) {
    std::vector<std::string> subnets;
    Json list = Json::array();
    for (const PortDescription& port : ports)
      list.append(Json::array(
          {port.device, port.port, letter(port.layer), rate(port.bytes_per_s / kGbit),
           port.subnet_prefix == 0 ? -1 : index_in(subnets, hex(port.subnet_prefix)),
           hex(port.guid), port.numa, without_domain(port.pci), array_of(port.nearest_gpus)}));
    json.set("s", array_of(subnets));
    json.set("h", list);
  }
  return json;
}

Result<NodeDescription> NodeDescription::from_json(const Json& json) {
  if (!is_object(json)) return Error("a node's description is a JSON object");
  if (auto version = json.integer_at("v", kVersion, kVersion); !version) return version.error();
  NodeDescription node;
  if (json.has("leaf")) {
    auto leaf = json.string_at("leaf");
    if (!leaf) return leaf.error();
    if (leaf->size() > 4 * kMaxText) return Error("\"leaf\" is longer than 256 characters");
    node.leaf = *leaf;
  }
  if (auto good = read_gpus(json, node); !good) return good.error();
  if (auto good = read_links(json, node); !good) return good.error();
  if (auto good = read_ports(json, node); !good) return good.error();
  return node;
}

Result<std::optional<NodeDescription>> read_extra(std::string_view extra) {
  if (extra.empty()) return std::optional<NodeDescription>{};
  const auto json = Json::parse(extra, kMaxExtra);
  if (!json || !is_object(*json) || !json->has("swell")) {
    // Another tool's text is not an error; our own text cut short is one.
    if (!json && extra.find("\"swell\":{\"v\"") != extra.npos)
      return json.error().while_doing("Extra");
    return std::optional<NodeDescription>{};
  }
  auto node = NodeDescription::from_json(json->at("swell"));
  if (!node) return node.error().while_doing("Extra's \"swell\"");
  return std::optional<NodeDescription>(*std::move(node));
}

Result<std::string> write_extra(std::string_view extra, const NodeDescription& description) {
  if (extra.find_first_not_of(" \t\n") == extra.npos)
    return Json::object({{"swell", description.to_json()}}).dump();
  auto json = Json::parse(extra, kMaxExtra);
  if (!json || !is_object(*json))
    return Error(fmt::format(
        "Extra is \"{}\", which is not a JSON object, and is left as it is; empty it, or make it one, to have the topology published",
        extra.size() > 40 ? std::string(extra.substr(0, 37)) + "..." : std::string(extra)));
  json->set("swell", description.to_json());
  return json->dump();
}

}  // namespace swell::cluster
