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

/// Number of the job that a user named: 31, or 27_1 for task 1 of array 27, which `find` is asked
/// for.
Result<slurm::JobId> job_of(const std::string& word, const FindTask& find);

/// The same, with slurmctld asked.
Result<slurm::JobId> job_of(const std::string& word);

/// Says what is wrong with a word that names no job, for the command line; empty: nothing.
std::string wrong_job_word(const std::string& word);

}  // namespace swell::tools
