// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/switch_network.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

namespace swell::launcher {

std::map<std::string, cluster::NodeDescription> read_descriptions(std::string_view text) {
  std::map<std::string, cluster::NodeDescription> found;
  std::string node;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    constexpr std::string_view kName = "NodeName=", kExtra = "Extra=";
    if (line.starts_with(kName)) {
      line.remove_prefix(kName.size());
      node = line.substr(0, line.find(' '));
    } else if (line.starts_with(kExtra) && !node.empty()) {
      auto description = cluster::read_extra(line.substr(kExtra.size()));
      if (description && *description) found[node] = **std::move(description);
    }
  }
  return found;
}

std::string ports_near(const cluster::NodeDescription& node, const std::vector<int>& gpus) {
  const auto is_near = [&](const cluster::PortDescription& port) {
    return std::find_first_of(port.nearest_gpus.begin(), port.nearest_gpus.end(), gpus.begin(),
                              gpus.end()) != port.nearest_gpus.end();
  };
  const bool is_known = std::any_of(node.ports.begin(), node.ports.end(), is_near);
  std::string ports;
  for (const cluster::PortDescription& port : node.ports)
    if (!is_known || is_near(port))
      ports += fmt::format("{}{}:{}", ports.empty() ? "" : ",", port.device, port.port);
  return ports;
}

std::optional<runtime::Ucx::Options> ucx_of(const std::string& network, const std::string& ports,
                                            const std::string& address, const std::string& sysfs) {
  runtime::Ucx::Options ucx;
  if (network == "tcp") return std::nullopt;
  if (network.starts_with("ucx:")) {
    ucx.devices = network.substr(4);
    return ucx;
  }
  const bool is_asked_for = network == "ucx";
  std::string devices = runtime::ucx_devices_of(ports, is_asked_for, sysfs);
  if (devices.empty()) devices = runtime::ucx_devices_at(address, is_asked_for, sysfs);
  if (!is_asked_for && devices.empty()) return std::nullopt;
  if (std::getenv("UCX_NET_DEVICES") == nullptr) ucx.devices = std::move(devices);
  return ucx;
}

std::optional<runtime::NcclOptions> nccl_of(const std::string& network) {
  // Not with auto until it was tried on GPUs: programs train with the same library.
  if (network != "nccl") return std::nullopt;
  return runtime::NcclOptions{};
}

}  // namespace swell::launcher
