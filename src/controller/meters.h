// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "controller/elastic_job.h"
#include "core/json.h"

namespace swell::controller {

/// Counts how values are spread over fixed bounds, as Prometheus' histograms do.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  /// {"bounds": [...], "counts": [...], "sum", "count"}; counts are cumulative, the last is all.
  Json to_json() const;

 private:
  std::vector<double> bounds_;
  std::vector<long> counts_;
  double sum_ = 0;
};

/// Metrics of the controller for `swell exporter`, counted since it started. Labels have few fixed
/// values: no job, user, node or reason of Slurm's is one. One thread at a time; times are seconds.
class Meters {
 public:
  Meters();
  /// Something has happened: an event of EventLog, and its line.
  void heard(const std::string& kind, const Json& line);
  /// Counts a decision that took `seconds`.
  void decided(double seconds) { decisions_.add(seconds); }
  /// The time is `now`: GPU-seconds since the last call are counted by what the jobs hold.
  void pass(double now, const JobTable& jobs);

  /// {"families": [{"name","type","help","samples": [{"labels","value" or "histogram"}]}]}
  Json to_json(const JobTable& jobs) const;

 private:
  using Counter = std::map<std::string, double>;  ///< by its label
  Counter grants_, reclaims_, gpu_seconds_, wasted_;
  std::map<std::string, Histogram> pauses_;  ///< by mode
  Histogram decisions_, errors_;
  /// A running job, and the part of its observed time that is not counted as wasted yet.
  struct Held {
    int gpus = 0;  ///< all in all
    double unwasted_s = 0, unwasted_gpu_s = 0;
  };
  void paused(const Json& line);
  std::map<JobId, Held> held_;
  double last_ = -1;
};

}  // namespace swell::controller
