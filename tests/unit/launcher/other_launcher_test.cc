// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/other_launcher.h"

#include <criterion/criterion.h>

using namespace swell::launcher;

namespace {

bool refused_with(const std::vector<std::string>& command, const std::string& advice) {
  const auto said = launcher_in(command);
  return said && said->ends_with("Write the program alone: swellrun " + advice);
}

}  // namespace

Test(other_launcher, torchrun_and_its_like_are_refused_with_what_to_write) {
  cr_assert(refused_with({"torchrun", "--nproc_per_node=4", "train.py", "--lr", "1"},
                         "python train.py --lr 1"));
  cr_assert(refused_with({"python", "-m", "torch.distributed.run", "--standalone", "train.py"},
                         "python train.py"));
  cr_assert(refused_with(
      {"/opt/env/bin/python3.11", "-u", "-m", "torch.distributed.launch", "--use_env", "x.py"},
      "python x.py"));
  cr_assert(refused_with({"/opt/bin/torchrun", "--nnodes", "2", "-m", "pkg.train", "a"},
                         "python -m pkg.train a"));
  cr_assert(refused_with({"accelerate", "launch", "--num_processes", "2", "t.py"}, "python t.py"));
  cr_assert(refused_with({"deepspeed", "--num_gpus=2", "t.py", "--deepspeed"},
                         "python t.py --deepspeed"));
  cr_assert(refused_with({"mpirun", "-np", "4", "python", "t.py"}, "python t.py"));
  cr_assert(refused_with({"srun", "./a.out"}, "python SCRIPT [ARGUMENTS]"));
  cr_assert(refused_with({"env", "A=1", "nice", "-n", "5", "torchrun", "t.py"}, "python t.py"));
}

Test(other_launcher, ordinary_programs_are_not) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"python", "train.py"},
                                             {"python", "-m", "train"},
                                             {"accelerate", "config"},
                                             {"./torchrun_like.sh"},
                                             {"env", "A=1"},
                                             {"python", "train.py", "-m", "torch.distributed.run"},
                                             {"python", "-c", "x", "-m", "torch.distributed.run"},
                                             {}})
    cr_assert_not(launcher_in(command).has_value());
}
