// Any bytes as a step: an error, or a step whose positions and tables can be read and that gives the same bytes again.
#include "request/step_codec.h"

#include <algorithm>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const Result<request::Step> step = request::parse_step(bytes);
  if (!step.ok()) return 0;
  [[maybe_unused]] static volatile int64_t sink;
  int64_t sum = step->computed_tokens();
  for (size_t i = 0; i < step->work.size(); ++i) {
    if (step->work[i].known_end() <= step->work[i].begin) std::abort();
    for (int group = 0; group < step->tables.groups; ++group)
      for (const BlockId block : step->tables.of(i, group)) sum += block.value;
  }
  sink = sum;
  const std::vector<std::byte> again = request::serialize(*step);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  return 0;
}
