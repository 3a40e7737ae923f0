// Lists of an answer that grow with its tokens, written in pieces.
#include <algorithm>
#include <memory>

#include "api/core/answer_json.h"

namespace sluice::api {

namespace {

constexpr size_t kTokensPerPiece = 64;

void append_text(std::string_view text, std::string& out) {
  out += json::serialize(json::string_view(text.data(), text.size()));
}

// One list of several runs: `write_first` for tokens without log-probability.
void add_list(const std::vector<LogprobRun>& runs,
              const std::function<void(Token, std::string&)>& write_first, const WriteToken& write,
              std::deque<Piece>& out) {
  bool is_first = true;
  for (const LogprobRun& run : runs) {
    for (const Token token : run.first) {
      out.emplace_back([=](std::string& text) {
        text += is_first ? "" : ",";
        write_first(token, text);
      });
      is_first = false;
    }
    if (run.tokens.empty()) continue;
    add_runs(run.tokens, out,
             [write, is_first](const request::Sampled& token, bool first, std::string& text) {
               text += first && is_first ? "" : ",";
               write(token, first, text);
             });
    is_first = false;
  }
}

void append_top(const request::Sampled& token, const TokenNames& names, std::string& out) {
  json::object top;
  for (const request::TokenLogprob& other : token.top)
    top.emplace(names.text(other.token), finite(other.logprob));
  top.emplace(names.text(token.token), finite(token.logprob));
  write_json(top, out);
}

void append_prompt_token(const request::Sampled& token, const TokenNames& names, std::string& out) {
  json::object entry;
  const auto add = [&](Token id, float logprob, json::value rank) {
    entry.emplace(std::to_string(id), json::object{{"logprob", finite(logprob)},
                                                   {"rank", std::move(rank)},
                                                   {"decoded_token", names.text(id)}});
  };
  for (size_t i = 0; i < token.top.size(); ++i) add(token.top[i].token, token.top[i].logprob, i + 1);
  add(token.token, token.logprob, token.rank > 0 ? json::value(token.rank) : json::value(nullptr));
  write_json(entry, out);
}

}  // namespace

void append_members(const json::object& object, std::string& out) {
  const std::string text = write_json(object);
  out.append(text, 1, text.size() - 2);
}

void add_runs(std::span<const request::Sampled> tokens, std::deque<Piece>& out, const WriteToken& write) {
  for (size_t begin = 0; begin < tokens.size(); begin += kTokensPerPiece) {
    const auto part = tokens.subspan(begin, std::min(kTokensPerPiece, tokens.size() - begin));
    out.emplace_back([part, write, begin](std::string& text) {
      for (size_t i = 0; i < part.size(); ++i) write(part[i], begin + i == 0, text);
    });
  }
}

void add_prompt_logprobs(std::span<const request::Sampled> tokens, TokenNames names, std::deque<Piece>& out) {
  out.emplace_back([](std::string& text) { text += ",\"prompt_logprobs\":[null"; });
  add_runs(tokens, out, [names](const request::Sampled& token, bool, std::string& text) {
    text += ',';
    append_prompt_token(token, names, text);
  });
  out.emplace_back([](std::string& text) { text += ']'; });
}

void add_completion_logprobs(const std::vector<LogprobRun>& runs, TokenNames names, std::deque<Piece>& out) {
  const auto literal = [&](std::string_view text) {
    out.emplace_back([text](std::string& to) { to += text; });
  };
  const auto null = [](Token, std::string& text) { text += "null"; };
  literal(",\"logprobs\":{\"tokens\":[");
  add_list(
      runs, [names](Token token, std::string& text) { append_text(names.text(token), text); },
      [names](const request::Sampled& token, bool, std::string& text) {
        append_text(names.text(token.token), text);
      },
      out);
  literal("],\"token_logprobs\":[");
  add_list(
      runs, null,
      [](const request::Sampled& token, bool, std::string& text) { write_json(finite(token.logprob), text); },
      out);
  literal("],\"top_logprobs\":[");
  add_list(
      runs, null,
      [names](const request::Sampled& token, bool, std::string& text) { append_top(token, names, text); },
      out);
  literal("],\"text_offset\":[");
  const auto offset = std::make_shared<int64_t>(0);
  const auto append_offset = [names, offset](Token token, std::string& text) {
    text += std::to_string(*offset);
    *offset += count_characters(names.text(token));
  };
  add_list(
      runs, append_offset,
      [append_offset](const request::Sampled& token, bool, std::string& text) {
        append_offset(token.token, text);
      },
      out);
  literal("]}");
}

}  // namespace sluice::api
