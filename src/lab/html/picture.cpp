#include "lab/html/picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/html/page.h"

namespace sluice::lab {

namespace {

constexpr double kHead = 30, kCaption = 22, kMargin = 14;

std::string legend(const std::vector<std::string>& kinds, double right) {
  std::string out;
  double x = right;
  for (size_t i = kinds.size(); i-- > 0;) {
    constexpr double kLetter = 7;  // about
    x -= kLetter * double(kinds[i].size()) + 26;
    out += fmt::format(
        "<rect class=\"f{}\" x=\"{:.0f}\" y=\"11\" width=\"10\" height=\"10\" rx=\"2\"/>"
        "<text class=\"tick\" x=\"{:.0f}\" y=\"20\">{}</text>",
        i, x, x + 15, html_escaped(kinds[i]));
  }
  return out;
}

}  // namespace

std::string lanes_picture(const std::string& title, const std::vector<Lanes>& parts) {
  std::string body;
  double width = 0, y = kHead;
  for (const Lanes& lanes : parts) {
    const Drawing drawing = draw_lanes(lanes);
    width = std::max(width, drawing.width);
    body += fmt::format(
        "<text class=\"title\" x=\"{}\" y=\"{:.0f}\">{}</text><g transform=\"translate(0 {:.0f})\">{}</g>\n",
        kMargin, y + 15, html_escaped(lanes.title), y + kCaption, drawing.body);
    y += kCaption + drawing.height;
  }
  if (!parts.empty()) body += legend(parts.front().kinds, width - kMargin);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"{2}\"><style>{3}text{{font:12px system-ui,sans-serif}}"
      ".title{{fill:var(--ink);font-size:13px;font-weight:600}}.tick,.axis{{fill:var(--soft)}}"
      ".grid{{stroke:var(--line)}}</style><rect width=\"100%\" height=\"100%\" rx=\"8\" "
      "fill=\"var(--panel)\"/>"
      "<text class=\"title\" x=\"{4}\" y=\"20\">{2}</text>\n{5}</svg>\n",
      width, y, html_escaped(title), colour_rules(), kMargin, body);
}

}  // namespace sluice::lab
