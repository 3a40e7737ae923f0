#include "request/request.h"

namespace sluice::request {

Status validate(const Task& task, int vocab) {
  const auto* sampling = std::get_if<SamplingParams>(&task);
  return sampling == nullptr ? Status{} : validate(*sampling, vocab);
}

int sequence_count(const Request& request) {
  return request.pooling() != nullptr ? 1 : sequence_count(request.sampling());
}

int max_tokens(const Request& request) {
  return request.pooling() != nullptr ? 0 : request.sampling().max_tokens;
}

bool is_search(const Request& request) {
  return request.pooling() == nullptr && sampling_of(request.sampling()) == nullptr;
}

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::Stop:
      return "stop";
    case FinishReason::Length:
      return "length";
    case FinishReason::Cancelled:
      return "cancelled";
    case FinishReason::Expired:
      return "expired";
    case FinishReason::Error:
      break;
  }
  return "error";
}

}  // namespace sluice::request
