// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/srun_option.h"

namespace swell::launcher {

namespace {

using enum SrunOption::Argument;
using enum SrunOption::Use;

constexpr SrunOption kTable[] = {
    // how many, with what
    {'n', "ntasks", required, layout},
    {'N', "nodes", required, layout},
    {0, "ntasks-per-node", required, layout},
    {'c', "cpus-per-task", required, layout},
    {'G', "gpus", required, layout},
    {0, "gpus-per-node", required, layout},
    {0, "gpus-per-task", required, layout},
    {0, "gres", required, layout},
    {'K', "kill-on-bad-exit", optional, layout},
    {'W', "wait", required, layout},
    {0, "cpus-per-gpu", required, layout},
    {'x', "exclude", required, layout},
    {0, "gpu-bind", required, layout},
    {0, "jobid", required, layout},
    {'w', "nodelist", required, layout},
    {0, "ntasks-per-gpu", required, layout},
    {0, "ntasks-per-tres", required, layout},
    {'r', "relative", required, layout},
    {0, "tres-bind", required, layout},
    {0, "tres-per-task", required, layout},
    {'e', "error", required, layout},
    {'o', "output", required, layout},

    // how a step runs
    {0, "acctg-freq", required, each},
    {0, "comment", required, each},
    {0, "container", required, each},
    {0, "container-id", required, each},
    {0, "cpu-bind", required, each},
    {0, "cpu-freq", required, each},
    {0, "cpu_bind", required, each},
    {0, "debugger-test", none, each},
    {'D', "chdir", required, each},
    {0, "epilog", required, each},
    {0, "exact", none, each},
    {0, "exclusive", optional, each},
    {0, "export", required, each},
    {0, "gpu-freq", required, each},
    {0, "hint", required, each},
    {'J', "job-name", required, each},
    {'l', "label", none, each},
    {0, "mem-bind", required, each},
    {0, "mem_bind", required, each},
    {0, "mpi", required, each},
    {0, "network", required, each},
    {0, "open-mode", required, each},
    {'O', "overcommit", none, each},
    {0, "overlap", none, each},
    {'s', "oversubscribe", none, each},
    {0, "profile", required, each},
    {0, "prolog", required, each},
    {0, "propagate", optional, each},
    {'Q', "quiet", none, each},
    {0, "quit-on-interrupt", none, each},
    {0, "slurmd-debug", required, each},
    {0, "task-epilog", required, each},
    {0, "task-prolog", required, each},
    {'T', "threads", required, each},
    {0, "threads-per-core", required, each},
    {'t', "time", required, each},
    {'u', "unbuffered", none, each},
    {'v', "verbose", none, each},
    {'X', "disable-status", none, each},

    // what was asked for; inside an allocation srun ignores most of these
    {'A', "account", required, basic},
    {'b', "begin", required, basic},
    {0, "bb", required, basic},
    {0, "bbf", required, basic},
    {'B', "extra-node-info", required, basic},
    {0, "cluster-constraint", required, basic},
    {'C', "constraint", required, basic},
    {0, "contiguous", none, basic},
    {0, "cores-per-socket", required, basic},
    {'S', "core-spec", required, basic},
    {0, "deadline", required, basic},
    {0, "delay-boot", required, basic},
    {'d', "dependency", required, basic},
    {'m', "distribution", required, basic},
    {'E', "preserve-env", none, basic},
    {0, "extra", required, basic},
    {0, "gres-flags", required, basic},
    {'H', "hold", none, basic},
    {'I', "immediate", optional, basic},
    {'i', "input", required, basic},
    {'k', "no-kill", optional, basic},
    {'L', "licenses", required, basic},
    {0, "mail-type", required, basic},
    {0, "mail-user", required, basic},
    {0, "mcs-label", required, basic},
    {0, "mem", required, basic},
    {0, "mem-per-cpu", required, basic},
    {0, "mem-per-gpu", required, basic},
    {0, "mincpus", required, basic},
    {0, "nice", optional, basic},
    {0, "ntasks-per-core", required, basic},
    {0, "ntasks-per-socket", required, basic},
    {'p', "partition", required, basic},
    {0, "power", required, basic},
    {0, "prefer", required, basic},
    {0, "priority", required, basic},
    {'q', "qos", required, basic},
    {0, "reboot", none, basic},
    {0, "reservation", required, basic},
    {0, "resv-ports", optional, basic},
    {0, "signal", required, basic},
    {0, "sockets-per-node", required, basic},
    {0, "spread-job", none, basic},
    {0, "switches", required, basic},
    {0, "thread-spec", required, basic},
    {0, "time-min", required, basic},
    {0, "tmp", required, basic},
    {0, "use-min-nodes", none, basic},
    {0, "wckey", required, basic},

    // would act on swell-worker in place of the program
    {0, "bcast", optional, left_out},
    {0, "bcast-exclude", required, left_out},
    {0, "compress", optional, left_out},
    {0, "ctrl-comm-ifhn", required, left_out},
    {0, "send-libs", optional, left_out},

    // another allocation, or another way to run a program
    {'M', "clusters", required, plain},
    {0, "gpus-per-socket", required, plain},
    {'h', "help", none, plain},
    {0, "het-group", required, plain},
    {0, "interactive", none, plain},
    {0, "multi-prog", none, plain},
    {'Z', "no-allocate", none, plain},
    {0, "pty", optional, plain},
    {0, "stepmgr", none, plain},
    {0, "test-only", none, plain},
    {0, "usage", none, plain},
    {'V', "version", none, plain},
    {0, "whole", none, each},
    {0, "x11", optional, plain},
};

}  // namespace

std::span<const SrunOption> srun_options() { return kTable; }

const SrunOption* find_option(std::string_view long_name) {
  for (const SrunOption& option : kTable)
    if (option.name == long_name) return &option;
  const SrunOption* found = nullptr;
  for (const SrunOption& option : kTable) {
    if (!option.name.starts_with(long_name) || long_name.empty()) continue;
    if (found != nullptr) return nullptr;
    found = &option;
  }
  return found;
}

const SrunOption* find_option(char letter) {
  for (const SrunOption& option : kTable)
    if (option.letter == letter) return &option;
  return nullptr;
}

}  // namespace swell::launcher
