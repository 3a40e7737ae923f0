// A tokenizer from the metadata of a GGUF file: tokenizer.ggml.*.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/loaders/gguf_draft.h"
#include "unicode/utf8_stream.h"

namespace sluice::tokenizer {

namespace {

using formats::GgufMetadata;

TokenKind kind_of(int64_t type) {
  switch (type) {
    case 2:
      return TokenKind::Unknown;
    case 3:
      return TokenKind::Control;
    case 4:
      return TokenKind::UserDefined;
    case 5:
      return TokenKind::Unused;
    case 6:
      return TokenKind::Byte;
    default:
      return TokenKind::Normal;
  }
}

Status check_count(std::string_view key, size_t size, size_t count) {
  if (size == count) return {};
  return corrupt(fmt::format("{} has {} entries, the vocabulary {}", key, size, count));
}

Status load_tokens(GgufDraft& draft) {
  const auto tokens = draft.metadata.get_strings("tokenizer.ggml.tokens");
  if (!tokens) return tokens.error();
  if (*tokens == nullptr) return corrupt("tokenizer.ggml.tokens is missing");
  const size_t count = (*tokens)->size();
  if (count > largest_vocabulary) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("a vocabulary of {} tokens, limit {}", count, largest_vocabulary)};
  }
  TokenizerData& data = draft.data;
  data.kinds.assign(count, TokenKind::Normal);
  data.spellings = TokenTable(count);
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<Token>(i);
    const std::string_view text = (**tokens)[i];
    if (unicode::is_valid_utf8(text)) {
      data.spellings.set(id, text);
    } else {
      data.spellings.set(id, unicode::to_valid_utf8(text));
    }
    if (text.empty()) {
      data.kinds[i] = TokenKind::Unused;
    } else {
      data.spellings.index(id);
    }
  }
  return {};
}

Status load_types_and_scores(GgufDraft& draft) {
  const auto types = draft.metadata.get_ints("tokenizer.ggml.token_type");
  const auto scores = draft.metadata.get_numbers("tokenizer.ggml.scores");
  if (!types) return types.error();
  if (!scores) return scores.error();
  std::vector<TokenKind>& kinds = draft.data.kinds;
  if (*types != nullptr) {
    const Status status = check_count("tokenizer.ggml.token_type", (*types)->size(), kinds.size());
    if (!status) return status;
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] != TokenKind::Unused) kinds[i] = kind_of((**types)[i]);
    }
  }
  if (*scores != nullptr) {
    const Status status = check_count("tokenizer.ggml.scores", (*scores)->size(), kinds.size());
    if (!status) return status;
    draft.scores = **scores;
    for (const double score : draft.scores) {
      if (!std::isfinite(score)) return corrupt(fmt::format("tokenizer.ggml.scores holds {}", score));
    }
  }
  return {};
}

// Ids out of range count as missing: files exist that name a padding token they do not have.
Result<std::optional<Token>> special_id(const GgufDraft& draft, std::string_view name,
                                        std::optional<Token> otherwise) {
  const auto value = draft.metadata.get_int(fmt::format("tokenizer.ggml.{}_token_id", name));
  if (!value) return value.error();
  const auto size = static_cast<int64_t>(draft.data.kinds.size());
  const int64_t id = value->value_or(otherwise.value_or(no_token));
  return id >= 0 && id < size ? std::optional(static_cast<Token>(id)) : std::nullopt;
}

struct SpecialDefaults {
  std::optional<Token> bos, eos, unknown, separator, pad;
};

SpecialDefaults defaults_of(std::string_view model) {
  if (model == "llama") return {.bos = 1, .eos = 2, .unknown = 0};
  if (model == "bert") return {.bos = 101, .unknown = 100, .separator = 102, .pad = 0};
  if (model == "t5") return {.eos = 1, .unknown = 2, .pad = 0};
  return {};
}

Status load_special(GgufDraft& draft, std::string_view model) {
  const SpecialDefaults defaults = defaults_of(model);
  SpecialTokens& special = draft.data.special;
  std::optional<Token> end_of_turn, end_of_message, classifier;
  const struct {
    std::string_view name;
    std::optional<Token>& id;
    std::optional<Token> otherwise;
  } ids[] = {{"bos", special.bos, defaults.bos},
             {"eos", special.eos, defaults.eos},
             {"padding", special.pad, defaults.pad},
             {"unknown", special.unknown, defaults.unknown},
             {"seperator", draft.separator, defaults.separator},
             {"cls", classifier, {}},
             {"eot", end_of_turn, {}},
             {"eom", end_of_message, {}}};
  for (const auto& entry : ids) {
    const auto id = special_id(draft, entry.name, entry.otherwise);
    if (!id) return id.error();
    entry.id = *id;
  }
  if (model == "bert" && classifier) special.bos = classifier;
  for (const auto& end : {end_of_turn, end_of_message}) {
    if (end) special.end_of_generation.push_back(*end);
  }
  return {};
}

