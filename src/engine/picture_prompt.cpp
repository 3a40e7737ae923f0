#include "engine/picture_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/sha256.h"

namespace sluice::engine {

Status insert_pictures(chat::Rendering& rendering, std::string_view placeholder,
                       std::span<const Picture> pictures) {
  size_t found = 0;
  for (chat::TemplateSpan& span : rendering.spans) {
    if (span.is_user_input) continue;
    for (size_t at = span.text.find(placeholder); at != std::string::npos; ++found) {
      const std::string_view text =
          found < pictures.size() ? std::string_view(pictures[found].text) : placeholder;
      span.text.replace(at, placeholder.size(), text);
      at = span.text.find(placeholder, at + text.size());
    }
  }
  if (found == pictures.size()) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the chat template has places for {} pictures; the conversation has {}", found,
                           pictures.size())};
}

namespace {

constexpr size_t kSections = 3;  // time, height, width

struct Placed {
  const Picture::Run* run;
  int begin;  // in the prompt
};

// A picture's embeddings lie at (p, p + row, p + column), p being the position behind what comes before; what follows comes
// behind the largest of these.
request::Positions grid_positions(size_t prompt, std::span<const Placed> placed) {
  request::Positions out{.sections = static_cast<int>(kSections), .values = {}};
  out.values.resize(kSections * prompt);
  int32_t next = 0;
  size_t at = 0;
  const auto put = [&](int32_t time, int32_t row, int32_t column) {
    out.values[at] = time;
    out.values[prompt + at] = row;
    out.values[2 * prompt + at] = column;
    ++at;
  };
  for (const Placed& item : placed) {
    for (; at < static_cast<size_t>(item.begin); ++next) put(next, next, next);
    const int columns = item.run->columns, rows = item.run->tokens / columns;
    for (int i = 0; i < item.run->tokens; ++i) put(next, next + i / columns, next + i % columns);
    next += std::max(rows, columns);
  }
  for (; at < prompt; ++next) put(next, next, next);
  return out;
}

Sha256Digest content_of(const Picture::Run& run) {
  if (run.first == 0) return run.image->content;
  Sha256 hash;
  hash.update(std::as_bytes(std::span(run.image->content)));
  hash.update(std::as_bytes(std::span(&run.first, 1)));
  return hash.finish();
}

}  // namespace

Status add_picture_spans(request::Request& request, const PictureStyle& style,
                         std::span<const Picture> pictures) {
  const std::vector<Token>& prompt = request.prompt;
  std::vector<Placed> placed;
  size_t at = 0;
  for (const Picture& picture : pictures) {
    for (const Picture::Run& run : picture.runs) {
      while (at < prompt.size() && prompt[at] != style.token) ++at;
      const size_t begin = at;
      while (at < prompt.size() && at - begin < static_cast<size_t>(run.tokens) && prompt[at] == style.token)
        ++at;
      if (at - begin != static_cast<size_t>(run.tokens))
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("a part of a picture has {} places in the prompt; it needs {}", at - begin,
                                 run.tokens)};
      request.spans.push_back({.begin = static_cast<int>(begin),
                               .end = static_cast<int>(at),
                               .content = content_of(run),
                               .bidirectional = style.bidirectional});
      request.sources.push_back({run.image, run.first});
      placed.push_back({&run, static_cast<int>(begin)});
    }
  }
  if (style.grid_positions) request.positions = grid_positions(prompt.size(), placed);
  return {};
}

}  // namespace sluice::engine
