// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/job_word.h"

#include <fmt/format.h>
#include <optional>

#include "core/number.h"
#include "slurm/array_task.h"
#include "slurm/site_config.h"

namespace swell::tools {

namespace {

struct Parts {
  slurm::JobId job = 0;
  std::optional<std::uint32_t> task;
};

std::optional<Parts> read(const std::string& word) {
  const std::size_t mark = word.find('_');
  const auto job = read_number<slurm::JobId>(word.substr(0, mark));
  if (!job) return std::nullopt;
  if (mark == std::string::npos) return Parts{*job, std::nullopt};
  const auto task = read_number<std::uint32_t>(word.substr(mark + 1));
  if (!task) return std::nullopt;
  return Parts{*job, *task};
}

}  // namespace

Result<slurm::JobId> job_of(const std::string& word, const FindTask& find) {
  const std::optional<Parts> parts = read(word);
  if (!parts) return Error(wrong_job_word(word));
  return parts->task ? find(parts->job, *parts->task) : Result<slurm::JobId>(parts->job);
}

Result<slurm::JobId> job_of(const std::string& word) {
  return job_of(word, [](slurm::JobId array, std::uint32_t task) {
    slurm::init_libslurm();
    return slurm::find_array_task(array, task);
  });
}

std::string wrong_job_word(const std::string& word) {
  if (read(word)) return {};
  return fmt::format(
      "\"{}\" is not a job: give its number, such as 31, or ARRAY_TASK, such as 27_1", word);
}

}  // namespace swell::tools
