// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string_view>

/// Features of a Slurm that runs somewhere, by its version such as "22.05.8"; an empty version
/// counts as the oldest supported one. versions.h describes the version for which this is built.
/// Used by `swell doctor`.
namespace swell::slurm {

/// Returns true from 23.02 on: the signal before preemption is set in PreemptParameters; in older
/// versions in SlurmctldParameters.
bool has_preempt_parameters(std::string_view version) noexcept;

/// Returns true from 22.11 on, as far as is known (seen on 26.05, not on 22.05): with
/// preempt/partition_prio, jobs of the companions' tier are refused at once while any job of a
/// higher tier waits for the same nodes.
bool higher_tiers_hold_companions_up(std::string_view version) noexcept;

/// Returns true from 24.11 on, as far as is known: a pending job whose GPU type is changed requests
/// the new type alone. On 22.05 it requests both, and Slurm holds it (BadConstraints).
bool changes_gpu_types(std::string_view version) noexcept;

}  // namespace swell::slurm
