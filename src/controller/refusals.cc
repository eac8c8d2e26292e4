// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/refusals.h"

#include <algorithm>
#include <cctype>

#include "base/lower.h"

namespace swell::controller {

std::string refusal_kind(std::string_view words) {
  const std::string text = lower(words);
  struct Sign {
    const char* words;
    const char* kind;
  };
  // In this order: "Job violates accounting/QOS policy (job submit limit, ...)" is a limit.
  static constexpr Sign kSigns[] = {{"companion was refused", refused::kUnlike},
                                    {"another plugin", refused::kUnlike},
                                    {"prolog", refused::kProlog},
                                    {"limit", refused::kLimit},
                                    {"policy", refused::kLimit},
                                    {"qos", refused::kQos},
                                    {"account", refused::kAccount},
                                    {"association", refused::kAccount},
                                    {"partition", refused::kPartition},
                                    {"busy", refused::kBusy},
                                    {"unable to allocate", refused::kBusy},
                                    {"not available", refused::kBusy},
                                    {"too long", refused::kExpired},
                                    {"timed out", refused::kExpired}};
  for (const Sign& sign : kSigns)
    if (text.find(sign.words) != std::string::npos) return sign.kind;
  return refused::kOther;
}

}  // namespace swell::controller
