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
  for (const std::vector<std::string>& wrapper :
       std::vector<std::vector<std::string>>{{"env", "A=1", "nice", "-n", "5"},
                                             {"uv", "run"},
                                             {"uv", "run", "--with", "torch"},
                                             {"conda", "run", "-n", "env"},
                                             {"timeout", "9"},
                                             {"timeout", "-s", "TERM", "-k", "5", "2h"},
                                             {"taskset", "-c", "0-7"},
                                             {"setsid", "--wait"},
                                             {"ionice", "-c", "2", "-n", "7"},
                                             {"chrt", "-f", "10"}}) {
    std::vector<std::string> command = wrapper;
    command.insert(command.end(), {"torchrun", "t.py"});
    cr_assert(refused_with(command, "python t.py"), "%s", wrapper.front().c_str());
  }
  cr_assert(refused_with({"accelerate-launch", "t.py"}, "python t.py"));
  cr_assert(refused_with({"ft_launcher", "--nproc-per-node=8", "t.py"}, "python t.py"));
}

Test(other_launcher, the_text_of_a_shell_is_read_as_well) {
  for (const char* text :
       {"torchrun t.py", "exec torchrun t.py", "A=1 B='2 3' torchrun t.py", "cd x && torchrun t.py",
        "module load cuda; torchrun t.py && ./upload", "set -e\ntorchrun \"t.py\"",
        "uv run torchrun t.py", "true|torchrun t.py"}) {
    cr_assert(refused_with({"bash", "-c", text}, "python t.py"), "%s", text);
    cr_assert(refused_with({"timeout", "9", "/bin/sh", "-e", "-lc", text}, "python t.py"), "%s",
              text);
  }
  for (const char* text :
       {"python t.py", "echo 'a; torchrun t.py'", "echo \"x && torchrun t.py\"",
        "echo a\\;torchrun", "if ((X)); then torchrun t.py; else python t.py; fi",
        "srun hostname; python t.py", "for i in 1 2; do torchrun t.py; done", "torchrun_like t.py",
        "", ";;", "'"})
    cr_assert_not(launcher_in({"bash", "-c", text}).has_value(), "%s", text);
  cr_assert_not(launcher_in({"bash", "torchrun"}).has_value());
  cr_assert_not(launcher_in({"bash", "-c"}).has_value());
  cr_assert_not(launcher_in({"bash", "--norc", "train.sh", "-c", "torchrun t.py"}).has_value());
}

Test(other_launcher, ordinary_programs_are_not) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"python", "train.py"},
                                             {"python", "-m", "train"},
                                             {"accelerate", "config"},
                                             {"./torchrun_like.sh"},
                                             {"env", "A=1"},
                                             {"timeout", "9", "python", "train.py"},
                                             {"uv", "run", "train.py"},
                                             {"uv", "sync", "torchrun"},
                                             {"python", "train.py", "-m", "torch.distributed.run"},
                                             {"python", "-c", "x", "-m", "torch.distributed.run"},
                                             {}})
    cr_assert_not(launcher_in(command).has_value());
}
