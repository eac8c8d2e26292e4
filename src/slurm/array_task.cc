// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/array_task.h"

#include <fmt/format.h>
#include <slurm/slurm.h>

#include "slurm/loaded.h"
#include "slurm/versions.h"

namespace swell::slurm {

Result<JobId> find_array_task(JobId array, std::uint32_t task) {
  job_info_msg_t* message = nullptr;
  if (load_job(array, &message) == SLURM_SUCCESS) {
    const LoadedJobs loaded(message);
    for (std::uint32_t i = 0; i < message->record_count; ++i) {
      const job_info_t& record = message->job_array[i];
      if (record.array_job_id == array && record.array_task_id == task) return job_id_of(record);
    }
  }
  return Error(fmt::format(
      "there is no running task {0}_{1}: squeue -O JobID,ArrayJobID,ArrayTaskID shows the "
      "number of each task that runs, sacct -j {0} -o JobIDRaw,JobID of those that have "
      "ended",
      array, task));
}

}  // namespace swell::slurm
