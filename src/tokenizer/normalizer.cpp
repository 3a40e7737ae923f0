#include "tokenizer/normalizer.h"

#include <fmt/format.h>

#include "tokenizer/pre_tokenizer.h"

namespace sluice::tokenizer {

namespace {

// Tables and patterns of a file may make a text much longer.
constexpr size_t longest_normalized = size_t{1} << 31;

Status check_length(const unicode::AlignedText& text) {
  if (text.size() <= longest_normalized) return {};
  return Error{ErrorCode::LimitExceeded,
               fmt::format("the normalized text has over {} bytes", longest_normalized)};
}

// Writes a text anew, character by character, with `write(code, range, out)`.
template <class Write>
unicode::AlignedText rewrite(const unicode::AlignedText& text, const Write& write) {
  unicode::AlignedText out(text.is_tracked());
  out.reserve(text.size());
  const std::string_view bytes = text.bytes();
  for (uint32_t position = 0; position < bytes.size();) {
    const unicode::Decoded next = unicode::decode_utf8(bytes, position);
    const unicode::TextRange range{position, position + next.size};
    write(next.code, range, out);
    position = range.end;
  }
  return out;
}

Result<unicode::AlignedText> apply(unicode::UnicodeForm form, unicode::AlignedText text,
                                   unicode::EncodeGuard*) {
  return unicode::to_unicode_form(text, form);
}

Result<unicode::AlignedText> apply(const Lowercase&, unicode::AlignedText text, unicode::EncodeGuard*) {
  std::string lower;
  return rewrite(text, [&](char32_t code, unicode::TextRange range, unicode::AlignedText& out) {
    lower.clear();
    unicode::append_lower(lower, code);
    out.append(lower, text.origin(range));
  });
}

Result<unicode::AlignedText> apply(const RemoveCategories& step, unicode::AlignedText text,
                                   unicode::EncodeGuard*) {
  return rewrite(text, [&](char32_t code, unicode::TextRange range, unicode::AlignedText& out) {
    if (!unicode::in(code, step.set)) out.append(text, range);
  });
}

Result<unicode::AlignedText> apply(const StripSpaces& step, unicode::AlignedText text,
                                   unicode::EncodeGuard*) {
  uint32_t begin = 0;
  auto end = static_cast<uint32_t>(text.size());
  while (step.left && begin < end) {
    const unicode::Decoded next = unicode::decode_utf8(text.bytes(), begin);
    if (!unicode::is_whitespace(next.code)) break;
    begin += next.size;
  }
  while (step.right && begin < end) {
    const unicode::Decoded last = unicode::decode_utf8_before(text.bytes(), end);
    if (!unicode::is_whitespace(last.code)) break;
    end -= last.size;
  }
  unicode::AlignedText out(text.is_tracked());
  out.append(text, {begin, end});
  return out;
}

Result<unicode::AlignedText> apply(const ReplacePattern& step, unicode::AlignedText text,
                                   unicode::EncodeGuard* guard) {
  unicode::AlignedText out(text.is_tracked());
  out.reserve(text.size());
  unicode::Pattern::Finder finder(step.pattern, guard);
  finder.reset(text.bytes());
  uint32_t previous = 0;
  while (true) {
    const auto match = finder.next();
    if (!match) return match.error();
    if (!match->has_value()) break;
    const unicode::TextRange range{static_cast<uint32_t>((*match)->begin),
                                   static_cast<uint32_t>((*match)->end)};
    out.append(text, {previous, range.begin});
    out.append(step.content, text.origin(range));
    if (Status status = check_length(out); !status) return status.error();
    previous = range.end;
  }
  out.append(text, {previous, static_cast<uint32_t>(text.size())});
  return out;
}

Result<unicode::AlignedText> apply(const Prepend& step, unicode::AlignedText text, unicode::EncodeGuard*) {
  if (text.size() == 0) return text;
  unicode::AlignedText out(text.is_tracked());
  out.reserve(text.size() + step.prefix.size());
  out.append(step.prefix, text.origin({0, 0}));
  out.append(text, {0, static_cast<uint32_t>(text.size())});
  return out;
}

Result<unicode::AlignedText> apply(const CleanText&, unicode::AlignedText text, unicode::EncodeGuard*) {
  return rewrite(text, [&](char32_t code, unicode::TextRange range, unicode::AlignedText& out) {
    const bool is_kept_control = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == unicode::replacement_character ||
        (!is_kept_control && unicode::in(code, unicode::sets::others)))
      return;
    if (unicode::is_whitespace(code)) {
      out.append(" ", text.origin(range));
    } else {
      out.append(text, range);
    }
  });
}

// The blocks as BERT's reference has them, with its gap below U+2B920.
bool is_chinese(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

Result<unicode::AlignedText> apply(const SpaceChinese&, unicode::AlignedText text, unicode::EncodeGuard*) {
  return rewrite(text, [&](char32_t code, unicode::TextRange range, unicode::AlignedText& out) {
    const bool is_spaced = is_chinese(code);
    if (is_spaced) out.append(" ", text.origin({range.begin, range.begin}));
    out.append(text, range);
    if (is_spaced) out.append(" ", text.origin({range.end, range.end}));
  });
}

Result<unicode::AlignedText> apply(const NmtRules&, unicode::AlignedText text, unicode::EncodeGuard*) {
  return rewrite(text, [&](char32_t code, unicode::TextRange range, unicode::AlignedText& out) {
    const bool is_dropped = (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
                            code == 0x7F || code == 0x8F || code == 0x9F;
    if (is_dropped) return;
    const bool is_space = code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                          (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
                          code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
    if (is_space) {
      out.append(" ", text.origin(range));
    } else {
      out.append(text, range);
    }
  });
}

Result<unicode::AlignedText> apply(const MapBytes&, unicode::AlignedText text, unicode::EncodeGuard*) {
  unicode::AlignedText out(text.is_tracked());
  out.reserve(text.size() * 2);
  std::string character;
  for (uint32_t position = 0; position < text.size(); ++position) {
    character.clear();
    unicode::append_utf8(character, byte_to_character(static_cast<unsigned char>(text.bytes()[position])));
    out.append(character, text.origin({position, position + 1}));
  }
  return out;
}

void append_mapped(const Charsmap& map, const unicode::AlignedText& text, unicode::TextRange range,
                   unicode::AlignedText& out) {
  const Charsmap::Match match = map.shortest(text.bytes(range));
  if (match.size > 0) {
    out.append(match.replacement, text.origin(range));
  } else {
    out.append(text, range);
  }
}

// A cluster of up to 5 bytes that starts with a key is replaced whole; else each of its characters by itself.
void append_cluster(const Charsmap& map, const unicode::AlignedText& text, unicode::TextRange cluster,
                    unicode::AlignedText& out) {
  if (cluster.size() < 6 && map.shortest(text.bytes(cluster)).size > 0)
    return append_mapped(map, text, cluster, out);
  for (uint32_t position = cluster.begin; position < cluster.end;) {
    const uint32_t end = position + unicode::decode_utf8(text.bytes(), position).size;
    append_mapped(map, text, {position, end}, out);
    position = end;
  }
}

Result<unicode::AlignedText> apply(const PrecompiledClusters& step, unicode::AlignedText text,
                                   unicode::EncodeGuard* guard) {
  unicode::AlignedText out(text.is_tracked());
  out.reserve(text.size());
  unicode::Pattern::Finder finder(step.cluster, guard);
  for (uint32_t begin = 0; begin < text.size();) {
    // Each search sees nothing before its cluster: it would count the regional indicators back to the first.
    finder.reset(text.bytes().substr(begin));
    const auto match = finder.next();
    if (!match) return match.error();
    if (!match->has_value() || (*match)->end == 0) break;
    const auto end = begin + static_cast<uint32_t>((*match)->end);
    append_cluster(*step.map, text, {begin, end}, out);
    if (Status status = check_length(out); !status) return status.error();
    begin = end;
  }
  return out;
}

// Gathers normalized characters with SentencePiece's rules for spaces.
class SpaceRules {
 public:
  SpaceRules(const PrecompiledPrefixes& step, unicode::AlignedText& out) : step_(step), out_(out) {}

  void append(std::string_view bytes, unicode::TextRange origin) {
    size_t begin = 0;
    while (begin < bytes.size()) {
      if (bytes[begin] == ' ') {
        append_space(origin);
        ++begin;
        continue;
      }
      const size_t end = std::min(bytes.find(' ', begin), bytes.size());
      start_word(origin);
      out_.append(bytes.substr(begin, end - begin), origin);
      begin = end;
    }
  }
  void finish(unicode::TextRange origin) {
    if (step_.space_is_suffix && step_.adds_prefix) out_.append(mark, origin);
  }

 private:
  static constexpr std::string_view mark = "\xE2\x96\x81";

  void append_space(unicode::TextRange origin) {
    is_in_word_ = false;
    if (!step_.merges_spaces) out_.append(mark, origin);
  }
  void start_word(unicode::TextRange origin) {
    if (is_in_word_) return;
    is_in_word_ = true;
    const bool wants_prefix = step_.adds_prefix && !step_.space_is_suffix && !has_started_;
    const bool wants_space = step_.merges_spaces && (has_started_ || wants_prefix);
    if (wants_prefix || wants_space) out_.append(mark, {origin.begin, origin.begin});
    has_started_ = true;
  }

  const PrecompiledPrefixes& step_;
  unicode::AlignedText& out_;
  bool is_in_word_ = false, has_started_ = false;
};

Result<unicode::AlignedText> apply(const PrecompiledPrefixes& step, unicode::AlignedText text,
                                   unicode::EncodeGuard*) {
  unicode::AlignedText out(text.is_tracked());
  out.reserve(text.size() + text.size() / 2);
  SpaceRules rules(step, out);
  const std::string_view bytes = text.bytes();
  for (uint32_t position = 0; position < bytes.size();) {
    const Charsmap::Match match =
        step.map != nullptr ? step.map->longest(bytes.substr(position)) : Charsmap::Match{};
    const auto size =
        match.size > 0 ? static_cast<uint32_t>(match.size) : unicode::decode_utf8(bytes, position).size;
    const unicode::TextRange origin = text.origin({position, position + size});
    rules.append(match.size > 0 ? match.replacement : bytes.substr(position, size), origin);
    if (Status status = check_length(out); !status) return status.error();
    position += size;
  }
  const auto end = static_cast<uint32_t>(text.size());
  rules.finish(text.origin({end, end}));
  return out;
}

}  // namespace

Result<unicode::AlignedText> normalize(const std::vector<NormalizerStep>& steps, unicode::AlignedText text,
                                       unicode::EncodeGuard* guard) {
  for (const NormalizerStep& step : steps) {
    if (Status status = check_length(text); !status) return status.error();
    auto next = std::visit([&](const auto& chosen) { return apply(chosen, std::move(text), guard); }, step);
    if (!next) return next;
    text = std::move(*next);
  }
  return text;
}

}  // namespace sluice::tokenizer
