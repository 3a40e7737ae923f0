#include "server/observe/prometheus.h"

#include <fmt/format.h>

#include <iterator>

namespace sluice::server {

namespace {

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
}

}  // namespace

void PrometheusText::family(std::string_view name, std::string_view kind, std::string_view help) {
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

void PrometheusText::value(const Labels& labels, double value) {
  line("", labels, value);
}

void PrometheusText::line(std::string_view suffix, const Labels& labels, double value) {
  text_ += name_;
  text_ += suffix;
  for (size_t i = 0; i < labels.size(); ++i) {
    text_ += i == 0 ? '{' : ',';
    text_ += labels[i].first;
    text_ += "=\"";
    append_escaped(text_, labels[i].second);
    text_ += '"';
  }
  if (!labels.empty()) text_ += '}';
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void PrometheusText::histogram(const Labels& labels, const engine::Histogram& histogram,
                               std::span<const size_t> cuts) {
  Labels bucket = labels;
  bucket.emplace_back("le", "");
  uint64_t below = 0;
  size_t next = 0;
  for (const size_t cut : cuts) {
    for (; next <= cut; ++next) below += histogram.in_bucket(next);
    const std::string edge = fmt::format("{:.6g}", engine::Histogram::upper(cut));
    bucket.back().second = edge;
    line("_bucket", bucket, static_cast<double>(below));
  }
  for (; next < engine::Histogram::kBuckets; ++next) below += histogram.in_bucket(next);
  bucket.back().second = "+Inf";
  line("_bucket", bucket, static_cast<double>(below));
  line("_sum", labels, histogram.sum());
  line("_count", labels, static_cast<double>(below));
}

}  // namespace sluice::server
