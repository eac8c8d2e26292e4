// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "controller/constraint.h"
#include "core/policy/node_set.h"
#include "slurm/records.h"

namespace swell::controller {

/// Reads what users write about nodes (host lists, constraints) as sets of a view's nodes. Equal
/// texts are read once and share one set; what texts may cost in all is bounded.
class NodeLists {
 public:
  /// `nodes` are the view's, in their order; both outlive the object. `all` has those that are not
  /// in the view as well.
  NodeLists(const std::vector<const slurm::NodeRecord*>& nodes,
            const std::vector<slurm::NodeRecord>& all);

  /// Index of the node; -1: not in the view.
  policy::NodeIndex index_of(std::string_view name) const;

  /// The nodes of a host list.
  struct Named {
    policy::NodeSet nodes;
    bool all_known = true;  ///< whether all of them are in the view
  };
  /// Returns null for a list that names more than twice the cluster's nodes, and for a pending
  /// job's where those read before have named kMaxNames.
  const Named* of_running(const slurm::SharedText& list);
  const Named* of_pending(const slurm::SharedText& list);

  /// Nodes on which the job cannot start by its --constraint and --exclude; nothing: as
  /// of_pending(). A constraint that is not understood leaves out none.
  std::optional<policy::NodeSet> ruled_out_for(const slurm::JobRecord& pending);
  /// Nodes on which a running job is lent nothing, by the same. A constraint that is not understood
  /// leaves out all.
  policy::NodeSet not_lent_to(const slurm::JobRecord& running);

  /// Names that the host lists of a view's pending jobs may stand for: reading them takes about
  /// 0.2 s. Lists of running jobs are bounded by the GPUs that there are.
  static constexpr long kMaxNames = 2'000'000;

 private:
  const Named* read(const slurm::SharedText& list, long& names_left);
  const policy::NodeSet& with_feature(const std::string& feature) const;

  std::unordered_map<std::string_view, policy::NodeIndex> index_;
  std::unordered_map<std::string, policy::NodeSet> by_feature_;
  std::size_t nodes_in_all_;
  policy::NodeSet all_;  ///< of the view
  /// Nodes outside the view, which are numbered behind those of the view: a job's own may be.
  std::unordered_map<std::string_view, policy::NodeIndex> outside_;
  std::unordered_map<std::string, Named> named_;                ///< by text
  std::unordered_map<std::string, policy::NodeSet> possible_;   ///< where pending ones may start
  std::unordered_map<std::string, policy::NodeSet> ruled_out_;  ///< by constraint and list
  long names_left_ = kMaxNames;
};

}  // namespace swell::controller
