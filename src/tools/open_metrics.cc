// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/open_metrics.h"

#include <fmt/format.h>

namespace swell::tools {

namespace {

std::string text_in(const Json& json, const char* key) {
  const auto text = json.string_at(key);
  return text ? *text : std::string();
}

std::string number_of(const Json& number) {
  return is_integer(number) ? fmt::format("{}", json_integer_value(number.get()))
                            : fmt::format("{}", json_number_value(number.get()));
}

std::string escaped(const std::string& text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || (c == '"' && quotes)) result += '\\';
    if (c == '\n') result += "\\n";
    else result += c;
  }
  return result;
}

/// Returns {a="b",le="1"}; empty without labels.
std::string labels_of(const Json& labels, const std::string& bound = {}) {
  std::string text;
  for (const auto& [name, value] : members(labels))
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name,
                        escaped(json_string_value(value.get()), true));
  if (!bound.empty()) text += fmt::format("{}le=\"{}\"", text.empty() ? "" : ",", bound);
  return text.empty() ? text : "{" + text + "}";
}

/// OpenMetrics wants bounds as floats.
std::string bound_of(const Json& bound, MetricsFormat format) {
  std::string text = number_of(bound);
  if (format == MetricsFormat::open_metrics && text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

void add_histogram(std::string& text, const std::string& name, const Json& sample,
                   MetricsFormat format) {
  const Json labels = sample.at("labels"), histogram = sample.at("histogram");
  const Json bounds = histogram.at("bounds"), counts = histogram.at("counts");
  for (std::size_t i = 0; i < counts.size(); ++i)
    text += fmt::format(
        "{}_bucket{} {}\n", name,
        labels_of(labels, i < bounds.size() ? bound_of(bounds.at(i), format) : std::string("+Inf")),
        number_of(counts.at(i)));
  text += fmt::format("{}_sum{} {}\n", name, labels_of(labels), number_of(histogram.at("sum")));
  text += fmt::format("{}_count{} {}\n", name, labels_of(labels), number_of(histogram.at("count")));
}

}  // namespace

std::string metrics_text(const Json& metrics, MetricsFormat format) {
  std::string text;
  const bool is_open = format == MetricsFormat::open_metrics;
  for (const Json& family : metrics.at("families").items()) {
    const std::string name = text_in(family, "name"), type = text_in(family, "type");
    const std::string sampled = type == "counter" ? name + "_total" : name;
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", is_open ? name : sampled,
                        escaped(text_in(family, "help"), is_open), is_open ? name : sampled, type);
    for (const Json& sample : family.at("samples").items()) {
      if (type == "histogram") add_histogram(text, name, sample, format);
      else
        text += fmt::format("{}{} {}\n", sampled, labels_of(sample.at("labels")),
                            number_of(sample.at("value")));
    }
  }
  return is_open ? text + "# EOF\n" : text;
}

const char* content_type(MetricsFormat format) noexcept {
  return format == MetricsFormat::open_metrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace swell::tools
