// What is asked of a compression.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::compress {

enum class Mode : uint8_t {
  Tokens,   // sentences by how well they predict the question, then words by their self-information
  Prefill,  // chunks by the attention of a look-ahead, at their positions
  Summary,  // the served model writes a summary
  Extract,  // the served model fills a schema
};
struct ModeName {
  std::string_view name;
  Mode mode;
};
inline constexpr std::array<ModeName, 4> kModes{{{"tokens", Mode::Tokens},
                                                 {"prefill", Mode::Prefill},
                                                 {"summary", Mode::Summary},
                                                 {"extract", Mode::Extract}}};
std::string_view name(Mode mode);

struct Options {
  Mode mode = Mode::Tokens;
  std::optional<double> ratio;    // kept share of the tokens; 0.5 where max_tokens is not given either
  std::optional<int> max_tokens;  // kept in all texts together; not beside ratio
  int min_keep = 64;              // see BudgetRule
  std::string schema;             // of Extract: JSON
  std::string question;           // what the texts are read for; empty: what the last text ends with

  static constexpr double kRatio = 0.5;
};

}  // namespace sluice::compress
