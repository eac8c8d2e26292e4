// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/ledger.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::sim {

Ledger::Ledger(const cluster::Cluster& cluster) : up_(cluster.nodes().size(), true) {
  for (const cluster::Node& node : cluster.nodes()) {
    const std::size_t gpus = node.gpus.size();
    all_.push_back(gpus >= 64 ? ~plan::GpuMask{0} : (plan::GpuMask{1} << gpus) - 1);
    holders_.emplace_back(gpus);
  }
  free_ = all_;
  lent_.assign(all_.size(), 0);
}

bool Ledger::has_free(const GpuSet& set) const noexcept {
  return std::all_of(set.begin(), set.end(), [&](const NodeGpus& part) {
    return part.node >= 0 && part.node < nodes() && (part.gpus & ~free(part.node)) == 0;
  });
}

void Ledger::take(const NodeGpus& part, Holder holder) {
  if (part.node < 0 || part.node >= nodes() || (part.gpus & ~free(part.node)) != 0)
    throw Broken(fmt::format("job {} would get GPUs {:#x} of node {}, of which only {:#x} are idle",
                             holder.job, part.gpus, part.node,
                             part.node >= 0 && part.node < nodes() ? free(part.node) : 0));
  free_[at(part.node)] &= ~part.gpus;
  const int taken = std::popcount(part.gpus);
  used_ += taken;
  if (holder.companion != 0) {
    lent_[at(part.node)] |= part.gpus;
    used_lent_ += taken;
  }
  for (plan::GpuMask left = part.gpus; left != 0; left &= left - 1)
    holders_[at(part.node)][static_cast<std::size_t>(std::countr_zero(left))] = holder;
}

void Ledger::give_back(const NodeGpus& part, Holder holder) {
  for (plan::GpuMask left = part.gpus; left != 0; left &= left - 1) {
    Holder& held = holders_[at(part.node)][static_cast<std::size_t>(std::countr_zero(left))];
    if (!(held == holder))
      throw Broken(fmt::format("job {} gives back GPU {} of node {}, which job {} holds",
                               holder.job, std::countr_zero(left), part.node, held.job));
    held = {};
  }
  free_[at(part.node)] |= part.gpus;
  lent_[at(part.node)] &= ~part.gpus;
  const int given = std::popcount(part.gpus);
  used_ -= given;
  if (holder.companion != 0) used_lent_ -= given;
}

void Ledger::take(const GpuSet& set, Holder holder) {
  for (const NodeGpus& part : set) take(part, holder);
}

void Ledger::give_back(const GpuSet& set, Holder holder) {
  for (const NodeGpus& part : set) give_back(part, holder);
}

}  // namespace swell::sim
