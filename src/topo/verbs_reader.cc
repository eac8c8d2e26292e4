// SPDX-License-Identifier: GPL-2.0-or-later
#include <config.h>

#include "topo/machine.h"

#ifdef HAVE_VERBS

#include <algorithm>
#include <infiniband/verbs.h>
#include <memory>

namespace swell::topo {

namespace {

struct Close {
  void operator()(ibv_context* context) const noexcept { ibv_close_device(context); }
  void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};

/// Rates and widths by the codes of verbs: Gbit/s of one lane, and number of lanes.
double lane_gbit(int code) {
  switch (code) {
    case 1: return 2.5;
    case 2: return 5;
    case 4: return 10;
    case 8: return 10.3;
    case 16: return 14;
    case 32: return 25;
    case 64: return 50;
    case 128: return 100;
    case 256: return 200;
    default: return 0;
  }
}
double lanes(int code) {
  switch (code) {
    case 1: return 1;
    case 2: return 4;
    case 4: return 8;
    case 8: return 12;
    case 16: return 2;
    default: return 0;
  }
}

std::uint64_t number(const unsigned char* bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

void read_verbs(Machine& machine) {
  int count = 0;
  const std::unique_ptr<ibv_device*, Close> devices(ibv_get_device_list(&count));
  for (int i = 0; devices && i < count; ++i) {
    const std::unique_ptr<ibv_context, Close> context(ibv_open_device(devices.get()[i]));
    ibv_device_attr device{};
    if (!context || ibv_query_device(context.get(), &device) != 0) continue;
    for (int number_of = 1; number_of <= device.phys_port_cnt; ++number_of) {
      ibv_port_attr attributes{};
      if (ibv_query_port(context.get(), static_cast<std::uint8_t>(number_of), &attributes) != 0 ||
          attributes.state != IBV_PORT_ACTIVE)
        continue;
      const std::string name = ibv_get_device_name(devices.get()[i]);
      const auto found = std::find_if(
          machine.ports.begin(), machine.ports.end(),
          [&](const Port& port) { return port.is.device == name && port.is.port == number_of; });
      Port& port = found != machine.ports.end() ? *found : machine.ports.emplace_back();
      port.is.device = name;
      port.is.port = number_of;
      if (port.is.bytes_per_s <= 0)
        port.is.bytes_per_s =
            lane_gbit(attributes.active_speed) * lanes(attributes.active_width) * 1e9 / 8;
      if (port.is.layer == cluster::LinkLayer::unknown)
        port.is.layer = attributes.link_layer == IBV_LINK_LAYER_ETHERNET
                            ? cluster::LinkLayer::ethernet
                            : cluster::LinkLayer::infiniband;
      ibv_gid gid{};
      if (port.is.guid == 0 &&
          ibv_query_gid(context.get(), static_cast<std::uint8_t>(number_of), 0, &gid) == 0) {
        port.is.subnet_prefix = number(gid.raw);
        port.is.guid = number(gid.raw + 8);
      }
    }
  }
}

}  // namespace swell::topo

#else

namespace swell::topo {

void read_verbs(Machine&) {}

}  // namespace swell::topo

#endif
