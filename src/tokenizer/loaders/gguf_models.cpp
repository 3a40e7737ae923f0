// The models of tokenizers in GGUF files, by the name in tokenizer.ggml.model.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tokenizer/loaders/gguf_draft.h"
#include "tokenizer/pre_tokenizer_names.h"

namespace sluice::tokenizer {

namespace {

// The tokens that text can become, as they are spelled.
TokenTable plain_table(const GgufDraft& draft) {
  TokenTable table(draft.data.kinds.size());
  for (size_t i = 0; i < draft.data.kinds.size(); ++i) {
    const TokenKind kind = draft.data.kinds[i];
    if (kind != TokenKind::Normal && kind != TokenKind::UserDefined) continue;
    table.set(static_cast<Token>(i), draft.data.spellings.text(static_cast<Token>(i)));
    table.index(static_cast<Token>(i));
  }
  return table;
}

ByteTokens byte_tokens(GgufDraft& draft) {
  ByteTokens bytes;
  for (size_t i = 0; i < draft.data.kinds.size(); ++i) {
    const int byte = parse_byte_token(draft.data.spellings.text(static_cast<Token>(i)));
    const bool is_byte =
        draft.data.kinds[i] == TokenKind::Byte || (byte >= 0 && draft.data.kinds[i] == TokenKind::Normal);
    if (byte < 0 || !is_byte) continue;
    draft.data.kinds[i] = TokenKind::Byte;
    bytes.ids[static_cast<size_t>(byte)] = static_cast<Token>(i);
  }
  return bytes;
}

void use_space_marks(GgufDraft& draft, bool has_prefix) {
  draft.data.decoder.steps = {DecodeMetaspace{std::string(space_mark), false}, DecodeByteFallback{}};
  draft.data.decoder.keeps_added = true;
  if (has_prefix) draft.data.decoder.trimmed = DecodeStrip{' ', 1, 0};
}

// 0 for the highest score; equal scores have equal ranks.
std::vector<uint32_t> ranks_by_score(const std::vector<double>& scores) {
  std::vector<double> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const double score : scores) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(place - sorted.begin()));
  }
  return ranks;
}

Status load_sentence_piece(GgufDraft& draft) {
  const auto has_prefix = read_flag(draft.metadata, "tokenizer.ggml.add_space_prefix", true);
  if (!has_prefix) return has_prefix.error();
  if (draft.scores.empty()) return corrupt("tokenizer.ggml.scores is missing");
  auto spaces = unicode::Pattern::literal(" ");
  if (!spaces) return spaces.error();
  if (*has_prefix) draft.data.normalizer.emplace_back(Prepend{std::string(space_mark)});
  draft.data.normalizer.emplace_back(ReplacePattern{std::move(*spaces), std::string(space_mark)});
  BpeOptions options;
  options.is_scored = true;
  options.bytes = byte_tokens(draft);
  options.unknown = draft.data.special.unknown;
  draft.data.model.emplace<BpeModel>(std::move(options), plain_table(draft), MergeTable(),
                                     ranks_by_score(draft.scores));
  use_space_marks(draft, *has_prefix);
  draft.adds_bos = true;
  return {};
}

// Plain UTF-8 with marks for spaces; runs of line breaks are tokens as they stand.
Status use_raw_text(GgufDraft& draft, BpeOptions& options) {
  auto spaces = unicode::Pattern::literal(" ");
  if (!spaces) return spaces.error();
  draft.data.normalizer.emplace_back(ReplacePattern{std::move(*spaces), std::string(space_mark)});
  options.bytes = byte_tokens(draft);
  use_space_marks(draft, false);
  for (size_t i = 0; i < draft.data.kinds.size(); ++i) {
    const bool is_lines =
        draft.data.spellings.text(static_cast<Token>(i)).find_first_not_of('\n') == std::string_view::npos;
    if (is_lines && draft.data.kinds[i] == TokenKind::Normal) draft.data.kinds[i] = TokenKind::UserDefined;
  }
  return {};
}

