#include "runtime/memory/picture_embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "base/system/memory.h"

namespace sluice::runtime {

PictureEmbeddings::PictureEmbeddings(const models::Model& model, size_t bytes)
    : model_(model), limit_(bytes) {
  if (model.files.vision && model.vision) tower_.emplace(*model.files.vision, *model.vision, *model.backend);
}

void PictureEmbeddings::keep(const Sha256Digest& content, const kernels::Memory& embeddings) {
  const auto bytes = static_cast<size_t>(embeddings.view.bytes());
  if (bytes > limit_) return;
  while (used_ + bytes > limit_) {
    used_ -= static_cast<size_t>(kept_.back().embeddings.view.bytes());
    places_.erase(kept_.back().content);
    kept_.pop_back();
  }
  kept_.push_front({content, embeddings});
  places_[content] = kept_.begin();
  used_ += bytes;
}

Result<kernels::Memory> PictureEmbeddings::encode(const request::PromptImage& image) {
  if (const auto found = places_.find(image.content); found != places_.end()) {
    ++counts_.reused;
    kept_.splice(kept_.begin(), kept_, found->second);
    return found->second->embeddings;
  }
  try {
    kernels::Memory made = tower_->encode(image.rgb.data(), image.width, image.height);
    ++counts_.encoded;
    keep(image.content, made);
    return made;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<kernels::Memory> PictureEmbeddings::rows_of(const request::Request& request,
                                                   const request::EmbeddingSpan& span,
                                                   const request::Work& work) {
  const auto place = std::find(request.spans.begin(), request.spans.end(), span);
  if (!tower_ || place == request.spans.end() || request.sources.size() != request.spans.size())
    return Error{ErrorCode::Unsupported, "the prompt has a picture; the model reads text alone"};
  const request::EmbeddingSource& source =
      request.sources[static_cast<size_t>(place - request.spans.begin())];
  const models::VisionSpec& spec = *model_.files.vision;
  const int unit = spec.unit();
  const request::PromptImage& image = *source.image;
  const int tokens = models::tile_tokens(spec, image.width, image.height);
  if (image.width % unit != 0 || image.height % unit != 0 || source.first + span.end - span.begin > tokens)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a picture of {} x {} pixels cannot fill {} positions", image.width,
                             image.height, span.end - span.begin)};
  Result<kernels::Memory> all = encode(image);
  if (!all) return all;
  const int begin = std::max(span.begin, work.begin) - span.begin + source.first;
  const int end = std::min(span.end, work.end) - span.begin + source.first;
  all->view = all->view.rows(begin, end);
  return all;
}

Status PictureEmbeddings::place(const request::Request& request, const request::Work& work, Batch& batch) {
  std::vector<kernels::Memory> made;
  for (const request::EmbeddingSpan& span : work.spans) {
    Result<kernels::Memory> rows = rows_of(request, span, work);
    if (!rows) return rows.error();
    made.push_back(std::move(*rows));
  }
  const int first_row = batch.rows();
  for (size_t i = 0; i < made.size(); ++i) {
    const request::EmbeddingSpan& span = work.spans[i];
    const int begin = std::max(span.begin, work.begin);
    const int row = first_row + begin - work.begin;
    if (span.bidirectional) batch.see(row, std::min(span.end, work.end) - begin, span.end - 1);
    batch.embed(row, made[i].view, made[i].owner);
  }
  const request::Positions& positions = request.positions;
  if (positions.values.empty()) return {};
  const auto prompt = static_cast<int>(request.prompt.size());
  const int32_t behind = work.end > prompt ? positions.at(0, prompt) : 0;
  for (int token = work.begin; token < work.end; ++token) {
    std::array<int32_t, kernels::kRopeSections> at;
    for (int section = 0; section < kernels::kRopeSections; ++section)
      at[static_cast<size_t>(section)] = token < prompt
                                             ? positions.at(std::min(section, positions.sections - 1), token)
                                             : behind + token - prompt;
    batch.turn(first_row + token - work.begin, at);
  }
  return {};
}

}  // namespace sluice::runtime
