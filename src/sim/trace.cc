// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/trace.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <optional>
#include <variant>

#include "core/number.h"
#include "core/saturating.h"
#include "core/slurm_text/delimited.h"
#include "core/slurm_text/duration.h"
#include "core/slurm_text/gres.h"
#include "sim/random.h"

namespace swell::sim {

namespace {

// Sigma of a duration's logarithm: production traces have 1 to 2.
constexpr double kDurationSigma = 1.5;
constexpr double kSwing = 0.8;
constexpr double kDay_s = 86400;

/// Submissions further apart than this are a column of another unit, or a wrong date.
constexpr double kLongest_s = 10 * 366 * kDay_s;
constexpr const char* kNoGpus = "ask for no GPU";
constexpr const char* kNeverRan = "did not run";

using slurm_text::Delimited;

Error wrong(const Delimited::Row& row, const char* column, std::string_view found,
            std::string_view wanted) {
  return Error(fmt::format("line {}: {} is \"{}\"; {} is wanted", row.line, column,
                           found.substr(0, 60), wanted));
}

/// Reader of rows with submit_s, num_gpus and duration_s.
class PlainRows {
 public:
  static Result<PlainRows> make(const Delimited& table) {
    PlainRows made;
    for (std::size_t c = 0; c < 3; ++c) {
      const auto found = table.column(kColumns[c]);
      if (!found)
        return Error(fmt::format(
            "line 1 has no column \"{}\"; a trace has submit_s, num_gpus and duration_s,"
            " or Submit, AllocTRES and ElapsedRaw of sacct -P",
            kColumns[c]));
      made.at_[c] = *found;
    }
    return made;
  }

  /// The row's job, or the reason why it is left out.
  Result<std::variant<TraceJob, const char*>> read(const Delimited::Row& row) const {
    double values[3];
    for (std::size_t c = 0; c < 3; ++c) {
      const std::string_view cell = row.at(at_[c]);
      const auto value = read_number<double>(cell);
      if (!value || !(*value >= 0) || !(*value < 1e12))
        return wrong(row, kColumns[c], cell, "a number of at least 0");
      values[c] = *value;
    }
    if (values[1] != std::floor(values[1]))
      return wrong(row, kColumns[1], row.at(at_[1]), "a whole number");
    if (values[1] == 0) return std::variant<TraceJob, const char*>(kNoGpus);
    if (values[2] == 0) return std::variant<TraceJob, const char*>(kNeverRan);
    return std::variant<TraceJob, const char*>(TraceJob{values[0], values[1], values[2]});
  }

 private:
  static constexpr const char* kColumns[] = {"submit_s", "num_gpus", "duration_s"};
  std::size_t at_[3] = {};
};

/// "2026-11-20T16:02:51" as seconds since 1970, or such seconds; nothing of other text.
std::optional<double> time_of(std::string_view text) {
  if (const auto seconds = read_number<double>(text); seconds && *seconds >= 0) return seconds;
  std::tm parts{};
  const std::string copy(text);
  const char* end = strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<double>(timegm(&parts));
}

/// GPUs of TRES text, which may count those of each type once more.
int gpus_of(std::string_view tres) {
  const int all = saturated_int(slurm_text::tres_value(tres, "gres/gpu"));
  return all > 0 ? all : slurm_text::sum_gpus(tres).count;
}

/// Reader of the rows of `sacct -P`.
class SacctRows {
 public:
  static Result<SacctRows> make(const Delimited& table) {
    SacctRows made;
    made.id_ = table.column("JobID"), made.state_ = table.column("State");
    made.raw_ = table.column("ElapsedRaw"), made.elapsed_ = table.column("Elapsed");
    made.allocated_ = table.column("AllocTRES"), made.requested_ = table.column("ReqTRES");
    made.submit_ = *table.column("Submit");
    const char* lacks = !made.raw_ && !made.elapsed_           ? "ElapsedRaw"
                        : !made.allocated_ && !made.requested_ ? "AllocTRES"
                                                               : nullptr;
    if (lacks != nullptr)
      return Error(
          fmt::format("line 1 has no field \"{}\"; print the jobs with: sacct -aXP "
                      "-o JobID,Submit,ElapsedRaw,AllocTRES,State",
                      lacks));
    return made;
  }

