// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/absence.h"

#include <slurm/slurm_errno.h>
#include <utility>

namespace swell::select {

Absent absent_among(const std::vector<slurm::NodeRecord>& nodes) {
  Absent absent;
  for (const slurm::NodeRecord& node : nodes) {
    if (node.registered || node.gpus.empty()) continue;
    if (absent.count++ > 0) absent.names += ',';
    absent.names += node.name;
  }
  return absent;
}

AbsenceWatch::News AbsenceWatch::see(Absent absent, Clock::time_point now) {
  const bool waited = waits(), had_none = absent_.count == 0;
  if (absent.count > absent_.count) {
    since_ = now;
    gave_up_ = false;
  }
  absent_ = std::move(absent);
  if (absent_.count > 0) return had_none ? News::waits : News::none;
  return waited ? News::all_there : News::none;
}

AbsenceWatch::News AbsenceWatch::pass(Clock::time_point now) {
  if (!waits() || now - since_ <= kLimit) return News::none;
  gave_up_ = true;
  return News::gave_up;
}

Absence::~Absence() { forget(); }

void Absence::forget() {
  if (present_ != nullptr) api_.free(&present_);
  absent_.reset();
}

/// Returns the nodes that are present in the present node table; null if they cannot be found out.
const Bitmap* Absence::present(const std::shared_ptr<const Absent>& absent,
                               std::uint32_t node_table) {
  if (absent == absent_ && node_table == node_table_) return present_;
  forget();
  api_.from_names(absent->names.c_str(), true, &present_, nullptr);
  if (present_ == nullptr) return nullptr;
  api_.invert(present_);
  absent_ = absent;
  node_table_ = node_table;
  return present_;
}

int Absence::test(const JobTest& call, const std::shared_ptr<const Absent>& absent,
                  std::uint32_t node_table) {
  if (!call.starts_now() || call.nodes == nullptr || !absent) return base_(call);
  if (!absent->known) return ESLURM_NODES_BUSY;
  const Bitmap* const present_nodes = absent->count > 0 ? present(absent, node_table) : nullptr;
  // Bitmap functions compare only up to the length of one operand, so both must have the same
  // length.
  if (present_nodes == nullptr || api_.size(present_nodes) != api_.size(call.nodes))
    return base_(call);
  const std::int32_t left = api_.count_common(call.nodes, present_nodes);
  if (left == api_.count(call.nodes)) return base_(call);
  if (left == 0 || static_cast<std::uint32_t>(left) < call.min_nodes) return ESLURM_NODES_BUSY;
  const ScopedBitmap candidates(api_, api_.copy(call.nodes));
  if (candidates.get() == nullptr) return ESLURM_NODES_BUSY;
  api_.keep_common(call.nodes, present_nodes);
  const int result = base_(call);
  if (result != 0) api_.assign(call.nodes, candidates.get());
  return result;
}

}  // namespace swell::select
