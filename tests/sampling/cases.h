// Reads the reference cases that tools/make_decode_cases.py wrote.
#pragma once

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/json.h"

namespace sluice::sampling {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline json::array load_cases(const std::string& name) {
  std::ifstream file(std::string(SLUICE_TEST_DATA) + "/" + name);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<json::value> parsed = parse_json(text, name);
  SLUICE_CHECK(parsed.ok());
  return parsed->as_array();
}

// null stands for -Inf, a masked token.
inline std::vector<float> floats(const json::value& list) {
  std::vector<float> values;
  for (const json::value& entry : list.as_array()) {
    values.push_back(entry.is_null() ? -std::numeric_limits<float>::infinity() : entry.to_number<float>());
  }
  return values;
}

inline std::vector<Token> tokens(const json::value& list) {
  std::vector<Token> values;
  for (const json::value& entry : list.as_array()) values.push_back(entry.to_number<Token>());
  return values;
}

}  // namespace sluice::sampling
