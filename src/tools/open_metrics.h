// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"

namespace swell::tools {

enum class MetricsFormat {
  open_metrics,  ///< OpenMetrics 1.0
  prometheus,    ///< Prometheus' text format 0.0.4, which node_exporter's files have too
};

/// Text of {"families": [...]}, as Meters::to_json() (controller/meters.h) makes it.
std::string metrics_text(const Json& metrics, MetricsFormat format);

/// Content-Type of an HTTP answer in that format.
const char* content_type(MetricsFormat format) noexcept;

}  // namespace swell::tools
