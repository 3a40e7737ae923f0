// A report as one HTML file that needs nothing else: light and dark, wide and narrow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::lab {

// Style rules of the colours of pages and plots, for light and for dark.
std::string colour_rules();

class HtmlPage {
 public:
  HtmlPage(std::string_view title, std::string_view subtitle);

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void preformatted(std::string_view text);
  void table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);
  // Of chart_svg() and lanes_svg(); side by side where there is room.
  void figures(const std::vector<std::string>& figures);

  std::string text() const;

 private:
  std::string title_, body_;
};

// Errors name the file.
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace sluice::lab
