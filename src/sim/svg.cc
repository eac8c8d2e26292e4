// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <iterator>

namespace swell::sim {

std::string escaped(std::string_view text) {
  std::string safe;
  for (char one : text) {
    if (one == '&') safe += "&amp;";
    else if (one == '<') safe += "&lt;";
    else if (one == '>') safe += "&gt;";
    else if (one == '"') safe += "&quot;";
    else safe += one;
  }
  return safe;
}

std::string policy_colour(std::size_t index) {
  constexpr std::array<const char*, 8> kColours = {"#7a828c", "#0f7bd4", "#d9541e", "#0a9a6b",
                                                   "#b14fc0", "#c99700", "#1fa6b8", "#a3343f"};
  return kColours[index % kColours.size()];
}

Axis::Axis(double min, double max, double from, double to, bool logarithmic)
    : min_(min), max_(max > min ? max : min + 1), from_(from), to_(to), logarithmic_(logarithmic) {}

double Axis::place(double value) const {
  const double within = std::clamp(value, min_, max_);
  const double share = logarithmic_ ? std::log(within / min_) / std::log(max_ / min_)
                                    : (within - min_) / (max_ - min_);
  return from_ + share * (to_ - from_);
}

std::vector<double> Axis::marks(int count) const {
  std::vector<double> marks;
  if (logarithmic_) {
    const double decades = std::log10(max_ / min_);
    const bool dense = decades < 2;
    for (double power = std::pow(10, std::floor(std::log10(min_))); power <= max_ * 1.0001;
         power *= 10)
      for (double times : dense ? std::vector<double>{1, 2, 5} : std::vector<double>{1})
        if (power * times >= min_ * 0.9999 && power * times <= max_ * 1.0001)
          marks.push_back(power * times);
    return marks;
  }
  const double rough = (max_ - min_) / count, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double times : {5.0, 2.0, 1.0})
    if (times * power >= rough * 0.8) step = times * power;
  for (double mark = std::ceil(min_ / step) * step; mark <= max_ + step * 1e-6; mark += step)
    marks.push_back(mark);
  return marks;
}

namespace {

/// Marks of a logarithmic axis of times: the units that people count in.
std::vector<double> round_times(const Axis& axis) {
  std::vector<double> marks;
  for (double time : {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0,
                      36000.0, 345600.0, 3456000.0})
    if (time >= axis.min() && time <= axis.max()) marks.push_back(time);
  return marks;
}

}  // namespace

void Chart::x_axis(const Axis& axis, std::string_view caption, std::string (*label)(double),
                   int marks) {
  for (double mark : axis.is_logarithmic() && label == time_label && axis.max() > 20 * axis.min()
                         ? round_times(axis)
                         : axis.marks(marks)) {
    const double x = axis.place(mark);
    line(x, y0(), x, y1(), "grid");
    text(x, y0() + 16, label(mark), "mark", "middle");
  }
  line(x0(), y0(), x1(), y0(), "axis");
  text((x0() + x1()) / 2, y0() + 34, caption, "caption", "middle");
}

void Chart::y_axis(const Axis& axis, std::string_view caption, std::string (*label)(double),
                   int marks) {
  for (double mark : axis.marks(marks)) {
    const double y = axis.place(mark);
    line(x0(), y, x1(), y, "grid");
    text(x0() - 6, y + 4, label(mark), "mark", "end");
  }
  add(fmt::format(
      "<text class=\"caption\" text-anchor=\"middle\" transform=\"translate(12 {:.1f}) rotate(-90)\">{}</text>",
      (y0() + y1()) / 2, escaped(caption)));
}

void Chart::line(double xa, double ya, double xb, double yb, std::string_view css_class) {
  add(fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                  css_class, xa, ya, xb, yb));
}

void Chart::text(double x, double y, std::string_view words, std::string_view css_class,
                 std::string_view anchor) {
  add(fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>",
                  css_class, x, y, anchor, escaped(words)));
}

void Chart::path(const std::vector<std::pair<double, double>>& points, std::string_view css_class,
                 std::string_view colour, std::string_view title) {
  std::string d;
  for (const auto& [x, y] : points)
    fmt::format_to(std::back_inserter(d), "{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x, y);
  add(fmt::format("<path class=\"{}\" {}d=\"{}\"><title>{}</title></path>", css_class,
                  colour.empty() ? "" : fmt::format("style=\"--c:{}\" ", colour), d,
                  escaped(title)));
}

std::string Chart::svg(std::string_view name) const {
  return fmt::format("<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\">{}</svg>",
                     escaped(name), frame_.width, frame_.height, shapes_);
}

std::string time_label(double seconds) {
  const struct {
    double size;
    const char* unit;
  } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}};
  if (seconds <= 0) return "0";
  for (const auto& one : units) {
    if (seconds < one.size * 0.9999) continue;
    const double value = seconds / one.size;
    return fmt::format("{:.{}f} {}", value,
                       value < 10 && std::abs(value - std::round(value)) > 0.05 ? 1 : 0, one.unit);
  }
  return fmt::format("{:.0f} ns", seconds * 1e9);
}

std::string number_label(double value) {
  return fmt::format("{:g}", std::round(value * 1000) / 1000);
}
std::string percent_label(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string ratio_label(double ratio) {
  return fmt::format("{:g}×", std::round(ratio * 100) / 100);
}

}  // namespace swell::sim
