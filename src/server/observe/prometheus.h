// Writes the Prometheus text format.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/metrics.h"

namespace sluice::server {

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

class PrometheusText {
 public:
  // Begins a family; its values follow.
  void family(std::string_view name, std::string_view kind, std::string_view help);
  void value(const Labels& labels, double value);
  // `cuts` are bucket numbers, ascending.
  void histogram(const Labels& labels, const engine::Histogram& histogram, std::span<const size_t> cuts);
  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, const Labels& labels, double value);

  std::string text_, name_;
};

}  // namespace sluice::server
