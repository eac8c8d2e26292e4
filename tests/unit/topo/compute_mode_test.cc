// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/compute_mode.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <dlfcn.h>

using namespace swell;

namespace {

std::vector<int> found_of(const char* modes) {
  // Whoever opens the library by its name then gets this one, which bears that name.
  static void* const library = dlopen(SWELL_STAND_IN_NVML, RTLD_NOW | RTLD_LOCAL);
  cr_assert_not_null(library, "%s", dlerror());
  setenv("STAND_IN_COMPUTE_MODES", modes, 1);
  return one_program_gpus();
}

}  // namespace

Test(compute_mode, gpus_that_refuse_a_second_program_are_found) {
  cr_assert(found_of("0,0").empty());
  cr_assert(found_of("").empty());
  cr_assert_eq(found_of("0,3,0,3"), (std::vector<int>{1, 3}));
  cr_assert_eq(found_of("2"), (std::vector<int>{0}), "PROHIBITED takes none at all");
}

Test(compute_mode, the_sentence_names_the_gpus) {
  cr_assert_eq(one_program_text({}), std::string());
  cr_assert_eq(one_program_text({1}),
               std::string("GPU 1 is in compute mode EXCLUSIVE_PROCESS, "
                           "which refuses the second program of a live switch"));
  cr_assert_eq(one_program_text({0, 1, 3}).substr(0, 14), std::string("GPUs 0-1,3 are"));
}
