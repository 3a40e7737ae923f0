#include "unicode/class_pattern.h"

#include <algorithm>
#include <charconv>

namespace sluice::unicode {

namespace {

constexpr size_t most_alternatives = 32;
constexpr int deepest_group = 4;
constexpr uint32_t unlimited = ~uint32_t{0};

}  // namespace

// Recursive descent; every function is false where the pattern leaves the language.
class ClassPattern::Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  size_t run_count() const { return run_count_; }

  bool parse(std::vector<Sequence>& out) {
    return parse_alternatives(out, false, 0) && position_ == pattern_.size() &&
           out.size() <= most_alternatives;
  }

 private:
  bool at(std::string_view text) const { return pattern_.substr(position_, text.size()) == text; }
  bool take(std::string_view text) {
    if (!at(text)) return false;
    position_ += text.size();
    return true;
  }

  bool parse_alternatives(std::vector<Sequence>& out, bool ignores_case, int depth) {
    if (depth > deepest_group) return false;
    do {
      Sequence sequence;
      while (position_ < pattern_.size() && !at("|") && !at(")")) {
        if (!parse_item(sequence, ignores_case, depth)) return false;
      }
      if (sequence.items.empty()) return false;
      out.push_back(std::move(sequence));
    } while (take("|"));
    return true;
  }

  bool parse_item(Sequence& sequence, bool ignores_case, int depth) {
    Item item;
    if (at("(")) return parse_group(sequence, ignores_case, depth);
    if (take("$")) {
      item.kind = Item::Kind::LineEnd;
      sequence.items.push_back(std::move(item));
      return true;
    }
    if (!parse_char_class(pattern_, position_, ignores_case, item.characters)) return false;
    if (!parse_quantifier(item)) return false;
    if (item.most == unlimited) item.run = run_count_++;
    sequence.items.push_back(std::move(item));
    return true;
  }

  bool parse_group(Sequence& sequence, bool ignores_case, int depth) {
    Item item;
    if (take("(?!") || take("(?=")) {
      const bool is_negative = pattern_[position_ - 1] == '!';
      item.kind = is_negative ? Item::Kind::NegativeLookAhead : Item::Kind::LookAhead;
      if (!parse_char_class(pattern_, position_, ignores_case, item.characters) || !take(")")) return false;
      sequence.items.push_back(std::move(item));
      return true;
    }
    bool ignores = ignores_case;
    if (take("(?i:")) {
      ignores = true;
    } else if (!take("(?:") && (at("(?") || !take("("))) {
      return false;
    }
    item.kind = Item::Kind::Group;
    if (!parse_alternatives(item.group, ignores, depth + 1) || !take(")")) return false;
    if (!parse_quantifier(item)) return false;
    // A group that repeats would need memory for its positions.
    if (item.most != 1 || item.is_possessive) return false;
    sequence.items.push_back(std::move(item));
    return true;
  }

  bool parse_quantifier(Item& item) {
    if (take("?")) {
      item.least = 0;
    } else if (take("*")) {
      item.least = 0;
      item.most = unlimited;
    } else if (take("+")) {
      item.most = unlimited;
    } else if (take("{")) {
      if (!parse_counts(item)) return false;
    } else {
      return true;
    }
    if (at("?")) return false;  // reluctant
    item.is_possessive = take("+");
    return true;
  }

  bool parse_counts(Item& item) {
    if (!parse_number(item.least)) return false;
    item.most = item.least;
    if (take(",")) {
      item.most = unlimited;
      if (!at("}") && !parse_number(item.most)) return false;
    }
    return take("}") && item.least <= item.most && item.most > 0;
  }

  bool parse_number(uint32_t& out) {
    const char* begin = pattern_.data() + position_;
    const auto [end, error] = std::from_chars(begin, pattern_.data() + pattern_.size(), out);
    position_ += static_cast<size_t>(end - begin);
    return error == std::errc() && out < 100'000;
  }

  std::string_view pattern_;
  size_t position_ = 0;
  size_t run_count_ = 0;
};

std::optional<ClassPattern> ClassPattern::compile(std::string_view pattern) {
  ClassPattern compiled;
  Parser parser(pattern);
  if (!parser.parse(compiled.alternatives_)) return std::nullopt;
  compiled.run_count_ = parser.run_count();
  compiled.index_first_bytes();
  return compiled;
}

