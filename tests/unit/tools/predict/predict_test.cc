// SPDX-License-Identifier: GPL-2.0-or-later
#include <cmath>
#include <criterion/criterion.h>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tools/predict/accuracy.h"

using namespace swell;
using namespace swell::predict;

namespace {

constexpr const char* kHeader =
    "num_gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iter_time_ms,gpu,recompute\n";

const cluster::GpuType& a100() {
  static const cluster::GpuType type = *cluster::find_gpu_type("a100");
  return type;
}

/// Plans of two models on one node, timed by a machine that is 20 % off what is expected.
std::vector<TrainingRun> made_up_runs(const MachineModel& model) {
  Machine truth = Machine::expected_values();
  for (double& value : truth.value) value *= 1.2;
  std::vector<TrainingRun> runs;
  for (int hidden : {1024, 2048})
    for (int tp : {1, 2, 4})
      for (int pp : {1, 2})
        for (int micro : {1, 2, 4, 8}) {
          TrainingRun run{hidden, 16, 24, 1024, tp * pp, 64, micro, tp, 1, pp, "a100", "full", 0};
          run.iteration_s = model.iteration_s(run, truth, hidden == 1024 ? 1.0 : 1.03);
          runs.push_back(run);
        }
  return runs;
}

Result<std::string> shared(const char* name) {
  const char* folder = std::getenv("SWELL_SHARED_DATA");
  if (folder == nullptr) return Error("SWELL_SHARED_DATA names no folder");
  std::ifstream in(std::string(folder) + "/measured/" + name);
  if (!in) return Error(std::string(name) + " is not in the folder that SWELL_SHARED_DATA names");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

Test(predict, reads_rows_and_names_what_is_wrong) {
  const auto good = training_runs_from_csv(std::string(kHeader) +
                                           "2,16,8,1024,16,24,1024,1,1,2,372.5,A100,full\r\n");
  cr_assert(good.ok());
  cr_assert(std::abs((*good)[0].iteration_s - 0.3725) < 1e-12);
  cr_assert_eq((*good)[0].micro_batches(), 2);
  const auto refused = [](const char* row) {
    return training_runs_from_csv(std::string(kHeader) + row).error().message();
  };
  cr_assert_eq(refused("2,16,8,1024,16,24,1024,1,1,2,372.5,A100\n"),
               "line 2 has 12 fields; the header has 13");
  cr_assert_eq(refused("2,16,8,0,16,24,1024,1,1,2,372.5,A100,full\n"),
               "row 1, column \"hidden\": \"0\" is not a number from 1 to 6.71089e+07");
  cr_assert_eq(refused("2,16,8,1024,16,24,1024,1.5,1,2,372.5,A100,full\n"),
               "row 1, column \"tp\": 1.5 is not a whole number");
  cr_assert_eq(
      refused("2,8,8,1024,16,24,1024,1,2,2,372.5,A100,full\n"),
      "row 1: a global batch of 8 is less than one micro-batch of 8 for each of 2 replicas");
  cr_assert_eq(refused(""), "there are no rows below the header");
  cr_assert_eq(training_runs_from_csv("").error().message(), "there is no header line");
}

Test(predict, the_allreduce_table_is_interpolated) {
  const auto table = AllreduceTable::from_csv(
      "gpu,num_gpus,bytes,time_ns_outofplace\na100,2,1000,10\na100,2,3000,30\nv100,2,3000,99\n",
      a100());
  cr_assert(table.ok());
  cr_assert(std::abs(table->seconds(2, 2000) - 20e-9) < 1e-18);
  cr_assert(std::abs(table->seconds(2, 10) - 10e-9) < 1e-18, "no faster than the smallest message");
  cr_assert(std::abs(table->seconds(2, 6000) - 60e-9) < 1e-18, "at the bandwidth of the largest");
  cr_assert_eq(table->seconds(1, 2000), 0);
  cr_assert_gt(table->seconds(4, 2000), 0, "not measured: from the link");
}

Test(predict, rows_are_chosen_without_looking_at_their_times) {
  const AllreduceTable table(a100());
  const MachineModel model(a100(), table);
  auto runs = made_up_runs(model);
  const auto chosen = choose_rows(runs, model);
  cr_assert_eq(chosen.size(), 2u, "one of each model");
  cr_assert_not(runs[chosen[0]].same_model(runs[chosen[1]]));
  for (std::size_t i = 0; i < runs.size(); ++i)
    runs[i].iteration_s *= 1 + 0.1 * static_cast<double>(i % 7);
  cr_assert(choose_rows(runs, model) == chosen);
}

Test(predict, one_row_a_model_brings_the_others_nearer) {
  const AllreduceTable table(a100());
  const MachineModel model(a100(), table);
  const auto runs = made_up_runs(model);
  double before = 0;
  for (const TrainingRun& run : runs)
    before += std::abs(model.iteration_s(run, Machine::expected_values(), 1) / run.iteration_s - 1);
  const auto accuracy = predict_others(runs, choose_rows(runs, model), model);
  cr_assert(accuracy.ok());
  cr_assert_eq(accuracy->rows, static_cast<int>(runs.size()) - 2, "fitted rows are not scored");
  cr_assert_lt(accuracy->mean, 0.5 * before / static_cast<double>(runs.size()));
  cr_assert_leq(accuracy->mean, accuracy->p90);
}

Test(predict, a_model_with_one_row_cannot_be_scored) {
  const AllreduceTable table(a100());
  const MachineModel model(a100(), table);
  const auto runs = made_up_runs(model);
  cr_assert_not(predict_others({runs[0]}, {0}, model).ok());
}

Test(predict, longer_work_takes_longer) {
  const AllreduceTable table(a100());
  const MachineModel model(a100(), table);
  const TrainingRun base{2048, 16, 24, 1024, 8, 64, 2, 2, 2, 2, "a100", "full", 1};
  const Machine machine = Machine::expected_values();
  const double time = model.iteration_s(base, machine, 1);
  TrainingRun other = base;
  other.recompute = "none";
  cr_assert_lt(model.iteration_s(other, machine, 1), time);
  other = base;
  other.global_batch = 128;
  cr_assert_gt(model.iteration_s(other, machine, 1), time);
  other = base;
  other.layers = 48;
  cr_assert_gt(model.iteration_s(other, machine, 1), time);
}

Test(predict, the_measured_runs_are_predicted_within_nine_percent) {
  for (const char* name : {"vtrain_single_dev.csv", "vtrain_multi_dev.csv"}) {
    const auto text = shared(name);
    if (!text.ok()) cr_skip_test("%s", text.error().message().c_str());
    const auto table = AllreduceTable::from_csv(shared("vtrain_allreduce_lut.csv").value(), a100());
    const MachineModel model(a100(), table.value());
    const auto runs = training_runs_from_csv(*text).value();
    const auto accuracy = predict_others(runs, choose_rows(runs, model), model);
    cr_assert(accuracy.ok());
    cr_assert_leq(accuracy->mean, 0.09, "%s: %g", name, accuracy->mean);
  }
}
