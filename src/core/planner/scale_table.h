// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/perf/modelled.h"
#include "core/plan/layout.h"
#include "core/planner/row_filter.h"
#include "core/result.h"

namespace swell::perf {
class PerformanceModel;
}

namespace swell::planner {

/// Predictions of the best plan for one number of GPUs, in any form of the plan.
struct ScaleFigures {
  int gpus = 0;           ///< the job's GPUs, some of which the plan may leave idle
  double throughput = 0;  ///< samples a second, by perf::PerformanceModel
  double modelled = 0;    ///< samples a second, by perf::ModelledPredictor; 0: not predicted
  RowRule omitted = RowRule::none;  ///< the rule that removes the row, see filter_rows()
  friend bool operator==(const ScaleFigures&, const ScaleFigures&) = default;
};

/// A row whose layout has indexes of a cluster. Made by solvers, read by policies.
struct ScaleRow : ScaleFigures {
  plan::Layout layout;
  std::string why;  ///< how the plan was derived from a smaller one
};

/// A row of a plan with identical stages, whose GPUs are not chosen yet: for curves of rival
/// policies.
struct SymmetricRow : ScaleFigures {
  perf::Combination degrees;
};

/// Rows with rising GPUs and throughput that never falls; the first row is the current plan.
struct ScaleTable {
  std::vector<ScaleRow> rows;
  /// Free GPUs in the order in which they are taken: a row with g GPUs has the first g - N of them,
  /// where N is the number of GPUs of the current plan.
  std::vector<cluster::GpuRef> order;
  /// Another plan on the GPUs of the current one that is 1 % faster, with other chunks or another
  /// schedule. Only for exact jobs that run plans with chunks.
  std::optional<ScaleRow> again;
  bool complete = true;  ///< false: time was up before the last row
  long evaluated = 0;    ///< plans whose time was estimated
};

/// Sets `modelled` of all rows. `perf`: the performance model of the problem.
void add_modelled(ScaleTable& table, const perf::PerformanceModel& perf);

/// Source of a table's coefficients.
enum class ScaleSource : std::uint8_t {
  unknown,      ///< written by a Swell version that did not record the source
  running_job,  ///< the profile of the running job
  one_device,   ///< measurements of one device of a type (perf/node_costs.h)
  data_sheets,  ///< data sheets of the GPUs, and the model's shape
};

/// Returns the source's name in JSON: "running-job", "one-device", "data-sheets"; "" for unknown.
const char* name_of(ScaleSource source) noexcept;
/// Returns the source in words, for people: "its profile"; "" for unknown.
const char* words_for(ScaleSource source) noexcept;

/// A row with names instead of indexes, like plan::Plan for plan::Layout.
struct NamedRow : ScaleFigures {
  std::vector<std::string> gpu_types;  ///< types of the GPUs that the plan uses, without repeats
  std::string summary;                 ///< plan::Plan::summary()
  std::string schedule;                ///< plan::Plan::schedule
  /// Peak by stage. A row without `plan` has one entry: the peak of the fullest GPU.
  std::vector<double> peak_bytes;
  std::string why;
  std::optional<plan::Plan> plan;  ///< empty in tables that must be short
  double max_peak_bytes() const noexcept;
  friend bool operator==(const NamedRow&, const NamedRow&) = default;
};

/// A scale table for people, files, messages and the history: swell plan, swell why.
struct NamedTable {
  ScaleSource source = ScaleSource::unknown;
  std::vector<NamedRow> rows;

  /// Returns the throughput of row `i` relative to the first row, which is the running plan.
  double speedup(std::size_t i) const noexcept;
  double modelled_speedup(std::size_t i) const noexcept;
  /// Returns the row of `gpus` GPUs, or the last one with fewer; null if all rows have more.
  const NamedRow* at(int gpus) const noexcept;

  /// Returns the omitted rows by rule: "6, 7 GPUs: no significant gain; ...".
  std::string omitted() const;

  static constexpr int kVersion = 1;
  /// Writes {"version", "source", "rows": [{"gpus", "samples_per_s", ...}]}: man/swell-plan.1.
  Json to_json() const;
  Json rows_json() const;
  /// Reads the form of to_json(), or the rows alone, as versions of Swell before kVersion wrote
  /// them. The error names the row and the member.
  static Result<NamedTable> from_json(const Json& json);
  static Result<NamedTable> parse(std::string_view text);
  friend bool operator==(const NamedTable&, const NamedTable&) = default;
};

/// Detail of named rows.
enum class Detail : std::uint8_t {
  whole,  ///< with the plan, the peak of each stage, and `why`
  brief,  ///< with the plan's summary, and the peak of the fullest GPU
};

/// Names the rows of `table`, which has indexes of perf.cluster(), and predicts their memory.
NamedTable name_all(const ScaleTable& table, const perf::PerformanceModel& perf, ScaleSource source,
                    Detail detail);

}  // namespace swell::planner
