// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"

namespace swell::tools {

enum class MetricsFormat {
  open_metrics,  ///< OpenMetrics 1.0
  prometheus,    ///< Prometheus' text format 0.0.4, also for node_exporter's files
};

/// Returns the text of {"families": [...]}, as made by Meters::to_json() (controller/meters.h).
std::string metrics_text(const Json& metrics, MetricsFormat format);

/// Returns the Content-Type of an HTTP answer in that format.
const char* content_type(MetricsFormat format) noexcept;

}  // namespace swell::tools
