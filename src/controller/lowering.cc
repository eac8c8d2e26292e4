// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/lowering.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/count_of.h"
#include "core/saturating.h"
#include "core/slurm_text/gres.h"

namespace swell::controller {

namespace {

/// One submission while it is lowered.
class Lowering {
 public:
  Lowering(const SubmitRequest& request, int basic, int min)
      : request_(request),
        basic_(basic),
        min_(min),
        nodes_(std::max(request.min_nodes, 1)),
        tasks_(request.tasks) {}

  Result<LoweredRequest> run() {
    if (!request_.tres_per_socket.empty())
      return refused("it does not go with --gpus-per-socket; ask by --gres or --gpus-per-node");
    if (request_.max_nodes > nodes_)
      return refused(fmt::format("it needs a fixed number of nodes, such as --nodes={}", nodes_));
    const int per_node = slurm_text::sum_gpus(request_.tres_per_node).count;
    const bool in_all = slurm_text::sum_gpus(request_.tres_per_job).count > 0;
    const bool per_task = slurm_text::sum_gpus(request_.tres_per_task).count > 0;
    if (auto agrees = check_per_node(per_node); !agrees) return agrees.error();
    if (in_all) {
      const auto list = slurm_text::with_gpus(request_.tres_per_job, min_);
      if (!list) return refused("it needs one kind of GPUs in --gpus");
      lowered_.tres_per_job = *list;
      if (per_node == 0 && min_ < nodes_)
        return refused(fmt::format("its {} need a GPU each, so min must be at least {}",
                                   count_of(nodes_, "node"), nodes_));
    } else if (per_task) {
      tasks_ = std::max(tasks_, 1);  // GPUs are counted by tasks
    }
    if (auto done = per_node > 0 ? lower_nodes(per_node) : Result<void>{}; !done)
      return done.error();
    if (per_task && per_node == 0 && nodes_ > 1)
      return refused("with --gpus-per-task it needs one node, or --gpus-per-node as well");
    return finish(per_node > 0 || nodes_ == 1);
  }

 private:
  Error refused(const std::string& why) const {
    return Error(fmt::format("--elastic: min={} cannot be used with this request: {}", min_, why));
  }

  /// GPUs of each node are what is changed, so they must be as many as are counted in another way:
  /// otherwise a min below the one number may be above the other.
  Result<void> check_per_node(int per_node) const {
    if (per_node == 0) return {};
    const int on_nodes = saturated_int(saturating_product(per_node, nodes_));
    if (on_nodes == basic_) return {};
    const std::string where = nodes_ == 1 ? std::string("one node") : count_of(nodes_, "node");
    const std::string advice =
        basic_ % per_node == 0 ? fmt::format("write --nodes={}, or ", basic_ / per_node) : "";
    return refused(
        fmt::format("it asks for {} on its {}, and for {} in another way; {}ask in one way",
                    count_of(on_nodes, "GPU"), where, basic_, advice));
  }

  /// Fewer nodes where the request has several, or fewer GPUs on its only one.
  Result<void> lower_nodes(int per_node) {
    if (nodes_ == 1) {
      const auto list = slurm_text::with_gpus(request_.tres_per_node, min_);
      if (!list) return refused("it needs one kind of GPUs in --gres or --gpus-per-node");
      lowered_.tres_per_node = *list;
      return {};
    }
    if (min_ % per_node != 0)
      return refused(fmt::format("on {} it must be a multiple of the {} of each, such as min={}",
                                 count_of(nodes_, "node"), count_of(per_node, "GPU"),
                                 std::max(min_ / per_node, 1) * per_node));
    if (!request_.required_nodes.empty())
      return refused("it does not go with --nodelist on several nodes");
    lowered_.nodes = min_ / per_node;
    return {};
  }

  /// The share of a count; what cannot be divided is rounded up.
  std::int64_t share(std::int64_t count) const {
    const std::int64_t product = saturating_product(count, min_);
    return product / basic_ + (product % basic_ != 0 ? 1 : 0);
  }

  /// `same_place`: the nodes that stay are known, and what is asked for on each.
  Result<LoweredRequest> finish(bool same_place) {
    if (tasks_ > 0) {
      if (saturating_product(tasks_, min_) % basic_ != 0)
        return refused(fmt::format("its {} cannot be divided by {} of {}",
                                   tasks_ == 1 ? std::string("one task") : count_of(tasks_, "task"),
                                   min_, count_of(basic_, "GPU")));
      lowered_.tasks = static_cast<int>(share(tasks_));
    }
    if (request_.min_cpus > 0) lowered_.min_cpus = static_cast<int>(share(request_.min_cpus));
    if (nodes_ > 1 || !same_place) return lowered_;
    if (request_.tasks_per_node > 0) {
      if (saturating_product(request_.tasks_per_node, min_) % basic_ != 0)
        return refused(fmt::format("its {} a node cannot be divided by {} of {}",
                                   count_of(request_.tasks_per_node, "task"), min_,
                                   count_of(basic_, "GPU")));
      lowered_.tasks_per_node = static_cast<int>(share(request_.tasks_per_node));
    }
    if (request_.min_cpus_per_node > 0)
      lowered_.min_cpus_per_node = static_cast<int>(share(request_.min_cpus_per_node));
    if (request_.memory_mib_per_node > 0)
      lowered_.memory_mib_per_node = share(request_.memory_mib_per_node);
    return lowered_;
  }

  const SubmitRequest& request_;
  const int basic_, min_, nodes_;
  int tasks_;  ///< 0: they make no difference
  LoweredRequest lowered_;
};

}  // namespace

Result<LoweredRequest> lower(const SubmitRequest& request, int basic, int min) {
  return Lowering(request, basic, min).run();
}

}  // namespace swell::controller
