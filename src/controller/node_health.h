// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "control/messages.h"
#include "core/json.h"
#include "core/policy/view.h"
#include "core/result.h"

namespace swell::controller {

/// Nodes on which companions have failed. Two failures of different jobs within the site's
/// `withhold_s` keep a node from being lent for as long. A failure is an agent's word: so jobs of
/// one user alone keep one node at a time from all users, and further ones from that user alone.
/// A job's own options may let srun fail before a worker starts: such failures of one user's jobs
/// keep no node from others.
/// Times are seconds since 1970.
class NodeHealth {
 public:
  enum class Stage { launch, run };  ///< whether a worker of the companion had started

  /// A companion of `job`, which belongs to `uid`, has failed on the node, one of `nodes_in_all`.
  /// At most a quarter of the nodes, but one, are kept from all users; a node that one user's jobs
  /// keep gives way to one that jobs of two do. Returns a sentence where the node is withheld from
  /// now on; empty: it is not, or was before.
  std::string failed(const std::string& node, control::JobId job, uid_t uid, std::time_t at,
                     std::size_t nodes_in_all, double withhold_s, Stage stage = Stage::run);
  /// Forgets what is over. Returns whether a node may be lent again.
  bool pass(std::time_t now, double withhold_s);

  /// Until when the node is not lent to the user's jobs; 0: it may be lent.
  std::time_t withheld_until(const std::string& node, uid_t uid, std::time_t now) const;
  /// Nodes that are withheld, for `swell top`: an array of {"node", "for_s"}, where they are lent
  /// to all but one user with his "uid"; of many, some.
  Json shown(std::time_t now) const;
  /// Has the view's nodes lent to nobody, or not to the users, that they are withheld from.
  void apply(policy::ClusterView& view, std::time_t now) const;

  Json to_json() const;
  static Result<NodeHealth> from_json(const Json& json);

  friend bool operator==(const NodeHealth&, const NodeHealth&) = default;

 private:
  struct Failure {
    control::JobId job = 0;
    uid_t uid = 0;
    std::time_t at = 0;
    Stage stage = Stage::run;
    friend bool operator==(const Failure&, const Failure&) = default;
  };
  struct Node {
    std::vector<Failure> failures;  ///< the newest last
    std::time_t until = 0;          ///< lent to nobody
    std::optional<uid_t> by_one;    ///< while only this user's jobs say why
    std::map<uid_t, std::time_t> until_for;
    friend bool operator==(const Node&, const Node&) = default;
  };
  static bool forget(Node& node, std::time_t now, std::time_t kept_s);

  std::map<std::string, Node> nodes_;
};

}  // namespace swell::controller
