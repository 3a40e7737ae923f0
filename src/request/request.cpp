#include "request/request.h"

#include <fmt/format.h>

namespace sluice::request {

Status validate(const Task& task, int vocab) {
  const auto* sampling = std::get_if<SamplingParams>(&task);
  return sampling == nullptr ? Status{} : validate(*sampling, vocab);
}

Status validate_input(const Request& request) {
  const auto refuse = [](std::string message) {
    return Error{ErrorCode::InvalidArgument, std::move(message)};
  };
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  int behind = 0;  // the span before
  for (const EmbeddingSpan& span : request.spans) {
    // The last token of a prompt runs alone where several choices share the rest.
    if (span.begin < behind || span.end <= span.begin || span.end >= prompt)
      return refuse(fmt::format(
          "the span [{}, {}) of embeddings must be behind {} and end before the last of {} tokens",
          span.begin, span.end, behind, prompt));
    behind = span.end;
  }
  if (!request.sources.empty() && request.sources.size() != request.spans.size())
    return refuse(
        fmt::format("{} pictures for {} spans of embeddings", request.sources.size(), request.spans.size()));
  for (const EmbeddingSource& source : request.sources) {
    const PromptImage* image = source.image.get();
    if (image == nullptr || image->width < 1 || image->height < 1 || source.first < 0 ||
        image->rgb.size() !=
            size_t{3} * static_cast<size_t>(image->width) * static_cast<size_t>(image->height))
      return refuse("a span of embeddings has no picture, or one without all of its pixels");
  }
  const Positions& positions = request.positions;
  if (positions.sections < 1 || positions.sections > kMaxSections)
    return refuse(
        fmt::format("positions have {} sections; the limit is {}", positions.sections, kMaxSections));
  if (!positions.values.empty() &&
      static_cast<int64_t>(positions.values.size()) != positions.sections * prompt)
    return refuse(fmt::format("{} positions for {} sections of {} tokens", positions.values.size(),
                              positions.sections, prompt));
  for (const int32_t value : positions.values) {
    if (value < 0 || value > kMaxPosition)
      return refuse(fmt::format("position {}; it must be from 0 to {}", value, kMaxPosition));
  }
  return {};
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

bool uses_contrast_model(const Request& request) {
  return request.pooling() == nullptr &&
         std::holds_alternative<ContrastiveDecoding>(request.sampling().method);
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
