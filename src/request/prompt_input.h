// What a prompt may have besides tokens: embeddings in the place of some of them, and positions in several sections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/sha256.h"

namespace sluice::request {

inline constexpr int kMaxSections = 8;
inline constexpr int32_t kMaxPosition = 1 << 28;

// Positions [begin, end) of a prompt whose embeddings come from something else than the tokens there, which are
// placeholders: a picture, for instance.
struct EmbeddingSpan {
  int begin = 0, end = 0;
  Sha256Digest content{};  // of what the embeddings are made from: equal content gives equal embeddings
  // Its positions see all of the span, later ones too. Work then never ends inside of it (it may begin there, behind a
  // cached prefix), and its blocks are published only when all of it is computed.
  bool bidirectional = false;

  friend bool operator==(const EmbeddingSpan&, const EmbeddingSpan&) = default;
};

// A picture as a vision tower reads it, already of the size that its family wants.
struct PromptImage {
  Sha256Digest content{};  // of its size and its pixels
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// What the embeddings of a span are made from: rows [first, first + length of the span) of what the tower makes of a picture.
struct EmbeddingSource {
  std::shared_ptr<const PromptImage> image;
  int first = 0;
};

// Rotary positions of the tokens, [sections, tokens]: where a model turns sections of a head by different positions (time,
// height, width of a picture). With one section and no values every token has its index.
struct Positions {
  int sections = 1;
  std::vector<int32_t>
      values;  // [sections, tokens of the prompt]; empty: the index of the token in every section

  // Tokens behind the prompt count on from the largest position in it, the same in every section.
  int32_t at(int section, int token) const {
    if (values.empty()) return token;
    const auto prompt = static_cast<int>(values.size()) / sections;
    if (token >= prompt) return *std::max_element(values.begin(), values.end()) + 1 + token - prompt;
    return values[static_cast<size_t>(section) * static_cast<size_t>(prompt) + static_cast<size_t>(token)];
  }
  friend bool operator==(const Positions&, const Positions&) = default;
};

// The span that a chunk ending at `end` would split though it must not; null: none.
inline const EmbeddingSpan* split_by(const std::vector<EmbeddingSpan>& spans, int end) {
  const auto found = std::find_if(spans.begin(), spans.end(), [&](const EmbeddingSpan& span) {
    return span.bidirectional && span.begin < end && end < span.end;
  });
  return found == spans.end() ? nullptr : &*found;
}

}  // namespace sluice::request
