// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/node_extra.h"

#include <cerrno>
#include <fmt/format.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "core/count_of.h"
#include "slurm/live_slurm.h"
#include "slurm/loaded.h"

namespace swell::slurm {

namespace {

bool same(const char* value, const std::string& text) { return value != nullptr && text == value; }

}  // namespace

Result<NodeExtra> load_node_extra(const std::string& name, const std::string& host) {
  LoadedNodes message = nullptr;
  // Load one node by name, because all nodes of a large cluster may start at the same time. The
  // whole table is needed only if nodes have other names than their hosts.
  const std::string& likely = name.empty() ? host : name;
  node_info_msg_t* answer = nullptr;
  if (slurm_load_node_single(&answer, const_cast<char*>(likely.c_str()), SHOW_ALL) == SLURM_SUCCESS)
    message.reset(answer);
  else if (errno != ESLURM_INVALID_NODE_NAME)
    return Error(fmt::format("slurm_load_node_single: {}", slurm_reason(errno)));
  if (message != nullptr && message->record_count == 0) message.reset();
  if (message == nullptr && name.empty()) {
    if (slurm_load_node(0, &answer, SHOW_ALL) != SLURM_SUCCESS)
      return Error(fmt::format("slurm_load_node: {}", slurm_reason(errno)));
    message.reset(answer);
  }
  NodeExtra result;
  int count = 0;
  for (std::uint32_t i = 0; message != nullptr && i < message->record_count; ++i) {
    const node_info_t& node = message->node_array[i];
    if (node.name == nullptr ||
        (name.empty() ? !same(node.node_hostname, host) && !same(node.name, host)
                      : !same(node.name, name)))
      continue;
    result = {node.name, node.extra != nullptr ? node.extra : ""};
    ++count;
  }
  if (count == 1) return result;
  if (!name.empty()) return Error(fmt::format("Slurm has no node \"{}\"", name));
  if (count == 0)
    return Error(fmt::format("Slurm has no node on host \"{}\"; name it with --node", host));
  return Error(fmt::format("Slurm has {} on host \"{}\"; name one with --node",
                           count_of(count, "node"), host));
}

Result<void> set_node_extra(const std::string& node, const std::string& extra) {
  update_node_msg_t update;
  slurm_init_update_node_msg(&update);
  update.node_names = const_cast<char*>(node.c_str());
  update.extra = const_cast<char*>(extra.c_str());
  if (slurm_update_node(&update) == SLURM_SUCCESS) return {};
  return Error(fmt::format("slurm_update_node: {}", slurm_reason(errno)));
}

}  // namespace swell::slurm
