// "model" of tokenizer.json: BPE, Unigram, WordPiece, WordLevel.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "tokenizer/loaders/json_fields.h"
#include "tokenizer/loaders/tokenizer_json.h"

namespace sluice::tokenizer {

namespace {

Error corrupt_model(std::string message) {
  return {ErrorCode::Corrupt, "tokenizer.json: " + std::move(message)};
}

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

struct VocabularyEntry {
  std::string_view text;
  Token id;
  double score;
};

Result<Token> checked_id(int64_t id, std::string_view text) {
  if (id >= 0 && id < static_cast<int64_t>(largest_vocabulary)) return static_cast<Token>(id);
  return corrupt_model(fmt::format("token '{}' has id {}, must be in [0, {})", text, id, largest_vocabulary));
}

// {"token": id, …}
Result<std::vector<VocabularyEntry>> read_map(const json::object& vocabulary) {
  std::vector<VocabularyEntry> entries;
  entries.reserve(vocabulary.size());
  for (const auto& [key, value] : vocabulary) {
    const std::string_view text(key.data(), key.size());
    const auto id = checked_id(value.is_int64() ? value.get_int64() : -1, text);
    if (!id) return id.error();
    entries.push_back({text, *id, 0.0});
  }
  return entries;
}

// [["token", score], …]
Result<std::vector<VocabularyEntry>> read_scored(const json::array& vocabulary) {
  std::vector<VocabularyEntry> entries;
  entries.reserve(vocabulary.size());
  if (vocabulary.size() > largest_vocabulary)
    return corrupt_model(fmt::format("a vocabulary of {} tokens", vocabulary.size()));
  for (const json::value& value : vocabulary) {
    const json::array* pair = value.if_array();
    const bool is_pair =
        pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_number();
    if (!is_pair)
      return corrupt_model(fmt::format("vocabulary entry {} is not [token, score]", entries.size()));
    const double score = (*pair)[1].to_number<double>();
    if (!std::isfinite(score))
      return corrupt_model(fmt::format("vocabulary entry {} has score {}", entries.size(), score));
    entries.push_back({view((*pair)[0].get_string()), static_cast<Token>(entries.size()), score});
  }
  return entries;
}

// Spellings and kinds of all ids; an added token is spelled as it was added.
void fill_vocabulary(const std::vector<VocabularyEntry>& entries, const std::vector<AddedToken>& added,
                     TokenizerData& data) {
  size_t size = 0;
  for (const VocabularyEntry& entry : entries) size = std::max(size, static_cast<size_t>(entry.id) + 1);
  for (const AddedToken& token : added) size = std::max(size, static_cast<size_t>(token.id) + 1);
  std::vector<std::string_view> texts(size);
  data.kinds.assign(size, TokenKind::Unused);
  for (const VocabularyEntry& entry : entries) {
    texts[static_cast<size_t>(entry.id)] = entry.text;
    data.kinds[static_cast<size_t>(entry.id)] = TokenKind::Normal;
  }
  for (const AddedToken& token : added) {
    texts[static_cast<size_t>(token.id)] = token.content;
    data.kinds[static_cast<size_t>(token.id)] =
        token.is_special ? TokenKind::Control : TokenKind::UserDefined;
  }
  data.spellings = TokenTable(size);
  for (size_t i = 0; i < size; ++i) {
    if (data.kinds[i] == TokenKind::Unused) continue;
    data.spellings.set(static_cast<Token>(i), texts[i]);
    data.spellings.index(static_cast<Token>(i));
  }
}

class ModelParser {
 public:
  ModelParser(const json::object& object, TokenizerData& data)
      : fields_(object, "tokenizer.json: model"), data_(data) {}

  Status parse(const std::vector<AddedToken>& added) {
    const std::string type = fields_.text("type", guess_type());
    auto entries = read_entries();
    if (!entries) return entries.error();
    entries_ = std::move(*entries);
    fill_vocabulary(entries_, added, data_);
    Status status = read_unknown();
    if (!status) return status;
    if (type == "BPE") {
      status = parse_bpe();
    } else if (type == "Unigram") {
      status = parse_unigram();
    } else if (type == "WordPiece") {
      status = parse_word_piece();
    } else if (type == "WordLevel") {
      data_.model.emplace<WordLevelModel>(plain_table(), unknown_);
    } else {
      return Error{ErrorCode::Unsupported,
                   fmt::format("tokenizer.json: model of type '{}' is not supported", type)};
    }
    return status.ok() ? fields_.status() : status;
  }

