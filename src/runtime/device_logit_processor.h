// What a request does to its logits beyond the filters, as the edits that a device applies before it samples.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/sample.h"
#include "request/sampling_params.h"
#include "sampling/token_sampler.h"

namespace sluice::runtime {

// One sequence's edits, kept up to date token by token: a step copies the list, however long the sequence is.
class DeviceLogitProcessor {
 public:
  // Nothing where edits cannot say what the request asks for: bad words of several tokens. Grammars and lists of allowed
  // tokens are masks beside the edits.
  static std::optional<DeviceLogitProcessor> of(const request::SamplingParams& params,
                                                const sampling::SequenceStart& start,
                                                std::span<const Token> end_tokens);

  void accept(Token token);
  std::span<const kernels::LogitAdjustment> list() const { return list_; }
  // How they are applied to the row that comes `ahead` tokens after the `output` tokens accepted so far. The last of
  // those ahead is in the row's slot. REQUIRES: ahead is 0 or 1
  void fill(kernels::SampleArgs& row, size_t output, int ahead) const;

 private:
  kernels::LogitAdjustment& edit_of(Token token);

  std::vector<kernels::LogitAdjustment> list_;  // tokens ascend
  float repetition_ = 1, frequency_ = 0, presence_ = 0;
  bool counts_ = false;
  size_t min_tokens_ = 0;
};

}  // namespace sluice::runtime