MergeTable read_merges(const std::vector<std::string_view>& merges, const TokenTable& table) {
  MergeTable out(merges.size());
  std::string merged;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) continue;
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    merged.assign(left);
    merged += right;
    const Token left_id = table.find(left);
    const Token right_id = table.find(right);
    const Token id = table.find(merged);
    if (left_id == no_token || right_id == no_token || id == no_token) continue;
    out.insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  return out;
}

// The same tokens by the bytes they stand for.
TokenTable to_raw_bytes(const TokenTable& spelled) {
  TokenTable raw(spelled.size());
  std::string bytes;
  for (size_t i = 0; i < spelled.size(); ++i) {
    const auto id = static_cast<Token>(i);
    if (spelled.text(id).empty() || !decode_byte_level(spelled.text(id), bytes)) continue;
    raw.set(id, bytes);
    raw.index(id);
  }
  return raw;
}

Status load_byte_pair(GgufDraft& draft, std::string_view model) {
  const auto name = draft.metadata.get_string("tokenizer.ggml.pre");
  if (!name) return name.error();
  auto named = find_pre_tokenizer(model == "gemma4" ? "gemma4" : name->value_or(""));
  if (!named) return named.error();
  const auto merges = draft.metadata.get_strings("tokenizer.ggml.merges");
  if (!merges) return merges.error();
  if (*merges == nullptr && !named->may_lack_merges) return corrupt("tokenizer.ggml.merges is missing");
  BpeOptions options;
  options.raw_bytes = !named->maps_bytes && !named->has_raw_text;
  options.ignore_merges = named->ignores_merges;
  options.is_scored = *merges == nullptr;
  // A byte that a byte-level vocabulary lacks is left out, as its makers' tokenizers do: the file's unknown token is often
  // the one that ends a text.
  if (named->has_raw_text) {
    options.unknown = draft.data.special.unknown;
    if (Status status = use_raw_text(draft, options); !status) return status;
  } else {
    draft.data.decoder.steps = {DecodeBytes{}};
    draft.data.decoder.keeps_added = true;
  }
  TokenTable spelled = plain_table(draft);
  MergeTable table = *merges == nullptr ? MergeTable() : read_merges(**merges, spelled);
  std::vector<uint32_t> ranks;
  if (options.is_scored) {
    for (uint32_t i = 0; i < draft.data.kinds.size(); ++i) ranks.push_back(i);
  }
  TokenTable words = options.raw_bytes ? to_raw_bytes(spelled) : std::move(spelled);
  draft.data.model.emplace<BpeModel>(std::move(options), std::move(words), std::move(table),
                                     std::move(ranks));
  draft.data.pre_tokenizer = std::move(named->steps);
  draft.adds_bos = named->adds_bos;
  return {};
}

Result<std::shared_ptr<const Charsmap>> load_charsmap(const formats::GgufMetadata& metadata) {
  const auto numbers = metadata.get_ints("tokenizer.ggml.precompiled_charsmap");
  if (!numbers) return numbers.error();
  if (*numbers == nullptr || (*numbers)->empty()) return std::shared_ptr<const Charsmap>();
  std::string blob;
  blob.reserve((*numbers)->size());
  for (const int64_t number : **numbers) blob += static_cast<char>(number & 0xFF);
  auto map = Charsmap::parse(blob);
  if (!map) return map.error();
  return std::make_shared<const Charsmap>(std::move(*map));
}

