// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/trace.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/lower.h"
#include "core/number.h"
#include "core/saturating.h"
#include "core/slurm_text/delimited.h"
#include "core/slurm_text/duration.h"
#include "core/slurm_text/gres.h"
#include "sim/random.h"
#include "sim/trace_rows.h"

namespace swell::sim {

namespace {

// Sigma of a duration's logarithm: production traces have 1 to 2.
constexpr double kDurationSigma = 1.5;
constexpr double kSwing = 0.8;
constexpr double kDay_s = 86400;

/// Submissions further apart than this are a column of another unit, or a wrong date.
constexpr double kLongest_s = 10 * 366 * kDay_s;
constexpr const char* kNoGpus = "ask for no GPU";
constexpr const char* kParts = "ask for a part of a GPU";
constexpr const char* kNeverRan = "did not run";
constexpr const char* kRunsStill = "wait or run still";
constexpr const char* kNoTime = "have no time of submission";

using slurm_text::Delimited;

Error wrong(const Delimited::Row& row, std::string_view column, std::string_view found,
            std::string_view wanted) {
  return Error(fmt::format("line {}: {} is \"{}\"; {} is wanted", row.line, column,
                           found.substr(0, 60), wanted));
}

/// Whether a job in this state has not ended: a word of Slurm or of another system.
bool is_under_way(std::string_view state) {
  static constexpr std::string_view kWords[] = {"PENDING", "RUNNING", "SUSPENDED",  "REQUEUED",
                                                "WAITING", "QUEUED",  "CONFIGURING"};
  std::string upper;
  for (const char c : state.substr(0, state.find(' ')))
    upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return std::find(std::begin(kWords), std::end(kWords), upper) != std::end(kWords);
}

/// The first of `names` that is a column.
std::optional<std::size_t> first_of(const Delimited& table,
                                    std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = table.column(name)) return found;
  return std::nullopt;
}

std::string_view cell(const Delimited::Row& row, std::optional<std::size_t> column) {
  return column ? row.at(*column) : std::string_view();
}

/// Reader of tables with a column for each number, named as in one of the published traces or as in
/// Swell's own form.
class PlainRows {
 public:
  static Result<PlainRows> make(const Delimited& table) {
    PlainRows made(table);
    made.begin_ = first_of(table, {"start_time", "time_start", "scheduled_time"});
    made.end_ = first_of(table, {"end_time", "time_end", "deletion_time"});
    // PAI's tasks have the time of their start alone.
    made.submit_ = first_of(table, {"submit_s", "submit_time", "submitted_time", "time_submit",
                                    "submission_time", "creation_time", "start_time"});
    made.gpus_ = first_of(table, {"num_gpus", "num_gpu", "gpu_num"});
    made.percent_ = table.column("plan_gpu");
    made.gres_ = table.column("gres_used");
    made.tres_ = table.column("tres_alloc");
    made.instances_ = table.column("inst_num");
    made.duration_ = first_of(table, {"duration_s", "duration"});
    made.state_ = first_of(table, {"state", "status", "pod_phase"});
    made.account_ = first_of(table, {"account", "vc", "user", "id_user"});
    const bool has_gpus = made.gpus_ || made.percent_ || made.gres_ || made.tres_;
    const char* lacks = !made.submit_                                    ? "submit_s"
                        : !has_gpus                                      ? "num_gpus"
                        : !made.duration_ && !(made.begin_ && made.end_) ? "duration_s"
                                                                         : nullptr;
    if (lacks != nullptr)
      return Error(fmt::format(
          "line 1 has no column \"{}\"; a trace has submit_s, num_gpus and duration_s,"
          " or Submit, AllocTRES and ElapsedRaw of sacct -P, or the columns of Helios, Acme, PAI or "
          "MIT Supercloud",
          lacks));
    return made;
  }

