// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "controller/model_sheet.h"

namespace swell::controller {

/// The user's description of a training before it runs: the model, and the table of its speed on
/// each GPU type. Times are seconds on the controller's clock. Only ReportReader changes
/// it.
class JobDescription {
 public:
  JobDescription() = default;
  /// Begins with what the job's tag says. `speeds`: SpeedTable::text() of its table=, or empty;
  /// `chosen`: why it has its GPU type, or empty; `moved`: when it last got another one while it
  /// ran, in seconds since 1970, or 0.
  JobDescription(std::string speeds, std::string chosen, std::int64_t moved = 0)
      : speeds_(std::move(speeds)), chosen_(std::move(chosen)), moved_(moved) {}

  /// Forgets the model: the agent that says hello has not named one.
  void forget_model() noexcept {
    model_.reset();
    refused_model_.clear();
  }
  void describe(ModelSheet model, double now) {
    model_ = std::move(model);
    if (!described_since_) described_since_ = now;
  }
  void refuse_model(std::string why) { refused_model_ = std::move(why); }
  void refuse_speeds(std::string why) {
    speeds_.clear();
    refused_speeds_ = std::move(why);
  }

  /// The model that its agent's last hello named.
  const std::optional<ModelSheet>& model() const noexcept { return model_; }
  /// Why the model that the agent named is not used; empty: it named none, or the model is used.
  const std::string& refused_model() const noexcept { return refused_model_; }
  /// When its agent first named one that can be read.
  std::optional<double> described_since() const noexcept { return described_since_; }
  /// SpeedTable::text() of the table that is used; empty: none is.
  const std::string& speeds() const noexcept { return speeds_; }
  /// Why the table is not used, for the owner; empty: it is, or there is none.
  const std::string& refused_speeds() const noexcept { return refused_speeds_; }
  /// Why the job has its GPU type, for people; empty: it was not chosen.
  const std::string& chosen() const noexcept { return chosen_; }
  /// When it was last moved to another GPU type while it ran; 0: never.
  std::int64_t moved() const noexcept { return moved_; }

 private:
  std::optional<ModelSheet> model_;
  std::string refused_model_;
  std::optional<double> described_since_;
  std::string speeds_, refused_speeds_, chosen_;
  std::int64_t moved_ = 0;
};

}  // namespace swell::controller
