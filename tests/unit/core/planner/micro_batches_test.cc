// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/micro_batches.h"

#include <criterion/criterion.h>

#include "core/helpers.h"
#include "core/perf/peak_memory.h"
#include "core/planner/affinity.h"
#include "core/planner/incremental.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// A lone job on one GPU of 32: 16 micro-batches of 4 samples, and layers that tensor parallelism
/// does not help, since their activations are large.
struct LoneJob {
  LoneJob() {
    coefficients.activ_bytes = 1 << 28;
    coefficients.types[0].comp_s = 5e-3;
    coefficients.param_bytes = 1e6;
    coefficients.param_optim_bytes = 1e8;
    coefficients.activ_p_bytes = coefficients.activ_np_bytes = 1e6;
    support::add_stage(current, 4, 1, 1, 4);
  }
  ScaleTable solve(bool fewer, Consistency consistency = Consistency::relaxed,
                   std::shared_ptr<Executor> executor = nullptr) const {
    const perf::PerformanceModel perf(model, cluster, coefficients);
    const Problem problem{perf, current, unused(current, cluster), consistency};
    Incremental::Options options;
    options.max_free = 1000;
    auto incremental = std::make_unique<Incremental>(options);
    return fewer ? FewerMicroBatches(std::move(incremental), executor).solve(problem, {})
                 : incremental->solve(problem, {});
  }
  models::Model model = support::small_model(4, 64);
  cluster::Cluster cluster = support::h100_nodes(4, 8);
  perf::Coefficients coefficients = support::round_coefficients();
  plan::Layout current{16, {}};
};

int samples_of(const plan::StageLayout& stage) {
  int sum = 0;
  for (const plan::GroupLayout& group : stage.groups) sum += group.local_batch;
  return sum;
}

/// A job of tensor parallel pairs that wait for small messages: larger micro-batches have larger
/// ones, hence are faster with the same degrees.
LoneJob waits_for_messages() {
  LoneJob job;
  job.coefficients.activ_bytes = 1 << 10;
  job.coefficients.types[0].comp_s = 1e-9;
  job.coefficients.types[0].optim_s = 0;
  job.current = {64, {}};
  support::add_stage(job.current, 4, 2, 1, 1);
  return job;
}

bool keeps_micro_batches(const ScaleTable& table, int micro_batches = 16) {
  return std::all_of(table.rows.begin(), table.rows.end(), [&](const ScaleRow& row) {
    return row.layout.micro_batches == micro_batches;
  });
}

}  // namespace

Test(fewer_micro_batches, a_job_limited_by_its_samples_gets_a_faster_plan_on_many_gpus) {
  const LoneJob job;
  const ScaleTable with = job.solve(true), without = job.solve(false);
  cr_assert_eq(with.rows.size(), without.rows.size());
  const ScaleRow& max = with.rows.back();
  cr_assert_lt(max.layout.micro_batches, 16);
  cr_assert_gt(max.throughput, 1.2 * without.rows.back().throughput);
  cr_assert(max.why.starts_with("fewer micro-batches"), "%s", max.why.c_str());
  for (std::size_t i = 0; i < with.rows.size(); ++i)
    cr_assert_geq(with.rows[i].throughput, without.rows[i].throughput * (1 - 1e-9));
}

Test(fewer_micro_batches, tables_stay_what_solvers_promise) {
  const LoneJob job;
  const ScaleTable table = job.solve(true);
  const perf::PerformanceModel perf(job.model, job.cluster, job.coefficients);
  cr_assert(table.rows.front().layout == job.current, "the first row is what the job runs");
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const ScaleRow& row = table.rows[i];
    cr_assert(i == 0 || row.throughput >= table.rows[i - 1].throughput * (1 - 1e-9));
    cr_assert(support::near(row.throughput, perf.throughput(row.layout), 1e-6), "row %zu", i);
    std::vector<plan::GpuMask> may(job.cluster.nodes().size(), 0);
    may[0] = 1;
    for (int g = 0; g < row.gpus - 1; ++g)
      may[static_cast<std::size_t>(table.order[static_cast<std::size_t>(g)].node)] |=
          plan::GpuMask{1} << table.order[static_cast<std::size_t>(g)].index;
    for (const plan::StageLayout& stage : row.layout.stages) {
      cr_assert_eq(samples_of(stage) * row.layout.micro_batches, 64, "the global batch");
      for (const plan::GroupLayout& group : stage.groups)
        cr_assert_eq(group.gpus & ~may[static_cast<std::size_t>(group.node)], 0u,
                     "row %zu has a GPU that comes later", i);
    }
  }
}

Test(fewer_micro_batches, exact_consistency_keeps_their_number) {
  const LoneJob job = waits_for_messages();
  const ScaleTable exact = job.solve(true, Consistency::exact);
  cr_assert(keeps_micro_batches(exact, 64));
  cr_assert_gt(exact.rows.back().layout.pp(), 1);
}

Test(fewer_micro_batches, the_first_row_is_what_the_job_runs_though_another_plan_is_faster) {
  const LoneJob job = waits_for_messages();
  cr_assert(job.solve(true).rows.front().layout == job.current);
}

Test(fewer_micro_batches, a_pipeline_that_only_idles_longer_by_them_keeps_its_own) {
  LoneJob job;
  job.coefficients.types[0] = {1e-6, 2, 0, 1};
  job.coefficients.param_bytes = 5e9;  // no data parallelism
  const ScaleTable table = job.solve(true);
  cr_assert_gt(table.rows.back().layout.pp(), 1);
  cr_assert(keeps_micro_batches(table));
}

Test(fewer_micro_batches, larger_ones_must_fit_memory) {
  LoneJob job;
  cr_assert_not(keeps_micro_batches(job.solve(true)));
  job.coefficients.activ_np_bytes =
      3e9;  // 4 layers of 4 samples are 48 GB of 72 GiB, of 8 samples 96 GB
  const perf::PerformanceModel perf(job.model, job.cluster, job.coefficients);
  cr_assert(perf::MemoryModel(perf).fits(job.current));
  cr_assert(keeps_micro_batches(job.solve(true)));
}

Test(fewer_micro_batches, an_odd_number_is_kept) {
  LoneJob job;
  job.model.global_batch = 60;
  job.current.micro_batches = 15;
  for (const ScaleRow& row : job.solve(true).rows) cr_assert_eq(row.layout.micro_batches, 15);
}

Test(fewer_micro_batches, several_threads_make_the_same_table) {
  const LoneJob job;
  const ScaleTable alone = job.solve(true);
  auto helpers = std::make_shared<Helpers>(
      2, [](std::function<void()> body) { return std::thread(std::move(body)); });
  const ScaleTable together = job.solve(true, Consistency::relaxed, helpers);
  cr_assert_eq(together.rows.size(), alone.rows.size());
  cr_assert_eq(together.evaluated, alone.evaluated);
  for (std::size_t i = 0; i < alone.rows.size(); ++i) {
    cr_assert(together.rows[i].layout == alone.rows[i].layout);
    cr_assert_eq(together.rows[i].throughput, alone.rows[i].throughput);
    cr_assert_str_eq(together.rows[i].why.c_str(), alone.rows[i].why.c_str());
  }
}
