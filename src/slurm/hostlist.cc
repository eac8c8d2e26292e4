// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/hostlist.h"

#include <cstdlib>
#include <slurm/slurm.h>

namespace swell::slurm {

std::vector<std::string> expand_hosts(const char* expression) {
  std::vector<std::string> names;
  if (expression == nullptr || *expression == '\0') return names;
  // Most expressions of a large queue name one node: no need to ask Slurm's parser.
  const std::string text(expression);
  if (text.find_first_of("[,") == std::string::npos) return {text};
  hostlist_t list = slurm_hostlist_create(expression);
  if (list == nullptr) return names;
  while (char* name = slurm_hostlist_shift(list)) {
    names.emplace_back(name);
    std::free(name);
  }
  slurm_hostlist_destroy(list);
  return names;
}

}  // namespace swell::slurm
