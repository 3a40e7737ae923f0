// The four normal forms: decompose, order the marks, compose.
#include "unicode/normal_form.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "unicode/unicode.h"

namespace sluice::unicode {

namespace {

struct Character {
  char32_t code;
  int combining;
  TextRange origin;
};

// Decompositions nest at most this deep in the data of Unicode.
constexpr int deepest = 8;

void push_decomposed(char32_t code, TextRange origin, bool is_compatibility, int depth,
                     std::vector<Character>& out) {
  if (code >= 0xAC00 && code < 0xAC00 + 11172) {
    const char32_t index = code - 0xAC00;
    out.push_back({0x1100 + index / (21 * 28), 0, origin});
    out.push_back({0x1161 + index % (21 * 28) / 28, 0, origin});
    if (index % 28 != 0) out.push_back({0x11A7 + index % 28, 0, origin});
    return;
  }
  const Decomposition parts = decompose_once(code);
  if (parts.count == 0 || (parts.is_compatibility && !is_compatibility) || depth > deepest) {
    out.push_back({code, combining_class(code), origin});
    return;
  }
  for (int i = 0; i < parts.count; ++i)
    push_decomposed(parts.parts[i], origin, is_compatibility, depth + 1, out);
}

void order_marks(std::vector<Character>& characters) {
  const auto by_class = [](const Character& a, const Character& b) { return a.combining < b.combining; };
  for (size_t begin = 0; begin < characters.size();) {
    size_t end = begin + 1;
    if (characters[begin].combining != 0) {
      while (end < characters.size() && characters[end].combining != 0) ++end;
      std::stable_sort(characters.begin() + static_cast<std::ptrdiff_t>(begin),
                       characters.begin() + static_cast<std::ptrdiff_t>(end), by_class);
    }
    begin = end;
  }
}

void compose_all(std::vector<Character>& characters) {
  size_t kept = 0;
  size_t starter = characters.size();  // index among the kept; none yet
  int last_class = -1;                 // of the last kept after the starter; -1: none lies between
  for (const Character& next : characters) {
    const bool has_starter = starter < kept;
    const bool is_blocked = last_class >= next.combining && last_class != -1;
    const char32_t composed = has_starter && !is_blocked ? compose(characters[starter].code, next.code) : 0;
    if (composed != 0) {
      characters[starter].code = composed;
      characters[starter].origin = {std::min(characters[starter].origin.begin, next.origin.begin),
                                    std::max(characters[starter].origin.end, next.origin.end)};
      continue;
    }
    if (next.combining == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = next.combining;
    }
    characters[kept++] = next;
  }
  characters.resize(kept);
}

// No character below this one changes under the form or touches its neighbours.
char32_t first_affected(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::Nfc:
      return 0x300;
    case UnicodeForm::Nfd:
      return 0xC0;
    case UnicodeForm::Nfkc:
    case UnicodeForm::Nfkd:
      break;
  }
  return 0xA0;
}

}  // namespace

AlignedText to_unicode_form(const AlignedText& text, UnicodeForm form) {
  const bool is_compatibility = form == UnicodeForm::Nfkc || form == UnicodeForm::Nfkd;
  const bool composes = form == UnicodeForm::Nfc || form == UnicodeForm::Nfkc;
  const char32_t affected = first_affected(form);
  const std::string_view bytes = text.bytes();
  AlignedText out(text.is_tracked());
  out.reserve(bytes.size());
  std::vector<Character> characters;
  std::string encoded;
  const auto flush = [&] {
    order_marks(characters);
    if (composes) compose_all(characters);
    for (const Character& character : characters) {
      encoded.clear();
      append_utf8(encoded, character.code);
      out.append(encoded, character.origin);
    }
    characters.clear();
  };
  // Characters that may change are gathered together with the unaffected one before them.
  for (uint32_t position = 0; position < bytes.size();) {
    const Decoded next = decode_utf8(bytes, position);
    const TextRange range{position, position + next.size};
    position = range.end;
    const bool is_followed = position < bytes.size() && decode_utf8(bytes, position).code >= affected;
    if (next.code < affected && !is_followed) {
      flush();
      out.append(text, range);
      continue;
    }
    if (next.code < affected) flush();
    push_decomposed(next.code, text.origin(range), is_compatibility, 0, characters);
  }
  flush();
  return out;
}

}  // namespace sluice::unicode
