// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace swell::sim {

/// `text` for use in HTML and SVG.
std::string escaped(std::string_view text);

/// A colour of its own for each of several policies, as a CSS colour; told apart by colour-blind
/// readers too.
std::string policy_colour(std::size_t index);

/// One axis: values to places, linear or logarithmic.
class Axis {
 public:
  Axis(double min, double max, double from, double to, bool logarithmic = false);
  double place(double value) const;  ///< clamped to the axis
  double min() const { return min_; }
  double max() const { return max_; }
  /// Round values to mark, about `count`.
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

  /// Marks, grid lines and a caption; `label` turns a value into its text.
  void x_axis(const Axis& axis, std::string_view caption, std::string (*label)(double),
              int marks = 6);
  void y_axis(const Axis& axis, std::string_view caption, std::string (*label)(double),
              int marks = 5);
  void add(std::string shape) { shapes_ += std::move(shape); }
  void line(double xa, double ya, double xb, double yb, std::string_view css_class);
  void text(double x, double y, std::string_view text, std::string_view css_class,
            std::string_view anchor = "start");
  /// A path through the points; `colour` empty: by class alone.
  void path(const std::vector<std::pair<double, double>>& points, std::string_view css_class,
            std::string_view colour, std::string_view title);

  /// `name` is what a screen reader says.
  std::string svg(std::string_view name) const;

 private:
  Frame frame_;
  std::string shapes_;
};

/// "45 s", "3 min", "2 h", "4 d"; "20 ms".
std::string time_label(double seconds);
std::string number_label(double value);
std::string percent_label(double share);
std::string ratio_label(double ratio);

}  // namespace swell::sim
