// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/bitmaps.h"

#include <dlfcn.h>
#include <type_traits>

namespace swell::select {

const char* Bitmaps::look_up() noexcept {
  const char* missing = nullptr;
  auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  find(copy, "slurm_bit_copy");
  find(free, "slurm_bit_free");
  find(assign, "slurm_bit_copybits");
  find(keep_common, "slurm_bit_and");
  find(add, "slurm_bit_or");
  find(invert, "slurm_bit_not");
  find(first_of, "slurm_bit_pick_cnt");
  find(count, "slurm_bit_set_count");
  find(count_common, "slurm_bit_overlap");
  find(size, "slurm_bit_size");
  find(from_names, "node_name2bitmap");
  find(idle, "idle_node_bitmap");
  return missing;
}

}  // namespace swell::select