  /// Adds the row's job, or counts why it is left out.
  Result<void> read(const Delimited::Row& row, TraceRows& rows) const {
    TraceRow read;
    read.state = cell(row, state_);
    read.account = cell(row, account_);
    if (is_under_way(read.state)) {
      rows.leave_out(kRunsStill);
      return {};
    }
    const auto gpus = gpus_of(row);
    if (!gpus) return gpus.error();
    read.gpus = *gpus;
    if (may_lack(submit_) && is_unknown(cell(row, submit_))) {
      rows.leave_out(kNoTime);
      return {};
    }
    read.submit_s = time_of(cell(row, submit_));
    if (!read.submit_s || *read.submit_s >= 1e12)
      return wrong(row, name_of(submit_), cell(row, submit_), "a number of at least 0");
    const auto duration = duration_of(row);
    if (!duration) return duration.error();
    read.duration_s = *duration;
    return rows.add(read, fmt::format("line {}", row.line));
  }

 private:
  explicit PlainRows(const Delimited& table) : heading_(&table.heading()) {}

  const std::string& name_of(std::optional<std::size_t> column) const {
    return heading_->at(*column);
  }

  /// Returns whether cells of the column may be empty. In published traces they may; in Swell's own
  /// format, which people write by hand, they may not.
  bool may_lack(std::optional<std::size_t> column) const {
    const std::string& name = name_of(column);
    return lower(name) != "submit_s" && lower(name) != "num_gpus" && lower(name) != "duration_s";
  }

  Result<double> number(const Delimited::Row& row, std::optional<std::size_t> column) const {
    const std::string_view text = cell(row, column);
    if (may_lack(column) && is_unknown(text)) return 0.0;
    const auto value = read_number<double>(text);
    if (!value || !(*value >= 0) || !(*value < 1e12))
      return wrong(row, name_of(column), text, "a number of at least 0");
    return *value;
  }

  Result<double> gpus_of(const Delimited::Row& row) const {
    if (gpus_) {
      auto count = number(row, gpus_);
      // Swell's own form is made by people: a part of a GPU is a mistake there.
      if (count && *count != std::floor(*count) && name_of(gpus_) == "num_gpus" && !percent_)
        return wrong(row, "num_gpus", cell(row, gpus_), "a whole number");
      return count;
    }
    if (percent_) {
      const auto percent = number(row, percent_);
      const auto instances = instances_ ? number(row, instances_) : Result<double>(1.0);
      if (!percent) return percent.error();
      if (!instances) return instances.error();
      // Instances that share GPUs have parts of them.
      if (*percent < 100 && *percent > 0) return *percent / 100;
      return *percent / 100 * std::max(*instances, 1.0);
    }
    // Slurm's database numbers gres/gpu as the first of a site's own TRES.
    if (const double all = static_cast<double>(slurm_text::tres_value(cell(row, tres_), "1001"));
        all > 0)
      return all;
    return static_cast<double>(slurm_text::sum_gpus(cell(row, gres_)).count);
  }

  Result<double> duration_of(const Delimited::Row& row) const {
    if (duration_ && !(begin_ && end_ && is_unknown(cell(row, duration_))))
      return number(row, duration_);
    const auto begin = time_of(cell(row, begin_)), end = time_of(cell(row, end_));
    if (!begin || !end || *begin <= 0) return 0.0;  // it never began, or its end is not known
    return std::max(*end - *begin, 0.0);
  }

