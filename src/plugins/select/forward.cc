// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/forward.h"

#include <dlfcn.h>

#include <slurm/slurm_errno.h>

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {

HIDDEN std::uint32_t swell_node_table_changes = 0;

/// Returns an error: called through the slots of symbols that cons_tres does not have.
static int not_there() noexcept { return SLURM_ERROR; }

#define FORWARD(name) HIDDEN void* swell_to_##name = reinterpret_cast<void*>(not_there);
#define COUNT_AND_FORWARD FORWARD
#include "forwarded.h"
#undef FORWARD
#undef COUNT_AND_FORWARD

}  // extern "C"

#include "plugins/select/stubs.h"

namespace swell::select {

void forward_to(void* library) noexcept {
#define FORWARD(name) \
  if (void* const symbol = dlsym(library, #name)) swell_to_##name = symbol;
#define COUNT_AND_FORWARD FORWARD
#include "forwarded.h"
}

std::uint32_t node_table_changes() noexcept {
  return __atomic_load_n(&swell_node_table_changes, __ATOMIC_RELAXED);
}

}  // namespace swell::select
