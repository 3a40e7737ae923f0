#include "lab/html/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::lab {

namespace {

constexpr double kWidth = 640, kHeight = 300, kLeft = 68, kRight = 24, kTop = 14, kBottom = 48;
constexpr int kColours = 8;

// "1.5k", "20M", "0.05"
std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e12) return fmt::format("{:.4g}T", value / 1e12);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

// Maps values of an axis to places of the picture.
class Scale {
 public:
  Scale(const ChartAxis& axis, double low, double high, double from, double to)
      : logarithmic_(axis.logarithmic), from_(from), to_(to) {
    low_ = axis.low.value_or(low);
    high_ = axis.high.value_or(high);
    if (logarithmic_) {
      low_ = std::pow(10, std::floor(std::log10(low_) + 1e-9));
      high_ = std::pow(10, std::ceil(std::log10(high_) - 1e-9));
      if (!(high_ > low_)) high_ = low_ * 10;
    } else if (!axis.high) {
      step_ = nice_step((high_ - low_) / 5);
      high_ = std::ceil(high_ / step_ - 1e-9) * step_;
    }
    if (!(high_ > low_)) high_ = low_ + 1;
    if (step_ == 0) step_ = nice_step((high_ - low_) / 5);
  }

  bool takes(double value) const { return std::isfinite(value) && (!logarithmic_ || value > 0); }
  double at(double value) const {
    const double share =
        logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + std::clamp(share, 0.0, 1.0) * (to_ - from_);
  }
  std::vector<double> ticks() const {
    std::vector<double> out;
    if (logarithmic_) {
      const int decades = static_cast<int>(std::lround(std::log10(high_ / low_)));
      const int stride = std::max(1, decades / 7);
      for (int i = 0; i <= decades; i += stride) out.push_back(low_ * std::pow(10, i));
      return out;
    }
    for (double value = std::ceil(low_ / step_ - 1e-9) * step_; value <= high_ + step_ * 1e-6; value += step_)
      out.push_back(std::abs(value) < step_ * 1e-9 ? 0 : value);
    return out;
  }

 private:
  static double nice_step(double rough) {
    if (!(rough > 0)) return 1;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
      if (rough <= factor * power) return factor * power;
    return 10 * power;
  }

  bool logarithmic_;
  double from_, to_;
  double low_ = 0, high_ = 1, step_ = 0;
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(double value, bool logarithmic) {
    if (!std::isfinite(value) || (logarithmic && !(value > 0))) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Linear axes begin at 0 where nothing lies below it.
  void settle(bool logarithmic) {
    if (!(high >= low)) *this = {.low = 1, .high = 10};
    if (!logarithmic) low = std::min(0.0, low);
  }
};

std::string axes_svg(const Chart& chart, const Scale& x, const Scale& y) {
  std::string out;
  for (const double tick : y.ticks())
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"tick\" "
        "text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{}</text>",
        kLeft, kWidth - kRight, y.at(tick), y.at(tick), kLeft - 6, y.at(tick) + 4, tick_text(tick));
  for (const double tick : x.ticks())
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"tick\" "
        "text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3}\">{4}</text>",
        x.at(tick), kTop, kHeight - kBottom, kHeight - kBottom + 20, tick_text(tick));
  out += fmt::format("<text class=\"axis\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, html_escaped(chart.x.title));
  out += fmt::format(
      "<text class=\"axis\" text-anchor=\"middle\" transform=\"translate(16 {}) rotate(-90)\">{}</text>",
      (kTop + kHeight - kBottom) / 2, html_escaped(chart.y.title));
  return out;
}

std::string series_svg(const ChartSeries& series, int colour, const Scale& x, const Scale& y) {
  std::string path, marks;
  double bar = kWidth;
  for (size_t i = 1; i < series.points.size(); ++i)
    bar = std::min(bar, std::abs(x.at(series.points[i].first) - x.at(series.points[i - 1].first)));
  for (size_t i = 0; i < series.points.size(); ++i) {
    const auto& [px, py] = series.points[i];
    if (!x.takes(px) || !y.takes(py)) continue;
    const double left = x.at(px), top = y.at(py);
    const std::string note =
        i < series.notes.size() ? fmt::format("<title>{}</title>", html_escaped(series.notes[i])) : "";
    if (series.style == ChartSeries::Style::Line)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", left, top);
    if (series.style == ChartSeries::Style::Dots)
      marks += fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\">{}</circle>", colour,
                           left, top, note);
    if (series.style == ChartSeries::Style::Bars)
      marks += fmt::format(
          "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">{}</rect>",
          colour, left, top, std::max(1.0, bar - 1), std::max(0.0, kHeight - kBottom - top), note);
  }
  if (!path.empty()) marks += fmt::format("<path class=\"l{}\" d=\"{}\"/>", colour, path);
  return marks;
}

