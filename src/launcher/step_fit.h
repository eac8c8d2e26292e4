// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace swell::launcher {

/// Returns in words how a step differs from one with `workers` tasks on each of `nodes` nodes;
/// empty if it does not differ. `tasks_per_node`: the step's SLURM_STEP_TASKS_PER_NODE, such as
/// "4(x2)"; empty: it is not known. `is_listed`: whether the step was asked for on this node.
std::string step_misfit(int nodes, int workers, const std::string& tasks_per_node,
                        const std::string& node, bool is_listed);

/// Returns in words how the GPUs of a step on `node` differ from the `gpus` that it was asked for
/// there; empty if they do not differ, or if this is not known. `on_node`: the step's
/// SLURM_GPUS_ON_NODE, empty if it has none; `sees_any`: whether other variables say that it has
/// GPUs.
std::string gpus_misfit(int gpus, const std::string& on_node, bool sees_any,
                        const std::string& node);

/// Returns, for people, that `workers` workers on `node` have several MIG instances in
/// CUDA_VISIBLE_DEVICES (`visible`), of which CUDA shows each process only the first; empty: they
/// do not.
std::string mig_note(int workers, const std::string& visible, const std::string& node);

/// Returns why SLURM_LOCALID does not tell a worker of `workers` on `node` from the others, as text
/// for people; empty: it does. `local`: null if the worker has none.
std::string local_id_misfit(int workers, const char* local, const std::string& node);

/// The same, for two workers of a node that have one SLURM_LOCALID.
std::string same_local_id(int local, const std::string& node);

}  // namespace swell::launcher
