#include "lab/html/page.h"

#include <fmt/format.h>

#include <fstream>

#include "lab/html/chart.h"

namespace sluice::lab {

namespace {

constexpr std::string_view kLightColours[] = {"#2563c9", "#d9571e", "#148f63", "#b98600",
                                              "#8b45c4", "#c0356d", "#0e8aa3", "#6b7280"};
constexpr std::string_view kDarkColours[] = {"#6ea8ff", "#ff9363", "#4fd3a0", "#f0c04f",
                                             "#c292ff", "#ff85b3", "#5ad1e6", "#a3acba"};

constexpr std::string_view kStyle = R"(
*{box-sizing:border-box}
body{margin:0 auto;max-width:1360px;padding:24px 20px 48px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .6rem}
p{max-width:75ch;margin:.5rem 0}.sub{color:var(--soft)}
pre{background:var(--panel);padding:12px 14px;border-radius:8px;overflow-x:auto;font:13px/1.45 ui-monospace,monospace}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:5px 12px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left;padding-left:0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0;background:var(--panel);border-radius:10px;padding:12px 14px;min-width:0}
figcaption{font-weight:600;margin-bottom:2px}svg{width:100%;height:auto;display:block}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.82rem;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.grid{stroke:var(--line);stroke-width:1}.tick,.axis{fill:var(--soft);font-size:12px}
path{fill:none;stroke-width:2;stroke-linejoin:round}
@media(max-width:560px){body{padding:16px 12px 32px}.tick,.axis{font-size:16px}}
)";

std::string colours(const std::string_view* list, std::string_view surfaces) {
  std::string out(surfaces);
  for (int i = 0; i < 8; ++i) out += fmt::format("--c{}:{};", i, list[i]);
  return out;
}

std::string style() {
  std::string out = colour_rules();
  out += kStyle;
  for (int i = 0; i < 8; ++i) out += fmt::format(".b{0}{{background:var(--c{0})}}", i);
  return out;
}

}  // namespace

std::string colour_rules() {
  std::string out = fmt::format(
      ":root{{color-scheme:light dark;{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}",
      colours(kLightColours, "--paper:#fff;--panel:#f5f6f8;--ink:#16181d;--soft:#5b6270;--line:#dfe2e8;"),
      colours(kDarkColours, "--paper:#14161a;--panel:#1d2026;--ink:#e8eaee;--soft:#a0a7b4;--line:#343943;"));
  for (int i = 0; i < 8; ++i) out += fmt::format(".f{0}{{fill:var(--c{0})}}.l{0}{{stroke:var(--c{0})}}", i);
  return out;
}

HtmlPage::HtmlPage(std::string_view title, std::string_view subtitle) : title_(title) {
  body_ = fmt::format("<h1>{}</h1><p class=\"sub\">{}</p>\n", html_escaped(title), html_escaped(subtitle));
}

void HtmlPage::heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", html_escaped(text));
}

void HtmlPage::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", html_escaped(text));
}

void HtmlPage::preformatted(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", html_escaped(text));
}

void HtmlPage::table(const std::vector<std::string>& header,
                     const std::vector<std::vector<std::string>>& rows) {
  body_ += "<div class=\"wide\"><table><thead><tr>";
  for (const std::string& cell : header) body_ += fmt::format("<th>{}</th>", html_escaped(cell));
  body_ += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    body_ += "<tr>";
    for (const std::string& cell : row) body_ += fmt::format("<td>{}</td>", html_escaped(cell));
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void HtmlPage::figures(const std::vector<std::string>& figures) {
  body_ += "<div class=\"figures\">\n";
  for (const std::string& one : figures) body_ += one;
  body_ += "</div>\n";
}

std::string HtmlPage::text() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{}</style></head>\n<body>\n{}"
      "</body></html>\n",
      html_escaped(title_), style(), body_);
}

Status write_text_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.flush();
  if (!file) return Error{ErrorCode::Io, fmt::format("'{}' cannot be written", path)};
  return {};
}

}  // namespace sluice::lab
