// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace swell::launcher {

/// Judges whether a training hangs: by its steps, if they are known, else by its output. Pure;
/// times are seconds of one clock. Nothing is judged before the usual duration of a step is known,
/// nor before a generation's programs have begun to make steps.
class Progress {
 public:
  struct Settings {
    double factor = 20;       ///< usual durations without a step that count as a hang; 0: never
    double minimum_s = 1800;  ///< a shorter pause never counts; three times this for output
  };
  explicit Progress(Settings settings) : settings_(settings) {}

  /// Notes that the programs of a generation begin, or go on in a new generation.
  void begin(double now);
  /// Ignores the time until `now`, in which the program could not make a step.
  void rest(double now);
  /// Notes how many steps a worker says that the program has made; 0: it does not know.
  void step(double now, std::uint64_t steps);
  /// Notes that the program has written something.
  void output(double now);

  /// Returns when the training counts as hung without a further step; nullopt: it cannot be judged.
  std::optional<double> hangs_at() const;
  /// Returns whether a worker has reported lately: workers of a suspended job do not.
  bool is_heard(double now) const;
  /// Returns why the training counts as hung, as text for people.
  std::string reason(double now) const;
  /// Notes that the program is started again. The next hang takes twice as long, since this one may
  /// have been a pause that the program made on purpose.
  void restarted() { patience_ *= 2; }

 private:
  /// Signs of one kind.
  struct Signs {
    std::deque<double> intervals;  ///< the last ones of the run
    double longest_s = 0;          ///< between two signs of one generation
    double last = 0;               ///< when the last one came, or the time began to count
    bool has_last = false;         ///< in this generation
    int in_generation = 0;
    std::uint64_t number = 0;
    void add(double now, std::uint64_t count);
    bool is_known() const;
    double usual_s() const;
  };
  const Signs* judged() const;
  double limit_s(const Signs& signs) const;

  const Settings settings_;
  Signs steps_, output_;
  double began_ = 0;
  double heard_ = 0;
  double patience_ = 1;
};

}  // namespace swell::launcher
