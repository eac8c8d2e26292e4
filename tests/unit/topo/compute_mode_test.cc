// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/compute_mode.h"

#include <chrono>
#include <criterion/criterion.h>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

using namespace swell;

namespace {

void stand_in(const char* modes) {
  // Whoever opens the library by its name then gets this one, which bears that name.
  static void* const library = dlopen(SWELL_STAND_IN_NVML, RTLD_NOW | RTLD_LOCAL);
  cr_assert_not_null(library, "%s", dlerror());
  setenv("STAND_IN_COMPUTE_MODES", modes, 1);
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
  for (const char* unset : {"STAND_IN_MINORS", "STAND_IN_SECONDS"}) unsetenv(unset);
}

OneProgramGpus found_of(const char* modes, const char* own = "") {
  stand_in(modes);
  return one_program_gpus(own);
}

}  // namespace

Test(compute_mode, gpus_that_refuse_a_second_program_are_found) {
  cr_assert(found_of("0,0").empty());
  cr_assert(found_of("").empty());
  cr_assert(found_of("0,3,0,3") == (OneProgramGpus{{1, 3}, {}}));
  cr_assert(found_of("2,3") == (OneProgramGpus{{1}, {0}}));
}

Test(compute_mode, only_gpus_of_the_job_count) {
  cr_assert(found_of("3,0,0,2", "1-2").empty());
  cr_assert(found_of("3,0,0,2", "0,1") == (OneProgramGpus{{0}, {}}));
  cr_assert(found_of("-1,3,-1,2").exclusive == std::vector<int>{1}, "others may not be opened");
  cr_assert(found_of("0,3", "6") == (OneProgramGpus{{1}, {}}), "numbers of another kind");
  stand_in("3,0");
  setenv("STAND_IN_MINORS", "1,0", 1);
  cr_assert(one_program_gpus("0").empty(), "the driver counts in another order than Slurm");
  cr_assert(one_program_gpus("1") == (OneProgramGpus{{0}, {}}));
}

Test(compute_mode, with_mps_exclusive_gpus_take_several_programs) {
  stand_in("3,2");
  char folder[] = "/tmp/swell-mps-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  const std::string control = std::string(folder) + "/control";
  std::ofstream(control) << "";
  setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
  cr_assert(one_program_gpus() == (OneProgramGpus{{}, {1}}));
  std::filesystem::remove_all(folder);
}

Test(compute_mode, a_driver_that_does_not_answer_in_time_is_left) {
  stand_in("3");
  cr_assert(one_program_gpus_within(60, "") == (OneProgramGpus{{0}, {}}));
  setenv("STAND_IN_SECONDS", "60", 1);
  const auto begin = std::chrono::steady_clock::now();
  cr_assert(one_program_gpus_within(0.1, "").empty());
  cr_assert(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  _exit(0);  // the driver is still asked, by the library that would be closed
}

Test(compute_mode, the_sentence_names_the_gpus_and_the_mode) {
  cr_assert_eq(one_program_text({}), std::string());
  cr_assert_eq(one_program_text({{1}, {}}),
               std::string("GPU 1 is in compute mode EXCLUSIVE_PROCESS, "
                           "which refuses the second program of a live switch"));
  cr_assert_eq(one_program_text({{0, 1, 3}, {}}).substr(0, 14), std::string("GPUs 0-1,3 are"));
  cr_assert_eq(one_program_text({{1}, {2, 3}}),
               std::string("GPU 1 is in compute mode EXCLUSIVE_PROCESS, which refuses the second "
                           "program of a live switch; GPUs 2-3 are in compute mode PROHIBITED, "
                           "which refuses every program"));
}
