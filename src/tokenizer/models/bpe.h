// Byte pair encoding: a word starts as its bytes or characters, and the best pair of neighbours is merged
// until none is left. Two ways to say which pair is best: a list of merges, or the score of the token a pair
// makes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/models/token_table.h"
#include "unicode/encode_guard.h"

namespace sluice::tokenizer {

// U+2581, which stands for a space in the tokens of many vocabularies.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

// A token and the bytes [begin, end) of the word that it covers.
struct Piece {
  Token id = no_token;
  uint32_t begin = 0, end = 0;
};

// Memory that is used again from word to word.
struct ModelScratch {
  struct Symbol {
    Token id;
    uint32_t begin, end;
    int32_t previous, next;  // -1 at the ends
  };
  struct Candidate {
    MergeTable::Merge merge;
    int32_t left;         // index of a symbol
    uint32_t begin, end;  // what the merge covers: no longer so when a symbol has grown
  };
  struct Step {
    double score;
    uint32_t begin;
    Token id;
  };
  std::vector<Symbol> symbols;
  std::vector<MergeTable::Merge> merges;
  std::vector<Candidate> heap;
  std::vector<Step> steps;
  unicode::EncodeGuard* guard = nullptr;  // may be null; once it stops, what a model gives is of no use

  bool go_on(size_t bytes) const { return guard == nullptr || guard->go_on(bytes); }
};

// The tokens <0x00> to <0xFF>, for text that no other token covers; no_token where the vocabulary lacks one.
struct ByteTokens {
  std::array<Token, 256> ids;
  ByteTokens() { ids.fill(no_token); }
  Token of(char byte) const { return ids[static_cast<unsigned char>(byte)]; }
  bool cover(std::string_view text) const {
    return std::all_of(text.begin(), text.end(), [&](char byte) { return of(byte) != no_token; });
  }
};

struct BpeOptions {
  bool raw_bytes = false;      // words are any bytes and start as bytes; else UTF-8, and start as characters
  bool fuse_unknown = false;   // neighbouring unknown characters give one unknown token
  bool ignore_merges = false;  // a word that is a token is that token
  bool is_scored = false;      // ranks come from the scores of the tokens, not from a list of merges
  std::optional<Token> unknown;
  ByteTokens bytes;               // what characters without a token become
  std::string continuing_prefix;  // of every symbol but the first of a word
  std::string word_suffix;        // of the last symbol of a word
};

class BpeModel {
 public:
  // `table` finds the tokens that text can become. For a list of merges `ranks` is empty; else it holds for
  // each token how early it is merged, smaller is earlier.
  BpeModel(BpeOptions options, TokenTable table, MergeTable merges, std::vector<uint32_t> ranks);

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Piece>& out) const;
  // Words are bytes; one that no token stands for is left out.
  bool takes_bytes() const { return options_.raw_bytes; }

 private:
  // Is a token what its own text becomes? Found out when first asked.
  enum class Whole : uint8_t { Unasked, Yes, No };

  void tokenize_chunk(std::string_view word, uint32_t offset, ModelScratch& scratch,
                      std::vector<Piece>& out) const;
  void split_into_symbols(std::string_view word, std::vector<ModelScratch::Symbol>& symbols) const;
  bool push_fallback(std::string_view text, uint32_t begin, std::vector<ModelScratch::Symbol>& symbols) const;
  Token find_symbol(std::string_view word, size_t begin, size_t size) const;
  MergeTable::Merge rank(std::string_view word, const ModelScratch::Symbol& left,
                         const ModelScratch::Symbol& right) const;
  void merge_few(std::string_view word, ModelScratch& scratch) const;
  void merge_many(std::string_view word, ModelScratch& scratch) const;
  bool has_affixes() const { return !options_.continuing_prefix.empty() || !options_.word_suffix.empty(); }

  BpeOptions options_;
  TokenTable table_;
  MergeTable merges_;
  std::vector<uint32_t> ranks_;
  bool chunks_at_space_ = false;  // no token holds U+2581 after another character
  std::unique_ptr<std::atomic<Whole>[]> whole_;
};

}  // namespace sluice::tokenizer