 private:
  // Old files do not name the type.
  std::string_view guess_type() const {
    if (fields_.value("merges") != nullptr) return "BPE";
    if (fields_.value("continuing_subword_prefix") != nullptr) return "WordPiece";
    const json::value* vocabulary = fields_.value("vocab");
    return vocabulary != nullptr && vocabulary->is_array() ? "Unigram" : "WordLevel";
  }

  Result<std::vector<VocabularyEntry>> read_entries() const {
    const json::value* vocabulary = fields_.value("vocab");
    if (vocabulary != nullptr && vocabulary->is_object()) return read_map(vocabulary->get_object());
    if (vocabulary != nullptr && vocabulary->is_array()) return read_scored(vocabulary->get_array());
    return corrupt_model("the model has no 'vocab'");
  }

  Status read_unknown() {
    const std::string name = fields_.text("unk_token", "");
    const int64_t id = fields_.integer("unk_id", no_token);
    if (!name.empty()) {
      const Token found = data_.spellings.find(name);
      if (found == no_token) return {};  // as good as none, unless it is needed
      unknown_ = found;
    } else if (id >= 0) {
      if (id >= static_cast<int64_t>(entries_.size()))
        return corrupt_model(fmt::format("unk_id {} is out of range", id));
      unknown_ = static_cast<Token>(id);
    }
    if (!unknown_) return {};
    data_.special.unknown = unknown_;
    TokenKind& kind = data_.kinds[static_cast<size_t>(*unknown_)];
    if (kind == TokenKind::Control) kind = TokenKind::Unknown;
    return {};
  }

  bool is_plain(Token id) const {
    const TokenKind kind = data_.kinds[static_cast<size_t>(id)];
    return kind == TokenKind::Normal || kind == TokenKind::UserDefined;
  }

  ByteTokens read_byte_tokens() {
    ByteTokens bytes;
    if (!fields_.flag("byte_fallback", false)) return bytes;
    for (const VocabularyEntry& entry : entries_) {
      const int byte = parse_byte_token(entry.text);
      if (byte < 0) continue;
      bytes.ids[static_cast<size_t>(byte)] = entry.id;
      data_.kinds[static_cast<size_t>(entry.id)] = TokenKind::Byte;
    }
    return bytes;
  }

  // The tokens that text can become: no typed text gives a special or a byte token.
  TokenTable plain_table() const {
    TokenTable table(data_.kinds.size());
    for (const VocabularyEntry& entry : entries_) {
      if (!is_plain(entry.id)) continue;
      table.set(entry.id, entry.text);
      table.index(entry.id);
    }
    return table;
  }

  TokenTable raw_table() const {
    TokenTable table(data_.kinds.size());
    std::string bytes;
    for (const VocabularyEntry& entry : entries_) {
      if (!is_plain(entry.id) || !decode_byte_level(entry.text, bytes)) continue;
      table.set(entry.id, bytes);
      table.index(entry.id);
    }
    return table;
  }

  // Bytes can stay bytes where nothing looks at their characters after they are mapped.
  bool take_map_step(const BpeOptions& options) {
    const auto is_map = [](const PreTokenizerStep& step) {
      return std::holds_alternative<MapBytesStep>(step);
    };
    std::vector<PreTokenizerStep>& steps = data_.pre_tokenizer;
    if (steps.empty() || !is_map(steps.back()) || std::count_if(steps.begin(), steps.end(), is_map) != 1)
      return false;
    if (!options.continuing_prefix.empty() || !options.word_suffix.empty()) return false;
    const auto maps = [](const NormalizerStep& step) { return std::holds_alternative<MapBytes>(step); };
    if (std::any_of(data_.normalizer.begin(), data_.normalizer.end(), maps)) return false;
    steps.pop_back();
    return true;
  }

  Status parse_bpe();
  Result<MergeTable> read_merges(size_t prefix_size, const TokenTable& table) const;
  Status parse_unigram();
  Status parse_word_piece();

