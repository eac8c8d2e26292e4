// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace swell::sim {

/// Escapes `text` for HTML and SVG.
std::string escaped(std::string_view text);

/// CSS colour of one of several policies, distinct for colour-blind readers too.
std::string policy_colour(std::size_t index);

/// An axis: maps values to positions, linear or logarithmic.
class Axis {
 public:
  Axis(double min, double max, double from, double to, bool logarithmic = false);
  double place(double value) const;  ///< position of a value, clamped to the axis
  double min() const { return min_; }
  double max() const { return max_; }
  /// About `count` round values to mark.
  std::vector<double> marks(int count) const;
  bool is_logarithmic() const { return logarithmic_; }

 private:
  double min_, max_, from_, to_;
  bool logarithmic_;
};

/// A drawing with two axes, to which shapes are added in its own coordinates.
class Chart {
 public:
  struct Frame {
    double width = 560, height = 300;
    double left = 52, right = 14, top = 12, bottom = 40;
  };
  explicit Chart(Frame frame) : frame_(frame) {}
  double x0() const { return frame_.left; }
  double x1() const { return frame_.width - frame_.right; }
  double y0() const { return frame_.height - frame_.bottom; }
  double y1() const { return frame_.top; }

  /// Draws marks, grid lines and a caption; `label` turns a value into its text.
  void x_axis(const Axis& axis, std::string_view caption, std::string (*label)(double),
              int marks = 6);
  void y_axis(const Axis& axis, std::string_view caption, std::string (*label)(double),
              int marks = 5);
  void add(std::string shape) { shapes_ += std::move(shape); }
  void line(double xa, double ya, double xb, double yb, std::string_view css_class);
  void text(double x, double y, std::string_view text, std::string_view css_class,
            std::string_view anchor = "start");
  /// Draws a path through the points; `colour` empty: the class decides.
  void path(const std::vector<std::pair<double, double>>& points, std::string_view css_class,
            std::string_view colour, std::string_view title);

  /// The finished drawing; `name` is its text for screen readers.
  std::string svg(std::string_view name) const;

 private:
  Frame frame_;
  std::string shapes_;
};

/// A time as a label: "20 ms", "45 s", "3 min", "2 h", "4 d".
std::string time_label(double seconds);
std::string number_label(double value);
std::string percent_label(double share);
std::string ratio_label(double ratio);

}  // namespace swell::sim
