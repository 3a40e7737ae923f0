// Log-probabilities of a prompt's tokens, read row by row.
#pragma once

#include <span>
#include <vector>

#include "request/request.h"
#include "runtime/sequences/sequence.h"

namespace sluice::runtime {

class PromptLogprobs {
 public:
  // The positions of the work whose logits are about tokens of the prompt; none where the request does not ask. The logits
  // at position p are about the token at p + 1.
  static StepNeed::Range range(const request::Request& request, const request::Work& work);

  Status read(const request::Request& request, const PromptRows& rows, std::vector<float>& buffer);
  std::vector<request::Sampled> take() { return std::exchange(found_, {}); }
  bool empty() const { return found_.empty(); }

 private:
  std::vector<request::Sampled> found_;  // since they were last taken
};

}  // namespace sluice::runtime
