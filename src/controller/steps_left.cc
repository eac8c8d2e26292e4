// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/steps_left.h"

#include <algorithm>

namespace swell::controller {

namespace {

/// A program that makes less than this part of the steps that its profiles promise is not believed.
constexpr double kLeastPace = 0.25;

/// A program that still runs this time after its last step is not believed either.
constexpr double kEnds_s = 60;

}  // namespace

void StepsLeft::heard(double now, std::int64_t made, std::int64_t total, double step_s) {
  if (total > 0) {
    if (total_ > 0 && total != total_) ++moves_;
    total_ = total;
  }
  const double promised = step_s > 0 && since_ ? std::max(now - heard_at_, 0.0) / step_s : 0;
  promised_ += promised;
  since_said_ += promised;
  if (made != made_) made_at_ = now;
  made_ = made;
  heard_at_ = now;
  if (total_ == 0 || made_ < total_) ended_.reset();
  else if (!ended_) ended_ = now;
  if (made_ == 0) return;
  // The cap keeps a large drop with an immediate rise from counting as progress.
  if (since_) done_ += std::min(static_cast<double>(made - said_), since_said_ / kLeastPace);
  if (made != said_) since_said_ = 0;
  said_ = made;
  if (!since_) since_ = Point{now, done_, promised_};
  if (now - since_->at < kPace_s) return;
  before_ = since_;
  since_ = Point{now, done_, promised_};
}

std::optional<double> StepsLeft::left(double now, double step_s) const {
  if (total_ == 0 || made_ == 0 || made_ > total_ || moves_ >= kMostMoves || step_s <= 0)
    return std::nullopt;
  if (ended_ && now > *ended_ + kEnds_s) return std::nullopt;
  if (before_ && done_ - before_->done < kLeastPace * (promised_ - before_->promised))
    return std::nullopt;
  const double goes_on_until = made_at_ + std::max(kSilent_s, 2 * step_s);
  const double since = std::max(std::min(now, goes_on_until) - heard_at_, 0.0) / step_s;
  return std::max(static_cast<double>(total_ - made_) - since, 0.0);
}

}  // namespace swell::controller