Status load_affixes(GgufDraft& draft) {
  const auto adds_bos = read_flag(draft.metadata, "tokenizer.ggml.add_bos_token", draft.adds_bos);
  const auto adds_eos = read_flag(draft.metadata, "tokenizer.ggml.add_eos_token", draft.adds_eos);
  if (!adds_bos) return adds_bos.error();
  if (!adds_eos) return adds_eos.error();
  SpecialTokens& special = draft.data.special;
  if (*adds_bos && special.bos) special.prefix.push_back(*special.bos);
  if (draft.adds_separator && draft.separator) {
    special.suffix.push_back(*draft.separator);
  } else if (*adds_eos && special.eos) {
    special.suffix.push_back(*special.eos);
  }
  return {};
}

Status load_templates(GgufDraft& draft) {
  constexpr std::string_view prefix = "tokenizer.chat_template.";
  std::vector<TemplateSource>& templates = draft.data.chat_templates;
  const auto standard = draft.metadata.get_string("tokenizer.chat_template");
  if (!standard) return standard.error();
  if (*standard) templates.push_back({"default", std::string(**standard)});
  for (const auto& [key, value] : draft.metadata.values()) {
    const auto* source = std::get_if<std::string_view>(&value);
    if (source != nullptr && key.starts_with(prefix))
      templates.push_back({key.substr(prefix.size()), std::string(*source)});
  }
  return {};
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// Whether added tokens take the white space beside them is not in the files; it is known of these families.
Status set_family_flags(const GgufDraft& draft, std::vector<AddedToken>& tokens) {
  const auto name = draft.metadata.get_string("general.name");
  const auto pre = draft.metadata.get_string("tokenizer.ggml.pre");
  if (!name) return name.error();
  if (!pre) return pre.error();
  const std::string model = lower_ascii(name->value_or(""));
  const bool is_phi3 = model.find("phi-3") != std::string::npos || model.find("phi3") != std::string::npos;
  const bool is_jina = pre->value_or("").starts_with("jina-v2-");
  for (AddedToken& token : tokens) {
    const bool is_plain =
        token.content == "<unk>" || token.content == "<s>" || token.content == "<|endoftext|>";
    if (is_phi3) token.strips_right = !is_plain;
    if (is_jina && token.content == "<mask>") token.strips_left = true;
  }
  return {};
}

Status build_added(GgufDraft& draft) {
  std::vector<AddedToken> tokens;
  const TokenizerData& data = draft.data;
  for (size_t i = 0; i < data.kinds.size(); ++i) {
    const auto id = static_cast<Token>(i);
    const bool is_special = data.kinds[i] == TokenKind::Control || data.kinds[i] == TokenKind::Unknown;
    if (!is_special && data.kinds[i] != TokenKind::UserDefined) continue;
    tokens.push_back({.id = id, .content = std::string(data.spellings.text(id)), .is_special = is_special});
  }
  if (Status status = set_family_flags(draft, tokens); !status) return status;
  draft.data.added = AddedTokens(std::move(tokens));
  return {};
}

Status load_nothing(GgufDraft& draft) {
  const auto size = draft.metadata.get_int("tokenizer.ggml.vocab_size");
  if (!size) return size.error();
  const auto count = static_cast<size_t>(std::clamp<int64_t>(size->value_or(0), 0, largest_vocabulary));
  draft.data.kinds.assign(count, TokenKind::Unused);
  draft.data.spellings = TokenTable(count);
  draft.data.pieces = TokenTable(count);
  return {};
}

Status load(GgufDraft& draft, std::string_view model) {
  if (Status status = load_templates(draft); !status) return status;
  if (model == "none" || model == "no_vocab") return load_nothing(draft);
  if (Status status = load_tokens(draft); !status) return status;
  if (Status status = load_types_and_scores(draft); !status) return status;
  if (Status status = load_special(draft, model); !status) return status;
  add_known_end_tokens(draft.data);
  if (Status status = load_gguf_model(draft, model); !status) return status;
  if (Status status = load_affixes(draft); !status) return status;
  if (Status status = build_added(draft); !status) return status;
  return render_pieces(draft.data);
}

}  // namespace

Result<Tokenizer> load_tokenizer_gguf(const GgufMetadata& metadata) {
  const auto model = metadata.get_string("tokenizer.ggml.model");
  if (!model) return model.error();
  if (!*model) return Error{ErrorCode::NotFound, "the file has no tokenizer (tokenizer.ggml.model)"};
  auto data = std::make_unique<TokenizerData>();
  GgufDraft draft{.metadata = metadata, .data = *data};
  if (Status status = load(draft, **model); !status) return status.error();
  return Tokenizer(std::move(data));
}

}  // namespace sluice::tokenizer
