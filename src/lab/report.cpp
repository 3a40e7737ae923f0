#include "lab/report.h"

#include <fmt/format.h>

#include <numeric>

namespace sluice::lab {

namespace {

const char* name(Bound bound) {
  return bound == Bound::Memory ? "memory" : "compute";
}

int steps_of(const SpeedResult& result) {
  return result.test.kind == SpeedTest::Kind::Answer ? result.test.tokens : 1;
}

double multiplications(const StepCost& cost) {
  return std::accumulate(cost.operations.begin(), cost.operations.end(), cost.attention_operations);
}

// Of one step (tg) or of the whole prompt (pp).
std::string profile_table(const SpeedResult& result, const std::optional<Limits>& limits) {
  const double steps = steps_of(result);
  double all = 0;
  for (const OperationCost& operation : result.operations) all += operation.seconds;
  std::string out = fmt::format(
      "\n{}:\n\n| operation | calls | ms | share | MB | GOP | of the limit "
      "|\n|---|---:|---:|---:|---:|---:|---:|\n",
      result.test.name());
  for (const OperationCost& operation : result.operations) {
    out += fmt::format("| {} | {:.0f} | {:.3f} | {:.1f} % | {:.2f} | {:.3f} |", operation.name,
                       static_cast<double>(operation.calls) / steps, operation.seconds / steps * 1e3,
                       operation.seconds / all * 100, operation.cost.bytes / steps / 1e6,
                       multiplications(operation.cost) / steps / 1e9);
    out += limits ? fmt::format(" {:.0f} % |\n",
                                step_floor(operation.cost, *limits).seconds / operation.seconds * 100)
                  : " – |\n";
  }
  return out;
}

json::array profile_json(const SpeedResult& result, const std::optional<Limits>& limits) {
  json::array out;
  for (const OperationCost& operation : result.operations) {
    json::object item{{"operation", operation.name},
                      {"calls", operation.calls},
                      {"seconds", operation.seconds},
                      {"bytes", operation.cost.bytes},
                      {"operations", multiplications(operation.cost)}};
    if (limits) item["floor_seconds"] = step_floor(operation.cost, *limits).seconds;
    out.push_back(std::move(item));
  }
  return out;
}

}  // namespace

std::string to_markdown(const Setting& setting, const std::vector<SpeedResult>& results) {
  std::string out = fmt::format("{}: {:.1f} M parameters, {:.1f} MB; {}, {} threads, KV {}\n", setting.model,
                                static_cast<double>(setting.parameters) / 1e6,
                                static_cast<double>(setting.weight_bytes) / 1e6, setting.backend,
                                setting.threads, sluice::name(setting.kv_type));
  if (setting.limits) {
    const auto& multiply = setting.limits->multiply;
    out += fmt::format("Limits measured: read {:.1f} GB/s; multiply", setting.limits->read / 1e9);
    for (size_t i = 0; i < multiply.size(); ++i)
      out += fmt::format("{} {} {:.0f} GOP/s", i == 0 ? "" : ",", kArithmeticNames[i], multiply[i] / 1e9);
    out += ".\n";
  }
  out += "\n| test | tokens/s | ± | ms | floor ms | reached | bound |\n|---|---:|---:|---:|---:|---:|---|\n";
  for (const SpeedResult& result : results) {
    const double median = result.median();
    const int steps = steps_of(result);
    out += fmt::format("| {} | {:.1f} | {:.0f} % | {:.2f} |", result.test.name(), result.rate(median),
                       result.spread() * 100, median / steps * 1e3);
    out += result.floor ? fmt::format(" {:.2f} | {:.0f} % | {} |\n", result.floor->seconds / steps * 1e3,
                                      result.floor->seconds / median * 100, name(result.floor->bound))
                        : " – | – | – |\n";
  }
  out += "\nms: of the whole prompt (pp), of one step (tg). Medians; ± is half the range.\n";
  for (const SpeedResult& result : results)
    if (!result.operations.empty()) out += profile_table(result, setting.limits);
  return out;
}

json::object to_json(const Setting& setting, const std::vector<SpeedResult>& results) {
  json::object out{{"model", setting.model},
                   {"parameters", setting.parameters},
                   {"weight_bytes", setting.weight_bytes},
                   {"backend", setting.backend},
                   {"threads", setting.threads},
                   {"kv_type", sluice::name(setting.kv_type)}};
  if (setting.limits) {
    json::object multiply;
    for (size_t i = 0; i < kArithmeticNames.size(); ++i)
      multiply[kArithmeticNames[i]] = setting.limits->multiply[i];
    out["limits"] = {{"read_bytes_per_second", setting.limits->read}, {"operations_per_second", multiply}};
  }
  json::array tests;
  for (const SpeedResult& result : results) {
    const SpeedTest& test = result.test;
    json::object item{
        {"test", test.name()},       {"kind", test.kind == SpeedTest::Kind::Prompt ? "pp" : "tg"},
        {"tokens", test.tokens},     {"batch", test.batch},
        {"depth", test.depth},       {"tokens_per_second", result.rate(result.median())},
        {"spread", result.spread()}, {"seconds", json::value_from(result.seconds)}};
    if (result.floor) {
      item["floor_seconds"] = result.floor->seconds;
      item["reached"] = result.floor->seconds / result.median();
      item["bound"] = name(result.floor->bound);
    }
    if (!result.operations.empty()) item["profile"] = profile_json(result, setting.limits);
    tests.push_back(std::move(item));
  }
  out["tests"] = std::move(tests);
  return out;
}

}  // namespace sluice::lab
