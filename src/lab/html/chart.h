// Plots as inline SVG without scripts: lines and dots over two axes, and bars in lanes. Colours are those of the page
// around them, so that one picture is right on light and on dark.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::lab {

struct ChartAxis {
  std::string title;
  bool logarithmic = false;
  std::optional<double> low, high;  // absent: by the values
};

struct ChartSeries {
  enum class Style : uint8_t { Line, Dots, Bars };
  std::string name;
  Style style = Style::Line;
  std::vector<std::pair<double, double>> points;
  std::vector<std::string> notes = {};  // shown where the pointer rests on a point; one each, or none
};

struct Chart {
  std::string title;
  ChartAxis x, y;
  std::vector<ChartSeries> series;
};

// Values that are no finite numbers, or not above 0 on a logarithmic axis, are left out.
std::string chart_svg(const Chart& chart);

struct LaneBar {
  int lane = 0;
  double begin = 0, end = 0;
  int kind = 0;  // index into Lanes::kinds
  std::string note = {};
};

struct Lanes {
  std::string title, x_title;
  std::vector<std::string> kinds;
  std::vector<LaneBar> bars;
  double end = 0;  // of the axis; 0: by the bars
  std::vector<std::string> names =
      {};  // of the lanes, each above its bars; empty: they are narrow and have none
};

std::string lanes_svg(const Lanes& lanes);
// What is inside of its <svg>.
struct Drawing {
  double width = 0, height = 0;
  std::string body;
};
Drawing draw_lanes(const Lanes& lanes);

// For text between tags and in attributes.
std::string html_escaped(std::string_view text);

}  // namespace sluice::lab
