// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::tools {

/// Finds the number of a task of a job array, as slurm::find_array_task() does.
using FindTask = std::function<Result<slurm::JobId>(slurm::JobId array, std::uint32_t task)>;

/// Returns the number of the job that a user named: 31, or 27_1 for task 1 of array 27, which
/// `find` looks up.
Result<slurm::JobId> job_of(const std::string& word, const FindTask& find);

/// The same; asks slurmctld for tasks of arrays.
Result<slurm::JobId> job_of(const std::string& word);

/// Returns what is wrong with a word that names no job, for the command line; empty: it names one.
std::string wrong_job_word(const std::string& word);

}  // namespace swell::tools
