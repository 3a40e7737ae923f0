#include "tokenizer/token_decoder.h"

#include <array>
#include <charconv>
#include <utility>

#include "tokenizer/pre_tokenizer.h"
#include "unicode/unicode.h"

namespace sluice::tokenizer {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// English contractions and punctuation, as the reference cleans them.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules) replace_all(text, from, to);
}

Status apply(const DecodeBytes&, std::string& token, bool) {
  std::string bytes;
  if (decode_byte_level(token, bytes)) token = std::move(bytes);
  return {};
}

Status apply(const DecodeMetaspace& step, std::string& token, bool is_first) {
  replace_all(token, step.mark, is_first && step.drops_first ? "" : " ");
  return {};
}

Status apply(const DecodeWordPiece& step, std::string& token, bool is_first) {
  if (!is_first) {
    if (token.starts_with(step.prefix)) {
      token.erase(0, step.prefix.size());
    } else {
      token.insert(0, " ");
    }
  }
  if (step.cleans_up) clean_up(token);
  return {};
}

Status apply(const DecodeByteFallback&, std::string& token, bool) {
  const int byte = parse_byte_token(token);
  if (byte >= 0) token.assign(1, static_cast<char>(byte));
  return {};
}

Status apply(const DecodeStrip& step, std::string& token, bool) {
  std::string content;
  unicode::append_utf8(content, step.content);
  size_t begin = 0;
  size_t end = token.size();
  for (size_t i = 0; i < step.start && std::string_view(token).substr(begin).starts_with(content); ++i) {
    begin += content.size();
  }
  for (size_t i = 0; i < step.stop && std::string_view(token).substr(begin, end - begin).ends_with(content);
       ++i) {
    end -= content.size();
  }
  token = token.substr(begin, end - begin);
  return {};
}

Status apply(const DecodeReplace& step, std::string& token, bool) {
  std::string out;
  unicode::Pattern::Finder finder(step.pattern);
  finder.reset(token);
  size_t previous = 0;
  while (true) {
    const auto match = finder.next();
    if (!match) return match.error();
    if (!match->has_value()) break;
    out.append(token, previous, (*match)->begin - previous);
    out += step.content;
    previous = (*match)->end;
  }
  out.append(token, previous);
  token = std::move(out);
  return {};
}

Status apply(const DecodeWordSuffix& step, std::string& token, bool) {
  replace_all(token, step.suffix, " ");
  return {};
}

Status apply(const DecodeCtc& step, std::string& token, bool) {
  replace_all(token, step.pad, "");
  if (step.cleans_up) {
    clean_up(token);
    replace_all(token, step.delimiter, " ");
  }
  return {};
}

Status apply(const DecodeJoined&, std::string& token, bool is_first) {
  if (!is_first) token.insert(0, " ");
  return {};
}

}  // namespace

Result<std::string> render_token(const TokenDecoder& decoder, std::string_view spelling, bool is_first) {
  std::string token(spelling);
  for (const DecoderStep& step : decoder.steps) {
    const Status status =
        std::visit([&](const auto& chosen) { return apply(chosen, token, is_first); }, step);
    if (!status) return status.error();
  }
  return token;
}

int parse_byte_token(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  int byte = -1;
  const char* end = spelling.data() + 5;
  const auto parsed = std::from_chars(spelling.data() + 3, end, byte, 16);
  return parsed.ec == std::errc() && parsed.ptr == end && byte >= 0 ? byte : -1;
}

}  // namespace sluice::tokenizer
