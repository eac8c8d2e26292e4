// SPDX-License-Identifier: GPL-2.0-or-later
#include "topo/render.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "core/count_of.h"
#include "topo/numbers.h"

namespace swell::topo {

namespace {

using cluster::GpuDescription;
using cluster::GpuLink;
using cluster::LinkKind;
using cluster::NodeDescription;
using cluster::PortDescription;

std::string or_unknown(const std::string& text) { return text.empty() ? "?" : text; }

std::string gbit(double bytes_per_s) {
  return bytes_per_s > 0 ? fmt::format("{:g} Gbit/s", bytes_per_s * 8 / 1e9) : "rate unknown";
}

std::string gpu_list(const std::vector<int>& gpus) {
  return gpus.empty() ? "" : fmt::format("  nearest to GPU {}", ranges(gpus));
}

std::string port_line(const PortDescription& port) {
  std::string line = fmt::format("port {}{}  {}  {}", port.device,
                                 port.port > 0 ? fmt::format("/{}", port.port) : "",
                                 to_text(port.layer), gbit(port.bytes_per_s));
  if (port.guid != 0) line += fmt::format("  {:016x}", port.guid);
  return line + gpu_list(port.nearest_gpus);
}

/// Returns a cell of the matrix: kind and GB/s of a link, such as "NV450" or "PCI32".
std::string cell(const GpuLink& link) {
  if (link.bytes_per_s <= 0) return "?";
  return fmt::format("{}{:.0f}",
                     link.kind == LinkKind::nvlink ? "NV"
                     : link.kind == LinkKind::pcie ? "PCI"
                                                   : "",
                     link.bytes_per_s / 1e9);
}

std::string matrix(const NodeDescription& node) {
  const int count = static_cast<int>(node.gpus.size());
  std::size_t width = 4;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b) width = std::max(width, cell(node.link(a, b)).size() + 1);
  std::string text = "links between GPUs, GB/s one way (NV: NVLink, PCI: PCIe)\n     ";
  for (int b = 0; b < count; ++b) text += fmt::format("{:>{}}", b, width);
  for (int a = 0; a < count; ++a) {
    text += fmt::format("\n  {:>3}", a);
    for (int b = 0; b < count; ++b)
      text += fmt::format("{:>{}}", a == b ? "-" : cell(node.link(a, b)), width);
  }
  return text + "\n";
}

/// Returns the number of NVLinks, as Slurm counts them: 25 GB/s each, 50 from the fifth generation
/// on.
int links_of(const GpuLink& link) {
  if (link.kind != LinkKind::nvlink) return 0;
  return static_cast<int>(std::lround(link.bytes_per_s / (link.bytes_per_s > 600e9 ? 50e9 : 25e9)));
}

}  // namespace

std::string drawing(const Machine& machine, const NodeDescription& node) {
  std::string text =
      fmt::format("{}: {}, {}", machine.name.empty() ? "this node" : machine.name,
                  count_of(node.gpus.size(), "GPU"), count_of(node.ports.size(), "network port"));
  if (node.network_bytes_per_s() > 0)
    text += fmt::format(", {} out", gbit(node.network_bytes_per_s()));
  if (!node.leaf.empty()) text += fmt::format(", switch {}", node.leaf);
  text += "\n";
  std::set<int> places;
  for (const auto& [numa, ignored] : machine.cores) places.insert(numa);
  for (const GpuDescription& gpu : node.gpus) places.insert(gpu.numa);
  for (const PortDescription& port : node.ports) places.insert(port.numa);
  for (const int numa : places) {
    std::vector<std::string> lines;
    for (const PortDescription& port : node.ports)
      if (port.numa == numa)
        lines.push_back(fmt::format("{:<13} {}", or_unknown(port.pci), port_line(port)));
    for (std::size_t i = 0; i < node.gpus.size(); ++i)
      if (node.gpus[i].numa == numa)
        lines.push_back(fmt::format("{:<13} GPU {}  {}", or_unknown(node.gpus[i].pci), i,
                                    or_unknown(node.gpus[i].type)));
    std::sort(lines.begin(), lines.end());
    const auto cores = machine.cores.find(numa);
    text += numa < 0 ? "NUMA node not known" : fmt::format("NUMA node {}", numa);
    if (cores != machine.cores.end()) text += fmt::format(", cores {}", cores->second);
    text += "\n";
    for (std::size_t i = 0; i < lines.size(); ++i)
      text += fmt::format("  {} {}\n", i + 1 < lines.size() ? "|-" : "`-", lines[i]);
  }
  if (node.gpus.size() > 1) text += matrix(node);
  return text;
}

Json to_json(const Machine& machine, const NodeDescription& node) {
  Json gpus = Json::array(), ports = Json::array(), links = Json::array();
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const GpuDescription& gpu = node.gpus[i];
    Json nearest = Json::array();
    for (const PortDescription& port : node.ports)
      if (std::find(port.nearest_gpus.begin(), port.nearest_gpus.end(), static_cast<int>(i)) !=
          port.nearest_gpus.end())
        nearest.append(fmt::format("{}/{}", port.device, port.port));
    Json written = Json::object({{"index", i},
                                 {"type", gpu.type},
                                 {"pci", gpu.pci},
                                 {"numa", gpu.numa},
                                 {"nearest_ports", nearest}});
    if (const auto cores = machine.cores.find(gpu.numa); cores != machine.cores.end())
      written.set("cores", cores->second);
    gpus.append(written);
    for (std::size_t j = i + 1; j < node.gpus.size(); ++j) {
      const GpuLink link = node.link(static_cast<int>(i), static_cast<int>(j));
      links.append(Json::object({{"between", Json::array({i, j})},
                                 {"kind", to_text(link.kind)},
                                 {"gbytes_per_s", link.bytes_per_s / 1e9}}));
    }
  }
  for (const PortDescription& port : node.ports)
    ports.append(Json::object({{"device", port.device},
                               {"port", port.port},
                               {"link_layer", to_text(port.layer)},
                               {"gbit_per_s", port.bytes_per_s * 8 / 1e9},
                               {"subnet_prefix", fmt::format("{:016x}", port.subnet_prefix)},
                               {"guid", fmt::format("{:016x}", port.guid)},
                               {"pci", port.pci},
                               {"numa", port.numa},
                               {"nearest_gpus", array_of(port.nearest_gpus)}}));
  return Json::object({{"node", machine.name},
                       {"leaf", node.leaf},
                       {"gpus", gpus},
                       {"links", links},
                       {"ports", ports},
                       {"published", node.to_json()},
                       {"notes", array_of(machine.notes)}});
}

std::string gres_conf(const Machine& machine, const NodeDescription& node) {
  std::string text;
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const GpuDescription& gpu = node.gpus[i];
    text += "Name=gpu";
    if (!gpu.type.empty()) text += " Type=" + gpu.type;
    text += fmt::format(" File=/dev/nvidia{}", i);
    if (const auto cores = machine.cores.find(gpu.numa); cores != machine.cores.end())
      text += " Cores=" + cores->second;
    if (node.gpus.size() > 1) {
      text += " Links=";
      for (std::size_t j = 0; j < node.gpus.size(); ++j)
        text += fmt::format(
            "{}{}", j == 0 ? "" : ",",
            i == j ? -1 : links_of(node.link(static_cast<int>(i), static_cast<int>(j))));
    }
    text += "\n";
  }
  return text;
}

}  // namespace swell::topo
