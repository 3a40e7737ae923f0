#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "unicode/unicode.h"

namespace sluice::tokenizer {

namespace {

size_t skip_spaces_before(std::string_view text, size_t position, size_t least) {
  while (position > least) {
    const unicode::Decoded previous = unicode::decode_utf8_before(text, position);
    if (!unicode::is_whitespace(previous.code)) break;
    position -= previous.size;
  }
  return std::max(position, least);
}

size_t skip_spaces_after(std::string_view text, size_t position) {
  while (position < text.size()) {
    const unicode::Decoded next = unicode::decode_utf8(text, position);
    if (!unicode::is_whitespace(next.code)) break;
    position += next.size;
  }
  return position;
}

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && unicode::is_word_character(unicode::decode_utf8_before(text, begin).code)) ||
         (end < text.size() && unicode::is_word_character(unicode::decode_utf8(text, end).code));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < tokens_.size(); ++i)
    entries.emplace_back(tokens_[i].content, static_cast<int32_t>(i));
  trie_ = ByteTrie(std::move(entries));
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t begin,
                                          const Permission& may_be_special) const {
  const AddedToken* longest = nullptr;
  uint32_t node = ByteTrie::root;
  for (size_t end = begin; end < text.size();) {
    node = trie_.child(node, text[end++]);
    if (node == ByteTrie::no_node) break;
    const int32_t value = trie_.value(node);
    if (value == ByteTrie::no_value) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(value)];
    const unicode::TextRange range{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    if (!token.is_special || may_be_special(range)) longest = &token;
  }
  return longest;
}

std::vector<Fragment> AddedTokens::split(std::string_view text, const Permission& may_be_special) const {
  std::vector<Fragment> fragments;
  size_t covered = 0;
  const auto push = [&](size_t begin, size_t end, Token id) {
    if (covered < begin) {
      fragments.push_back({{static_cast<uint32_t>(covered), static_cast<uint32_t>(begin)}, no_token});
    }
    if (id != no_token) fragments.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, id});
    covered = end;
  };
  for (size_t position = 0; position < text.size();) {
    const AddedToken* token =
        trie_.starts(text[position]) ? longest_at(text, position, may_be_special) : nullptr;
    if (token == nullptr) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = begin + token->content.size();
    position = end;
    if (token->is_single_word && is_inside_word(text, begin, end)) continue;
    if (token->strips_left) begin = skip_spaces_before(text, begin, covered);
    if (token->strips_right) position = end = skip_spaces_after(text, end);
    push(begin, end, token->id);
  }
  push(text.size(), text.size(), no_token);
  return fragments;
}

}  // namespace sluice::tokenizer
