// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/training_run.h"

#include <fmt/format.h>

#include "core/count_of.h"
#include "tools/predict/csv.h"

namespace swell::predict {

std::string TrainingRun::model_name() const {
  return fmt::format("h{}-l{}-s{}", hidden, layers, seq);
}

Result<std::vector<TrainingRun>> training_runs_from_csv(std::string_view text) {
  auto csv = Csv::parse(text);
  if (!csv) return csv.error();
  const struct {
    const char* column;
    int TrainingRun::*field;
  } counts[] = {{"num_gpus", &TrainingRun::gpus},
                {"global_batch", &TrainingRun::global_batch},
                {"micro_batch", &TrainingRun::micro_batch},
                {"hidden", &TrainingRun::hidden},
                {"heads", &TrainingRun::heads},
                {"layers", &TrainingRun::layers},
                {"seq", &TrainingRun::seq},
                {"tp", &TrainingRun::tp},
                {"dp", &TrainingRun::dp},
                {"pp", &TrainingRun::pp}};
  const auto gpu = csv->column("gpu"), recompute = csv->column("recompute");
  const bool in_ms = !csv->column("iter_time_s").has_value();
  std::vector<TrainingRun> runs;
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    TrainingRun run;
    for (const auto& count : counts) {
      auto value = csv->whole(row, count.column, 1, 1 << 26);
      if (!value) return value.error();
      run.*count.field = *value;
    }
    auto time = csv->number(row, in_ms ? "iter_time_ms" : "iter_time_s", 1e-9, 1e9);
    if (!time) return time.error();
    run.iteration_s = in_ms ? *time / 1e3 : *time;
    run.gpu = gpu ? csv->field(row, *gpu) : "a100";
    run.recompute = recompute ? csv->field(row, *recompute) : "full";
    if (run.micro_batches() < 1)
      return Error(fmt::format(
          "row {}: a global batch of {} is less than one micro-batch of {} for each of {}", row + 1,
          run.global_batch, run.micro_batch, count_of(run.dp, "replica")));
    runs.push_back(std::move(run));
  }
  if (runs.empty()) return Error("there are no rows below the header");
  return runs;
}

}  // namespace swell::predict
