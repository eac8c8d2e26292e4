// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/growth.h"

#include "core/count_of.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace swell::launcher {

bool Growth::pause(double now, std::string why, bool for_good) {
  if (!reason_.empty() && std::isinf(until_)) return true;  // the first reason stays
  ++pauses_;
  for_good = for_good || pauses_ > settings_.max_pauses;
  reason_ = std::move(why);
  until_ = for_good ? std::numeric_limits<double>::infinity()
                    : now + settings_.growth_pause_s * std::pow(2.0, pauses_ - 1);
  return for_good;
}

std::optional<double> Growth::resumes_at() const {
  if (reason_.empty() || !std::isfinite(until_)) return std::nullopt;
  return until_;
}

bool Growth::resume_if_due(double now) {
  if (reason_.empty() || now < until_) return false;
  reason_.clear();
  return true;
}

std::string Growth::reason_against(const Run& run) const {
  if (!reason_.empty()) return reason_;
  if (!declined_.empty()) return declined_;
  if (!run.has_started && run.may_start_large) return {};
  if (!run.has_started) return "its workers have not started yet";
  if (run.has_ended_ones) return "some of its workers have ended";
  if (run.is_running && run.awaits_runtime)
    return "its program has not begun with Swell's runtime yet";
  if (!run.is_running || run.deaf == 0) return {};
  return fmt::format("{} of {} {} no handler for {} yet", run.deaf, count_of(run.workers, "worker"),
                     run.deaf == 1 ? "has" : "have", run.signal);
}

bool Growth::is_news(const std::string& why) const {
  return why.empty() != told_.empty() || (!why.empty() && why == reason_ && why != told_);
}

}  // namespace swell::launcher
