// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/node_description.h"

#include <utility>

namespace swell::cluster {

const char* to_text(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::nvlink: return "NVLink";
    case LinkKind::pcie: return "PCIe";
    case LinkKind::unknown: break;
  }
  return "unknown";
}

const char* to_text(LinkLayer layer) noexcept {
  switch (layer) {
    case LinkLayer::infiniband: return "InfiniBand";
    case LinkLayer::ethernet: return "Ethernet";
    case LinkLayer::unknown: break;
  }
  return "unknown";
}

GpuLink NodeDescription::link(int a, int b) const noexcept {
  if (a > b) std::swap(a, b);
  for (const GpuLink& each : links)
    if (each.a == a && each.b == b) return each;
  return {a, b, usual_link.kind, usual_link.bytes_per_s};
}

double NodeDescription::network_bytes_per_s() const noexcept {
  double sum = 0;
  for (const PortDescription& port : ports) sum += port.bytes_per_s;
  return sum;
}

}  // namespace swell::cluster