  const std::vector<std::string>* heading_;
  std::optional<std::size_t> submit_, gpus_, percent_, gres_, tres_, instances_, duration_, begin_,
      end_, state_, account_;
};

/// GPUs of TRES text, which may count those of each type once more.
int gpus_of(std::string_view tres) {
  const int all = saturated_int(slurm_text::tres_value(tres, "gres/gpu"));
  return all > 0 ? all : slurm_text::sum_gpus(tres).count;
}

/// Reader of the rows of `sacct -P`.
class SacctRows {
 public:
  static Result<SacctRows> make(const Delimited& table, const JobFilter& filter) {
    SacctRows made;
    made.filter_ = filter;
    made.qos_ = table.column("QOS"), made.partition_ = table.column("Partition");
    made.cells_ = table.heading().size();
    made.id_ = first_of(table, {"JobID", "JobIDRaw"}), made.state_ = table.column("State");
    made.raw_ = table.column("ElapsedRaw"), made.elapsed_ = table.column("Elapsed");
    made.allocated_ = table.column("AllocTRES"), made.requested_ = table.column("ReqTRES");
    made.submit_ = *table.column("Submit");
    made.account_ = first_of(table, {"Account", "User"});
    const char* lacks = !made.raw_ && !made.elapsed_           ? "ElapsedRaw"
                        : !made.allocated_ && !made.requested_ ? "AllocTRES"
                                                               : nullptr;
    if (lacks != nullptr)
      return Error(
          fmt::format("line 1 has no field \"{}\"; print the jobs with: sacct -aXP -S now-31days "
                      "-o JobID,Account,Submit,ElapsedRaw,AllocTRES,State",
                      lacks));
    return made;
  }

  /// As PlainRows; steps are skipped.
  Result<void> read(const Delimited::Row& row, TraceRows& rows) const {
    if (cell(row, id_).find('.') != std::string_view::npos) return {};
    // sacct quotes nothing: a name with the separator in it moves all cells behind it.
    if (row.cells.size() > cells_ + 1 ||
        (row.cells.size() == cells_ + 1 && !row.cells.back().empty())) {
      rows.leave_out("have a name with the separator in it");
      return {};
    }
    if (is_companion(row)) {
      rows.leave_out("were lent to other jobs by Swell");
      return {};
    }
    TraceRow read;
    read.state = cell(row, state_);
    read.account = cell(row, account_);
    if (is_under_way(read.state)) {
      rows.leave_out(kRunsStill);
      return {};
    }
    if (is_unknown(row.at(submit_))) {
      rows.leave_out(kNoTime);
      return {};
    }
    read.submit_s = time_of(row.at(submit_));
    if (!read.submit_s)
      return wrong(row, "Submit", row.at(submit_), "a time such as 2026-11-20T16:02:51");
    if (*read.submit_s < filter_.since_s) {
      rows.leave_out("were submitted before");
      return {};
    }
    read.duration_s =
        raw_ ? read_number<double>(cell(row, raw_))
             : std::optional(static_cast<double>(slurm_text::seconds_of(cell(row, elapsed_))));
    if (!read.duration_s || !(*read.duration_s >= 0))
      return wrong(row, raw_ ? "ElapsedRaw" : "Elapsed", cell(row, raw_ ? raw_ : elapsed_),
                   "a number of at least 0");
    read.gpus = gpus_of(cell(row, allocated_));
    if (read.gpus == 0) read.gpus = gpus_of(cell(row, requested_));
    return rows.add(read, fmt::format("line {}", row.line));
  }

 private:
  bool is_companion(const Delimited::Row& row) const {
    return (!filter_.qos.empty() && cell(row, qos_) == filter_.qos) ||
           (!filter_.partition.empty() && cell(row, partition_) == filter_.partition);
  }

  JobFilter filter_;
  std::size_t cells_ = 0;
  std::optional<std::size_t> id_, state_, raw_, elapsed_, allocated_, requested_, account_, qos_,
      partition_;
  std::size_t submit_ = 0;
};

template <typename Rows>
Result<TraceFile> read_all(const Delimited& table, const Result<Rows>& reader) {
  if (!reader) return reader.error();
  TraceRows rows;
  for (const Delimited::Row& row : table.rows())
    if (auto read = reader->read(row, rows); !read) return read.error();
  return std::move(rows).finish();
}

/// Refuses a file that is compressed, or is in UTF-16 as spreadsheets save it.
Result<void> check_is_text(std::string_view bytes) {
  constexpr std::pair<std::string_view, const char*> kBegins[] = {{"\x1f\x8b", "gunzip"},
                                                                  {"BZh", "bunzip2"},
                                                                  {"\xfd\x37zXZ", "unxz"},
                                                                  {"\x28\xb5\x2f\xfd", "unzstd"},
                                                                  {"PK\x03\x04", "unzip"}};
  for (const auto& [begin, program] : kBegins)
    if (bytes.starts_with(begin))
      return Error(fmt::format("it is compressed; unpack it first, by {}", program));
  if (bytes.find('\0') != std::string_view::npos)
    return Error("it is not text in UTF-8: it has bytes of 0; save it as CSV in UTF-8");
  return {};
}

}  // namespace