  /// As PlainRows; of a step "".
  Result<std::variant<TraceJob, const char*>> read(const Delimited::Row& row) const {
    using Read = std::variant<TraceJob, const char*>;
    if (cell(row, id_).find('.') != std::string_view::npos) return Read("");
    const std::string_view state = cell(row, state_);
    if (state == "PENDING" || state == "RUNNING" || state == "SUSPENDED")
      return Read("wait or run still");
    const auto submitted = time_of(row.at(submit_));
    if (!submitted)
      return wrong(row, "Submit", row.at(submit_), "a time such as 2026-11-20T16:02:51");
    const auto seconds =
        raw_ ? read_number<double>(cell(row, raw_))
             : std::optional(static_cast<double>(slurm_text::seconds_of(cell(row, elapsed_))));
    if (!seconds || *seconds < 0)
      return wrong(row, "ElapsedRaw", cell(row, raw_), "a number of at least 0");
    if (*seconds == 0) return Read(kNeverRan);
    int gpus = gpus_of(cell(row, allocated_));
    if (gpus == 0) gpus = gpus_of(cell(row, requested_));
    if (gpus == 0) return Read(kNoGpus);
    return Read(TraceJob{*submitted, static_cast<double>(gpus), *seconds});
  }

 private:
  static std::string_view cell(const Delimited::Row& row, std::optional<std::size_t> column) {
    return column ? row.at(*column) : std::string_view();
  }
  std::optional<std::size_t> id_, state_, raw_, elapsed_, allocated_, requested_;
  std::size_t submit_ = 0;
};

template <typename Rows>
Result<TraceFile> read_all(const Delimited& table, const Result<Rows>& rows) {
  if (!rows) return rows.error();
  TraceFile file;
  double first = 0, last = 0;
  for (const Delimited::Row& row : table.rows()) {
    const auto read = rows->read(row);
    if (!read) return read.error();
    if (const auto* reason = std::get_if<const char*>(&*read)) {
      if (**reason != '\0') ++file.left_out[*reason];
      continue;
    }
    const TraceJob& job = std::get<TraceJob>(*read);
    first = file.jobs.empty() ? job.submit_s : std::min(first, job.submit_s);
    last = file.jobs.empty() ? job.submit_s : std::max(last, job.submit_s);
    if (last - first > kLongest_s)
      return Error(fmt::format(
          "line {}: a submission {:.3g} s apart from another: more than 10 years; are all times of "
          "one unit?",
          row.line, last - first));
    file.jobs.push_back(job);
  }
  if (file.jobs.empty())
    return Error(file.left_out.empty() ? "there is no job in it"
                                       : "no job of it can be simulated: " + file.left_out_text());
  std::stable_sort(file.jobs.begin(), file.jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  return file;
}

}  // namespace

void TraceFile::leave_out_larger(double gpus, std::string_view of) {
  const auto larger = std::erase_if(jobs, [&](const TraceJob& job) { return job.gpus > gpus; });
  if (larger > 0)
    left_out[fmt::format("ask for more than the {:g} GPUs of {}", gpus, of)] +=
        static_cast<int>(larger);
}

std::string TraceFile::left_out_text() const {
  std::string text;
  for (const auto& [reason, jobs_of_it] : left_out)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", jobs_of_it, reason);
  return text;
}

Result<TraceFile> trace_from_csv(std::string_view text) {
  const auto table = Delimited::parse(text);
  if (!table) return table.error();
  if (table->column("Submit") && !table->column("submit_s"))
    return read_all(*table, SacctRows::make(*table));
  return read_all(*table, PlainRows::make(*table));
}

Trace generate(const Generator& generator, std::uint64_t seed) {
  Random random{seed, kArrivals};
  Trace trace;
  const double max = generator.jobs_per_hour * (generator.diurnal ? 1 + kSwing : 1) / 3600;
  for (double now = random.exponential(1 / max); now < generator.hours * 3600;
       now += random.exponential(1 / max)) {
    // Thinning: arrivals come at the highest rate, and the hour's share of them is kept.
    const double rate =
        generator.diurnal ? (1 - kSwing * std::cos(6.283185307179586 * now / kDay_s)) / (1 + kSwing)
                          : 1;
    if (random.uniform() >= rate) continue;
    const double shape =
        std::exp(kDurationSigma * random.normal() - kDurationSigma * kDurationSigma / 2);
    trace.push_back(
        {now, 1,
         std::clamp(generator.mean_duration_s * shape, 30.0, 100 * generator.mean_duration_s)});
  }
  return trace;
}

}  // namespace swell::sim