  JsonFields fields_;
  TokenizerData& data_;
  std::vector<VocabularyEntry> entries_;
  std::optional<Token> unknown_;
};

Status ModelParser::parse_bpe() {
  BpeOptions options;
  options.bytes = read_byte_tokens();
  options.fuse_unknown = fields_.flag("fuse_unk", false);
  options.ignore_merges = fields_.flag("ignore_merges", false);
  options.continuing_prefix = fields_.text("continuing_subword_prefix", "");
  options.word_suffix = fields_.text("end_of_word_suffix", "");
  options.unknown = unknown_;
  options.raw_bytes = take_map_step(options);
  TokenTable table = plain_table();
  auto merges = read_merges(options.continuing_prefix.size(), table);
  if (!merges) return merges.error();
  if (options.raw_bytes) table = raw_table();
  data_.model.emplace<BpeModel>(std::move(options), std::move(table), std::move(*merges),
                                std::vector<uint32_t>());
  return {};
}

// The two sides of "a b" or ["a", "b"].
bool read_merge(const json::value& merge, std::string_view& left, std::string_view& right) {
  if (merge.is_string()) {
    const std::string_view text = view(merge.get_string());
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos) return false;
    left = text.substr(0, space);
    right = text.substr(space + 1);
    return true;
  }
  const json::array* pair = merge.if_array();
  if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string())
    return false;
  left = view((*pair)[0].get_string());
  right = view((*pair)[1].get_string());
  return true;
}

// Merges whose ids are looked up together.
class MergeBatch {
 public:
  MergeBatch(const TokenTable& table, size_t count) : table_(table), merges_(count) {}

  void push(std::string_view left, std::string_view right, size_t prefix_size, uint32_t rank) {
    std::string& merged = merged_[ranks_.size()];
    merged.assign(left);
    merged += right.substr(std::min(prefix_size, right.size()));
    for (const std::string_view text : {left, right, std::string_view(merged)}) texts_.push_back(text);
    ranks_.push_back(rank);
    if (ranks_.size() == merged_.size()) flush();
  }

  MergeTable finish() {
    flush();
    return std::move(merges_);
  }

 private:
  void flush() {
    std::array<Token, 3 * batch_size> ids;
    table_.find(texts_, std::span(ids).first(texts_.size()));
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const Token* merge = &ids[3 * i];
      // Merges of special tokens would let text become one.
      if (std::find(merge, merge + 3, no_token) == merge + 3)
        merges_.insert(merge[0], merge[1], {ranks_[i], merge[2]});
    }
    texts_.clear();
    ranks_.clear();
  }

  static constexpr size_t batch_size = TokenTable::largest_batch / 3;
  const TokenTable& table_;
  MergeTable merges_;
  std::array<std::string, batch_size> merged_;
  std::vector<std::string_view> texts_;  // left, right and merged, in turn
  std::vector<uint32_t> ranks_;
};

Result<MergeTable> ModelParser::read_merges(size_t prefix_size, const TokenTable& table) const {
  const json::value* value = fields_.value("merges");
  if (value == nullptr || !value->is_array()) return corrupt_model("the BPE model has no 'merges'");
  const json::array& merges = value->get_array();
  MergeBatch batch(table, merges.size());
  uint32_t rank = 0;
  for (const json::value& merge : merges) {
    if (merge.is_string() && view(merge.get_string()).starts_with("#version")) continue;
    std::string_view left, right;
    if (!read_merge(merge, left, right)) return corrupt_model(fmt::format("merge {} is not a pair", rank));
    batch.push(left, right, prefix_size, rank++);
  }
  return batch.finish();
}

Status ModelParser::parse_unigram() {
  constexpr double unknown_penalty = 10.0;
  const ByteTokens bytes = read_byte_tokens();
  std::vector<UnigramModel::Entry> plain;
  double least = std::numeric_limits<double>::infinity();
  for (const VocabularyEntry& entry : entries_) {
    least = std::min(least, entry.score);
    if (is_plain(entry.id)) plain.push_back({entry.text, entry.id, entry.score});
  }
  if (entries_.empty()) least = 0;
  data_.model.emplace<UnigramModel>(plain, data_.kinds.size(), least - unknown_penalty, unknown_, bytes);
  return {};
}

Status ModelParser::parse_word_piece() {
  const std::string prefix = fields_.text("continuing_subword_prefix", "##");
  const int64_t longest = fields_.integer("max_input_chars_per_word", 100);
  WordPieceModel::Entries starts, continuations;
  for (const VocabularyEntry& entry : entries_) {
    if (!is_plain(entry.id)) continue;
    starts.emplace_back(entry.text, entry.id);
    if (entry.text.starts_with(prefix))
      continuations.emplace_back(entry.text.substr(prefix.size()), entry.id);
  }
  data_.model.emplace<WordPieceModel>(std::move(starts), std::move(continuations), unknown_,
                                      static_cast<size_t>(std::max<int64_t>(longest, 0)));
  return {};
}

}  // namespace

Status parse_model(const json::value& value, const std::vector<AddedToken>& added, TokenizerData& data) {
  if (!value.is_object()) return corrupt_model("'model' must be an object");
  return ModelParser(value.get_object(), data).parse(added);
}

}  // namespace sluice::tokenizer
