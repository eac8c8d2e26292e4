// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/policy/node_set.h"
#include "core/result.h"

namespace swell::controller {

/// A node feature constraint, as users write it after --constraint.
///
///     a&b  a,b     both            a|b    either, each node as it likes
///     [a|b]        the same one on all nodes of the job
///     a*4          on at least 4 of its nodes
///     (a|b)&c      parentheses
///
/// & and | side by side without parentheses are an error, since Slurm reads them from left to
/// right; so are counts within [], and whatever else is not listed here.
class Constraint {
 public:
  /// Error: a sentence with the text and what is not understood in it.
  static Result<Constraint> parse(std::string_view text);

  /// Nodes of a feature, in any numbering.
  using Nodes = std::function<const policy::NodeSet&(const std::string& feature)>;
  /// Nodes on which a job may be lent GPUs that runs on `own`: those on which Slurm might have
  /// started it as well. A count holds for each of them.
  policy::NodeSet lendable(const Nodes& nodes, const policy::NodeSet& own) const;
  /// Nodes on which a pending job may start, among `all`: some too many rather than too few.
  policy::NodeSet possible(const Nodes& nodes, const policy::NodeSet& all) const;

 private:
  struct Term {
    enum class Kind { feature, all_of, any_of, same } kind = Kind::feature;
    std::string feature;
    bool counted = false;  ///< on some nodes only
    std::vector<Term> terms;
  };
  class Parser;
  struct Reading {
    const Nodes& nodes;
    const policy::NodeSet* own;  ///< null: of a pending job
    const policy::NodeSet* all;
  };
  static policy::NodeSet read(const Term& term, const Reading& reading);

  std::shared_ptr<const Term> root_;
};

}  // namespace swell::controller