Status load_unigram(GgufDraft& draft) {
  if (draft.scores.empty()) return corrupt("tokenizer.ggml.scores is missing");
  const auto has_prefix = read_flag(draft.metadata, "tokenizer.ggml.add_space_prefix", false);
  const auto merges_spaces = read_flag(draft.metadata, "tokenizer.ggml.remove_extra_whitespaces", false);
  auto map = load_charsmap(draft.metadata);
  if (!has_prefix) return has_prefix.error();
  if (!merges_spaces) return merges_spaces.error();
  if (!map) return map.error();
  draft.data.normalizer.emplace_back(
      PrecompiledPrefixes{std::move(*map), *has_prefix, *merges_spaces, false});
  const ByteTokens bytes = byte_tokens(draft);
  std::vector<UnigramModel::Entry> entries;
  double least = std::numeric_limits<double>::max();
  for (size_t i = 0; i < draft.data.kinds.size(); ++i) {
    const TokenKind kind = draft.data.kinds[i];
    const auto id = static_cast<Token>(i);
    if (kind == TokenKind::Normal) least = std::min(least, draft.scores[i]);
    if (kind != TokenKind::Normal && kind != TokenKind::UserDefined && kind != TokenKind::Unused) continue;
    const double score = kind == TokenKind::UserDefined ? 0.0 : draft.scores[i];
    entries.push_back({draft.data.spellings.text(id), id, score});
  }
  constexpr double unknown_penalty = 10.0;
  if (entries.empty()) least = 0;
  draft.data.model.emplace<UnigramModel>(entries, draft.data.kinds.size(), least - unknown_penalty,
                                         draft.data.special.unknown, bytes);
  use_space_marks(draft, *has_prefix);
  draft.adds_eos = true;
  return {};
}

// In these files the start of a word is marked instead of the continuation.
Status load_word_piece(GgufDraft& draft) {
  const auto lowercases = read_flag(draft.metadata, "tokenizer.ggml.normalizer.lowercase", true);
  if (!lowercases) return lowercases.error();
  const auto strips = read_flag(draft.metadata, "tokenizer.ggml.normalizer.strip_accents", *lowercases);
  if (!strips) return strips.error();
  std::vector<NormalizerStep>& normalizer = draft.data.normalizer;
  normalizer.emplace_back(CleanText{});
  normalizer.emplace_back(SpaceChinese{});
  if (*strips) {
    normalizer.emplace_back(unicode::UnicodeForm::Nfd);
    normalizer.emplace_back(RemoveCategories{unicode::set_of(unicode::Category::Mn)});
  }
  if (*lowercases) normalizer.emplace_back(Lowercase{});
  for (const auto& [pattern, behavior] : bert_splits) {
    auto step = make_split(pattern, behavior, false);
    if (!step) return step.error();
    draft.data.pre_tokenizer.push_back(std::move(*step));
  }
  WordPieceModel::Entries starts, continuations;
  for (size_t i = 0; i < draft.data.kinds.size(); ++i) {
    if (draft.data.kinds[i] != TokenKind::Normal) continue;
    const std::string_view text = draft.data.spellings.text(static_cast<Token>(i));
    if (text.starts_with(space_mark)) {
      starts.emplace_back(text.substr(space_mark.size()), static_cast<int32_t>(i));
    } else {
      continuations.emplace_back(text, static_cast<int32_t>(i));
    }
  }
  constexpr size_t any_length = std::numeric_limits<size_t>::max();
  draft.data.model.emplace<WordPieceModel>(std::move(starts), std::move(continuations),
                                           draft.data.special.unknown, any_length);
  use_space_marks(draft, true);
  draft.adds_bos = draft.adds_separator = true;
  return {};
}

}  // namespace

Result<bool> read_flag(const formats::GgufMetadata& metadata, std::string_view key, bool otherwise) {
  const auto value = metadata.get_bool(key);
  if (!value) return value.error();
  return value->value_or(otherwise);
}

Status load_gguf_model(GgufDraft& draft, std::string_view model) {
  if (model == "llama") return load_sentence_piece(draft);
  if (model == "gpt2" || model == "gemma4") return load_byte_pair(draft, model);
  if (model == "t5") return load_unigram(draft);
  if (model == "bert") return load_word_piece(draft);
  return Error{
      ErrorCode::Unsupported,
      fmt::format("tokenizer.ggml.model: '{}' is none of llama, gpt2, gemma4, t5, bert, none", model)};
}

}  // namespace sluice::tokenizer
