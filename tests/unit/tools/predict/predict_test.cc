// SPDX-License-Identifier: GPL-2.0-or-later
#include <cmath>
#include <criterion/criterion.h>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tools/predict/accuracy.h"
#include "tools/predict/collectives_csv.h"

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
  cr_assert_eq(training_runs_from_csv("").error().message(), "it is empty");
  cr_assert_eq(training_runs_from_csv("\"\"\n").error().message(), "there is no header line");
}

Test(predict, times_of_collectives_are_read_in_both_forms) {
  const auto vtrain = collective_table(
      "gpu,num_gpus,bytes,time_ns_outofplace\na100,2,1000,10\na100,2,3000,30\nv100,2,3000,99\n",
      "");
  cr_assert(vtrain.ok());
  using cluster::Collective;
  const auto at = [](const cluster::CollectiveTable& table, const char* type, Collective what,
                     cluster::CollectiveShape shape,
                     double bytes) { return table.seconds(type, what, shape, bytes).value_or(-1); };
  cr_assert(std::abs(at(*vtrain, "a100", Collective::all_reduce, {2, 1, 1, 1}, 2000) - 20e-9) <
            1e-18);
  cr_assert(std::abs(at(*vtrain, "v100", Collective::all_reduce, {2, 1, 1, 1}, 3000) - 99e-9) <
            1e-18);

  std::string text =
      "gpu_type,net,nodes,gpus_per_node,primitive,group_size,num_groups,nodes_spanned,groups,bytes,latency_s\n";
  for (const char* what : {"all-reduce", "reduce-scatter", "all-gather", "all-to-all"})
    for (const char* net : {"ib", "default"})
      text += std::string("a40,") + net + ",4,2," + what + ",2,4,2,\"[[0,2],[1,3]]\",1000," +
              (net[0] == 'i' ? "1e-3" : "2e-3") + "\n";
  text += "a40,ib,1,2,send_p2p_ray,2,1,1,x,1000,7e-3\na40,ib,1,2,send,2,1,1,x,1000,5e-3\n";
  const auto arena = collective_table(text, "ib");
  cr_assert(arena.ok(), "%s", arena.ok() ? "" : arena.error().message().c_str());
  // Four groups of two on four nodes of two: two share each node.
  cr_assert_eq(at(*arena, "a40", Collective::all_to_all, {1, 2, 2, 4}, 1000), 1e-3);
  cr_assert_eq(at(*arena, "a40", Collective::send, {2, 1, 1, 1}, 1000), 5e-3, "NCCL's");
  cr_assert_eq(collective_table(text, "").error().message(),
               "GPU type a40 was measured over the networks default and ib; choose one with --net");
  const auto again = collective_table(arena->to_json().dump(), "");
  cr_assert_eq(again->to_json().dump(), arena->to_json().dump());
}

Test(predict, bad_times_of_collectives_are_refused_by_row) {
  const auto refused = [](const std::string& rows) {
    const auto made = collective_table(
        "gpu_type,nodes,gpus_per_node,primitive,group_size,num_groups,nodes_spanned,bytes,latency_s\n" +
            rows,
        "");
    return made ? std::string() : made.error().message();
  };
  cr_assert_eq(refused("a40,1,2,all-reduce,2,1,1,8,1e-3\n"), "");
  cr_assert_eq(refused("a40,1,2,all-reduce,2,1,1,8,1e-3\na40,1,2,all-reduce,2,1,1,4,1e-3\n"),
               "row 2: size 4 of all-reduce follows size 8; sort the rows of each series by size");
  cr_assert_eq(refused("a40,1,2,all-reduce,2,1,1,8,0\n"),
               "row 1, column \"latency_s\": \"0\" is not a number from 1e-09 to 1e+06");
  cr_assert_eq(refused("a40,1,2,all-reduce,2,1,1,8,1e-3\na40,1,2,all-gather,2,1,1,8,1e-3\n"),
               "GPU type a40 has no times of reduce-scatter; measure it, or leave the type out");
  cr_assert_eq(
      refused("a40,1,2,gossip,2,1,1,8,1e-3\n"),
      "row 1: primitive \"gossip\" is unknown; use all-reduce, reduce-scatter, all-gather, "
      "all-to-all or send");
  cr_assert_eq(refused("abacus,1,2,all-reduce,2,1,1,8,1e-3\n"),
               "row 1: GPU type \"abacus\" is not in the catalogue; leave its rows out");
  cr_assert_eq(refused("a40,2,2,all-reduce,3,1,2,8,1e-3\n"),
               "row 1: 3 ranks on 2 of 2 nodes do not stand evenly; leave the row out");
  cr_assert_eq(refused(""), "there are no rows below the header; give measured times");
}

Test(predict, rows_are_chosen_without_looking_at_their_times) {
  const cluster::CollectiveTable table;
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
  const cluster::CollectiveTable table;
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
  const cluster::CollectiveTable table;
  const MachineModel model(a100(), table);
  const auto runs = made_up_runs(model);
  cr_assert_not(predict_others({runs[0]}, {0}, model).ok());
}

Test(predict, longer_work_takes_longer) {
  const cluster::CollectiveTable table;
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
    const auto table = collective_table(shared("vtrain_allreduce_lut.csv").value(), "");
    const MachineModel model(a100(), table.value());
    const auto runs = training_runs_from_csv(*text).value();
    const auto accuracy = predict_others(runs, choose_rows(runs, model), model);
    cr_assert(accuracy.ok());
    cr_assert_leq(accuracy->mean, 0.09, "%s: %g", name, accuracy->mean);
  }
}
