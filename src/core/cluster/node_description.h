// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace swell::cluster {

/// One GPU of a node, at the index that Slurm gives it.
struct GpuDescription {
  std::string type;  ///< as in Slurm's gres type; empty: not known
  std::string pci;   ///< "0000:1b:00.0"; empty: not known
  int numa = -1;     ///< -1: not known
  friend bool operator==(const GpuDescription&, const GpuDescription&) = default;
};

enum class LinkKind { unknown, nvlink, pcie };
const char* to_text(LinkKind kind) noexcept;

/// The link between two GPUs of one node. Bytes a second, one direction; 0: not known.
struct GpuLink {
  int a = 0, b = 0;
  LinkKind kind = LinkKind::unknown;
  double bytes_per_s = 0;
  friend bool operator==(const GpuLink&, const GpuLink&) = default;
};

enum class LinkLayer { unknown, infiniband, ethernet };
const char* to_text(LinkLayer layer) noexcept;

/// One active port of a network card.
struct PortDescription {
  std::string device;  ///< "mlx5_0", or the name of an Ethernet interface
  int port = 1;
  LinkLayer layer = LinkLayer::unknown;
  double bytes_per_s = 0;           ///< active width times active speed; 0: not known
  std::uint64_t subnet_prefix = 0;  ///< upper half of GID 0; 0: not known
  std::uint64_t guid = 0;           ///< GUID of the port; 0: not known
  std::string pci;
  int numa = -1;
  /// Rising indexes of the GPUs that have no nearer port.
  std::vector<int> nearest_gpus;
  friend bool operator==(const PortDescription&, const PortDescription&) = default;
};

/// A node's description of itself, published in the Extra field of its record in Slurm. Made by
/// src/topo on the node; read by Fabric. Every part may be missing.
struct NodeDescription {
  std::vector<GpuDescription> gpus;  ///< by GPU index
  /// Link between any two GPUs that are not in `links`; its a and b are unused.
  GpuLink usual_link;
  std::vector<GpuLink> links;  ///< links of the other pairs, with a < b
  std::vector<PortDescription> ports;
  std::string leaf;  ///< switch of its first port; empty: not known

  /// Returns the link between two different GPUs.
  GpuLink link(int a, int b) const noexcept;
  /// Returns the bandwidth of all ports together, bytes a second, one direction; 0: not known.
  double network_bytes_per_s() const noexcept;
  friend bool operator==(const NodeDescription&, const NodeDescription&) = default;

  /// Writes the compact JSON form that is published (docs/topology.md): about 700 bytes for 8 GPUs
  /// and 8 ports.
  Json to_json() const;
  /// Reads the compact form. The error names the fault. Ignores unknown keys: a later version may
  /// add some.
  static Result<NodeDescription> from_json(const Json& json);
};

/// Reads the description from an Extra field: member "swell" of a JSON object. Returns nothing if
/// the field is empty, is not a JSON object (another tool's text), or has no such member. Returns
/// an error if the member is invalid.
Result<std::optional<NodeDescription>> read_extra(std::string_view extra);

/// Returns the text of an Extra field with the description added; keeps other tools' members.
/// Returns an error if the field's text is not a JSON object: it belongs to another tool and must
/// stay.
Result<std::string> write_extra(std::string_view extra, const NodeDescription& description);

}  // namespace swell::cluster
