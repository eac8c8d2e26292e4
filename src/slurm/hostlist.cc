// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/hostlist.h"

#include <string_view>

#include "core/slurm_text/hostlist.h"

namespace swell::slurm {

std::vector<std::string> expand_hosts(const char* expression) {
  if (expression == nullptr || *expression == '\0') return {};
  // Fast path: in a large queue most expressions name a single node.
  if (std::string_view(expression).find_first_of("[,") == std::string_view::npos)
    return {expression};
  auto names = slurm_text::expand_hostlist(expression);
  return names ? *std::move(names) : std::vector<std::string>();
}

}  // namespace swell::slurm
