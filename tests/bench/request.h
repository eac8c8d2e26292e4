// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <unistd.h>
#include <utility>

#include <slurm/slurm.h>

#include "slurm/versions.h"

namespace swell::bench {

struct Allocation {
  std::uint32_t id = 0;  ///< 0: Slurm rejected the request, see errno
  std::string nodes;     ///< host list of a running allocation
};

/// A request for `gpus` GPUs on each of `nodes` nodes, over Slurm's public API. Callers may set
/// more in `description`, whose texts are members of this class.
class Request {
 public:
  job_desc_msg_t description;

  Request(std::string name, int nodes, int gpus, unsigned minutes)
      : name_(std::move(name)), gpus_("gres:gpu:" + std::to_string(gpus)) {
    gethostname(host_, sizeof host_ - 1);
    slurm_init_job_desc_msg(&description);
    description.name = name_.data();
    description.user_id = getuid();
    description.group_id = getgid();
    description.min_nodes = description.max_nodes = static_cast<std::uint32_t>(nodes);
    description.tres_per_node = gpus_.data();
    description.time_limit = minutes;
    description.work_dir = folder_.data();
    description.alloc_node = host_;
  }
  Request(const Request&) = delete;

  /// Requests an allocation without processes.
  Allocation allocate() {
    resource_allocation_response_msg_t* response = nullptr;
    if (slurm_allocate_resources(&description, &response) != SLURM_SUCCESS) return {};
    Allocation made;
    if (response->node_list != nullptr) made.nodes = response->node_list;
    made.id = slurm::job_id_of(*response);
    slurm_free_resource_allocation_response_msg(response);
    return made;
  }

 private:
  std::string name_, gpus_, folder_ = "/";
  char host_[256] = "";
};

}  // namespace swell::bench