bool is_unknown(std::string_view text) {
  static constexpr std::string_view kWords[] = {"", "none", "unknown", "null", "nan", "n/a", "\\n"};
  return std::find(std::begin(kWords), std::end(kWords), lower(text)) != std::end(kWords);
}

std::optional<double> time_of(std::string_view text) {
  if (const auto seconds = read_number<double>(text); seconds && *seconds >= 0) return seconds;
  std::tm parts{};
  const std::string copy(text);
  const char* end = strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr) {
    parts = {};
    end = strptime(copy.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  }
  if (end == nullptr) return std::nullopt;
  std::string_view rest =
      std::string_view(copy).substr(static_cast<std::size_t>(end - copy.c_str()));
  if (rest.starts_with('.'))
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
  double offset_s = 0;
  if (rest == "Z" || rest == " UTC") rest = {};
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    std::string digits;
    for (const char c : rest.substr(1))
      if (c != ':') digits += c;
    const auto read = read_number<int>(digits);
    if (!read || digits.size() != 4) return std::nullopt;
    offset_s = (rest[0] == '+' ? 1 : -1) * (*read / 100 * 3600 + *read % 100 * 60);
    rest = {};
  }
  if (!rest.empty()) return std::nullopt;
  return static_cast<double>(timegm(&parts)) - offset_s;
}

Result<void> TraceRows::add(const TraceRow& row, const std::string& where) {
  const char* reason = is_under_way(row.state)            ? kRunsStill
                       : !row.submit_s                    ? kNoTime
                       : *row.duration_s <= 0             ? kNeverRan
                       : row.gpus <= 0                    ? kNoGpus
                       : row.gpus != std::floor(row.gpus) ? kParts
                                                          : nullptr;
  if (reason != nullptr) {
    leave_out(reason);
    return {};
  }
  first_ = file_.jobs.empty() ? *row.submit_s : std::min(first_, *row.submit_s);
  last_ = file_.jobs.empty() ? *row.submit_s : std::max(last_, *row.submit_s);
  if (last_ - first_ > kLongest_s)
    return Error(fmt::format(
        "{}: a submission {:.3g} s apart from another: more than 10 years; are all times of "
        "one unit?",
        where, last_ - first_));
  file_.jobs.push_back({*row.submit_s, row.gpus, *row.duration_s, row.account});
  return {};
}

Result<TraceFile> TraceRows::finish() && {
  if (file_.jobs.empty())
    return Error(file_.left_out.empty()
                     ? "it has no job below its column names; print those of more days, or "
                       "give another file"
                     : "no job of it can be simulated: " + file_.left_out_text());
  std::stable_sort(file_.jobs.begin(), file_.jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  return std::move(file_);
}

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

Result<TraceFile> trace_from_csv(std::string_view text, const JobFilter& filter) {
  const auto table = Delimited::parse(text);
  if (!table) return table.error();
  if (table->column("Submit") && !table->column("submit_s"))
    return read_all(*table, SacctRows::make(*table, filter));
  return read_all(*table, PlainRows::make(*table));
}

Result<TraceFile> trace_from_text(std::string_view text, const JobFilter& filter) {
  if (auto good = check_is_text(text); !good) return good.error();
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json =
      first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  return is_json ? trace_from_json(text) : trace_from_csv(text, filter);
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
        {now,
         1,
         std::clamp(generator.mean_duration_s * shape, 30.0, 100 * generator.mean_duration_s),
         {}});
  }
  return trace;
}

}  // namespace swell::sim