bool ClassPattern::may_start(const Sequence& sequence, unsigned char byte) {
  for (const Item& item : sequence.items) {
    switch (item.kind) {
      case Item::Kind::Class:
        if (item.characters.contains_ascii(byte)) return true;
        if (item.least > 0) return false;
        break;
      case Item::Kind::Group:
        for (const Sequence& part : item.group) {
          if (may_start(part, byte)) return true;
        }
        if (item.least > 0) return false;
        break;
      case Item::Kind::LineEnd:
        return byte == '\n';
      case Item::Kind::LookAhead:
      case Item::Kind::NegativeLookAhead:
        break;
    }
  }
  return true;  // everything is optional
}

void ClassPattern::index_first_bytes() {
  for (unsigned char byte = 0; byte < 128; ++byte) {
    for (size_t i = 0; i < alternatives_.size(); ++i) {
      if (may_start(alternatives_[i], byte)) starts_[byte] |= uint32_t{1} << i;
    }
  }
}

size_t ClassPattern::match_at(std::string_view text, size_t begin, Memory& memory) const {
  if (memory.failed_.empty()) memory.failed_.resize(run_count_);
  const Subject subject{text, memory};
  const auto first = static_cast<unsigned char>(text[begin]);
  uint32_t candidates = first < 128 ? starts_[first] : ~uint32_t{0};
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    if ((candidates >> i & 1) == 0) continue;
    const size_t end = match(subject, begin, {&alternatives_[i], 0, nullptr});
    if (end != no_match) return end;
  }
  return no_match;
}

size_t ClassPattern::match(const Subject& subject, size_t begin, Rest rest) {
  while (rest.item == rest.sequence->items.size()) {
    if (rest.next == nullptr) return begin;
    rest = *rest.next;
  }
  const Item& item = rest.sequence->items[rest.item++];
  switch (item.kind) {
    case Item::Kind::Class:
      return match_class(item, subject, begin, rest);
    case Item::Kind::Group:
      return match_group(item, subject, begin, rest);
    case Item::Kind::LineEnd:
      return begin == subject.text.size() || subject.text[begin] == '\n' ? match(subject, begin, rest)
                                                                         : no_match;
    case Item::Kind::LookAhead:
    case Item::Kind::NegativeLookAhead:
      break;
  }
  const std::string_view text = subject.text;
  const bool found = begin < text.size() && item.characters.contains(decode_utf8(text, begin).code);
  return found == (item.kind == Item::Kind::LookAhead) ? match(subject, begin, rest) : no_match;
}

size_t ClassPattern::match_class(const Item& item, const Subject& subject, size_t begin, const Rest& rest) {
  const std::string_view text = subject.text;
  Memory::Run* failed = item.run == no_run ? nullptr : &subject.memory.failed_[item.run];
  if (failed != nullptr && begin >= failed->begin && begin <= failed->end) return no_match;
  size_t end = begin;
  uint32_t count = 0;
  while (count < item.most && end < text.size()) {
    const auto byte = static_cast<unsigned char>(text[end]);
    if (byte < 128) {
      if (!item.characters.contains_ascii(byte)) break;
      ++end;
    } else {
      const Decoded next = decode_utf8(text, end);
      if (!item.characters.contains(next.code)) break;
      end += next.size;
    }
    ++count;
  }
  if (count < item.least) return no_match;
  const size_t run_end = end;
  while (true) {
    const size_t matched = match(subject, end, rest);
    if (matched != no_match) return matched;
    if (item.is_possessive || count == item.least) break;
    end -= decode_utf8_before(text, end).size;
    --count;
  }
  if (failed != nullptr) *failed = {begin, run_end};
  return no_match;
}

size_t ClassPattern::match_group(const Item& item, const Subject& subject, size_t begin, const Rest& rest) {
  for (const Sequence& part : item.group) {
    const size_t end = match(subject, begin, {&part, 0, &rest});
    if (end != no_match) return end;
  }
  return item.least == 0 ? match(subject, begin, rest) : no_match;
}

}  // namespace sluice::unicode