std::string legend(const std::vector<std::string>& names) {
  if (names.size() < 2) return "";
  std::string out = "<div class=\"legend\">";
  for (size_t i = 0; i < names.size(); ++i)
    out += fmt::format("<span><i class=\"b{}\"></i>{}</span>", i % kColours, html_escaped(names[i]));
  return out + "</div>";
}

std::string figure(const std::string& title, double height, const std::string& body,
                   const std::vector<std::string>& names) {
  return fmt::format(
      "<figure><figcaption>{0}</figcaption>{1}<svg viewBox=\"0 0 {2} {3}\" role=\"img\" "
      "aria-label=\"{0}\">{4}</svg></figure>\n",
      html_escaped(title), legend(names), kWidth, height, body);
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string chart_svg(const Chart& chart) {
  Range xs, ys;
  for (const ChartSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      xs.add(x, chart.x.logarithmic);
      ys.add(y, chart.y.logarithmic);
    }
  }
  xs.settle(chart.x.logarithmic);
  ys.settle(chart.y.logarithmic);
  const Scale x(chart.x, xs.low, xs.high, kLeft, kWidth - kRight);
  const Scale y(chart.y, ys.low, ys.high, kHeight - kBottom, kTop);
  std::string body = axes_svg(chart, x, y);
  std::vector<std::string> names;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    body += series_svg(chart.series[i], static_cast<int>(i % kColours), x, y);
    names.push_back(chart.series[i].name);
  }
  return figure(chart.title, kHeight, body, names);
}

std::string lanes_svg(const Lanes& lanes) {
  const Drawing drawing = draw_lanes(lanes);
  return figure(lanes.title, drawing.height, drawing.body, lanes.kinds);
}

Drawing draw_lanes(const Lanes& lanes) {
  int count = 1;
  double end = lanes.end;
  for (const LaneBar& bar : lanes.bars) {
    count = std::max(count, bar.lane + 1);
    if (lanes.end <= 0) end = std::max(end, bar.end);
  }
  // Of a lane with a name, where there are few and many, and of the name.
  constexpr double kNamed = 46, kOfMany = 32, kName = 18;
  constexpr int kFew = 6;
  const bool named = !lanes.names.empty();
  const double of_named = count <= kFew ? kNamed : kOfMany;
  const double each = named ? of_named : std::clamp(220.0 / count, 2.0, 14.0), before = named ? kName : 0;
  const double height = kTop + count * each + kBottom;
  const Scale x({.title = "", .low = 0, .high = end}, 0, end, kLeft, kWidth - kRight);
  std::string body;
  for (const double tick : x.ticks())
    body += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\"/><text class=\"tick\" "
        "text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>",
        x.at(tick), kTop, height - kBottom, height - kBottom + 20, tick_text(tick));
  for (size_t i = 0; i < lanes.names.size(); ++i)
    body += fmt::format("<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", kLeft,
                        kTop + double(i) * each + kName - 5, html_escaped(lanes.names[i]));
  for (const LaneBar& bar : lanes.bars) {
    if (bar.begin >= end) continue;
    const double left = x.at(bar.begin), right = x.at(bar.end);
    body += fmt::format(
        "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">{}</rect>",
        bar.kind % kColours, left, kTop + bar.lane * each + before, std::max(0.6, right - left),
        (each - before) * 0.8,
        bar.note.empty() ? "" : fmt::format("<title>{}</title>", html_escaped(bar.note)));
  }
  body += fmt::format("<text class=\"axis\" text-anchor=\"middle\" x=\"{}\" y=\"{:.1f}\">{}</text>",
                      (kLeft + kWidth - kRight) / 2, height - 8, html_escaped(lanes.x_title));
  return {kWidth, height, std::move(body)};
}

}  // namespace sluice::lab
