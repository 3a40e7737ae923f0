#include "runtime/memory/picture_embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <utility>
#include <vector>

#include "base/system/memory.h"

namespace sluice::runtime {

namespace {

// Position behind its last embedding.
int end_of_picture(const request::Request& request, const request::PromptImage& image) {
  int end = 0;
  for (size_t i = 0; i < request.spans.size(); ++i)
    if (request.sources[i].image.get() == &image) end = request.spans[i].end;
  return end;
}

}  // namespace

PictureEmbeddings::PictureEmbeddings(const models::Model& model, size_t bytes)
    : model_(model), limit_(bytes) {
  if (!model.files.vision || !model.vision) return;
  tower_.emplace(*model.files.vision, *model.vision, *model.backend);
  run_.emplace(*tower_);
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

bool PictureEmbeddings::is_known(const Sha256Digest& content) const {
  return fresh_.contains(content) || places_.contains(content) || left_.contains(content);
}

bool PictureEmbeddings::has_embeddings(const Reader& reader) const {
  return std::all_of(reader.work->spans.begin(), reader.work->spans.end(), [&](const auto& span) {
    const auto source = source_of(*reader.request, span);
    return !source || is_known((*source)->image->content);
  });
}

bool PictureEmbeddings::is_ready(const Reader& reader) const {
  return admitted_ ? admitted_->contains(reader.work) : has_embeddings(reader);
}

// What was used, and what nobody asks for any more: no request holds its picture.
void PictureEmbeddings::forget_used() {
  left_.clear();
  run_->drop_forsaken();
  std::erase_if(fresh_, [](const auto& one) { return one.second.is_read || one.second.image.expired(); });
}

// False: nothing is missing.
bool PictureEmbeddings::begin_pass(std::span<const Reader> readers, int64_t most_patches) {
  const int patch = model_.files.vision->patch;
  TowerRun::Images next;
  std::set<Sha256Digest> taken;
  int64_t patches = 0;
  for (const Reader& reader : readers) {
    for (const request::EmbeddingSpan& span : reader.work->spans) {
      const auto source = source_of(*reader.request, span);
      if (!source || is_known((*source)->image->content)) continue;
      const std::shared_ptr<const request::PromptImage>& image = (*source)->image;
      const int64_t count = int64_t{image->width / patch} * (image->height / patch);
      if (!next.empty() && patches + count > most_patches) continue;
      if (!taken.insert(image->content).second) continue;
      next.push_back(image);
      patches += count;
    }
  }
  if (next.empty()) return false;
  run_->begin(std::move(next));
  return true;
}

void PictureEmbeddings::keep_made() {
  const std::vector<kernels::Memory> made = run_->finish();
  ++counts_.passes;
  counts_.encoded += made.size();
  for (size_t i = 0; i < made.size(); ++i) {
    const auto& image = run_->images()[i];
    fresh_[image->content] = {.image = image, .embeddings = made[i]};
    keep(image->content, made[i]);
  }
  run_->drop();
}

// For the tower, behind the works that may run.
double PictureEmbeddings::seconds_left(std::span<const Reader> readers, const request::PictureShare& share) {
  admitted_.emplace();
  int64_t taken = 0;
  for (const Reader& reader : readers) {
    if (!has_embeddings(reader)) continue;
    const int tokens = reader.work->end - reader.work->begin;
    if (taken > 0 && taken + tokens > share.tokens) continue;
    taken += tokens;
    admitted_->insert(reader.work);
  }
  if (taken == 0) return share.seconds;
  const double part = share.tokens == request::kAnyTokens ? 1 : static_cast<double>(taken) / share.tokens;
  return share.seconds * std::max(0.0, 1 - part);
}

void PictureEmbeddings::begin_step(std::span<const Reader> readers, const request::PictureShare& share) {
  admitted_.reset();
  tower_seconds_ = 0;
  if (!tower_) return;
  forget_used();
  const bool is_parted = std::isfinite(share.seconds);
  run_tower(readers, is_parted ? seconds_left(readers, share) : share.seconds);
  if (!admitted_ || left_.empty()) return;
  for (const Reader& reader : readers)
    if (has_embeddings(reader)) admitted_->insert(reader.work);
}

void PictureEmbeddings::run_tower(std::span<const Reader> readers, double seconds) {
  run_->begin_step(seconds);
  TowerRun::State state = TowerRun::State::Runs;
  while (state != TowerRun::State::OutOfTime) {
    try {
      if (!run_->running() &&
          !begin_pass(readers, std::isfinite(seconds) ? kPartedPassPatches : kPassPatches))
        break;
      state = run_->advance();
      if (state == TowerRun::State::Done) keep_made();
    } catch (const std::bad_alloc&) {  // place() tries them one by one
      if (run_->images().empty()) break;
      for (const auto& image : run_->images()) left_.insert(image->content);
      run_->drop();
    }
  }
  tower_seconds_ = run_->end_step();
}

Result<kernels::Memory> PictureEmbeddings::encode(const request::PromptImage& image, bool is_last_use) {
  if (const auto fresh = fresh_.find(image.content); fresh != fresh_.end()) {
    if (fresh->second.uses++ > 0) ++counts_.reused;
    fresh->second.is_read |= is_last_use;
    return fresh->second.embeddings;
  }
  if (const auto found = places_.find(image.content); found != places_.end()) {
    ++counts_.reused;
    kept_.splice(kept_.begin(), kept_, found->second);
    return found->second->embeddings;
  }
  try {
    kernels::Memory made = tower_->encode(image.rgb.data(), image.width, image.height);
    ++counts_.passes;
    ++counts_.encoded;
    keep(image.content, made);
    return made;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<const request::EmbeddingSource*> PictureEmbeddings::source_of(
    const request::Request& request, const request::EmbeddingSpan& span) const {
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
  return &source;
}

Result<kernels::Memory> PictureEmbeddings::rows_of(const request::Request& request,
                                                   const request::EmbeddingSpan& span,
                                                   const request::Work& work) {
  const auto source = source_of(request, span);
  if (!source) return source.error();
  Result<kernels::Memory> all =
      encode(*(*source)->image, work.end >= end_of_picture(request, *(*source)->image));
  if (!all) return all;
  const int begin = std::max(span.begin, work.begin) - span.begin + (*source)->first;
  const int end = std::min(span.end, work.end) - span.begin + (*source)->first;
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
