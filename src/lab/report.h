// Results for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/speed.h"

namespace sluice::lab {

struct Setting {
  std::string model;  // path
  int64_t parameters = 0, weight_bytes = 0;
  std::string backend;
  int threads = 0;
  DType kv_type = DType::F16;
  std::optional<Limits> limits;
};

std::string to_markdown(const Setting& setting, const std::vector<SpeedResult>& results);
json::object to_json(const Setting& setting, const std::vector<SpeedResult>& results);

}  // namespace sluice::lab
