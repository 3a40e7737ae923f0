#include "tokenizer/models/bpe.h"

#include <algorithm>

#include "unicode/unicode.h"

namespace sluice::tokenizer {

namespace {

constexpr size_t few = 32;  // up to here a scan for the best pair is faster than a heap

using Symbol = ModelScratch::Symbol;
using Candidate = ModelScratch::Candidate;
using Merge = MergeTable::Merge;

bool has_inner_space_mark(std::string_view text) {
  for (size_t at = text.find(space_mark); at != std::string_view::npos; at = text.find(space_mark, at + 3)) {
    if (at > 0 && (at < 3 || text.substr(at - 3, 3) != space_mark)) return true;
  }
  return false;
}

// Top of the heap: smallest rank, then leftmost.
bool is_later(const Candidate& a, const Candidate& b) {
  return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.begin > b.begin;
}

}  // namespace

BpeModel::BpeModel(BpeOptions options, TokenTable table, MergeTable merges, std::vector<uint32_t> ranks)
    : options_(std::move(options)),
      table_(std::move(table)),
      merges_(std::move(merges)),
      ranks_(std::move(ranks)) {
  chunks_at_space_ = !options_.raw_bytes && !has_affixes() && table_.find(space_mark) != no_token;
  for (size_t id = 0; id < table_.size() && chunks_at_space_; ++id) {
    chunks_at_space_ = !has_inner_space_mark(table_.text(static_cast<Token>(id)));
  }
  whole_ = std::make_unique<std::atomic<Whole>[]>(table_.size());
}

void BpeModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<Piece>& out) const {
  if (options_.ignore_merges) {
    if (const Token id = table_.find(word); id != no_token) {
      out.push_back({id, 0, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  if (!chunks_at_space_) return tokenize_chunk(word, 0, scratch, out);
  // No merge can cross from another character to a space mark, so each such border ends a chunk.
  size_t begin = 0;
  while (begin < word.size()) {
    size_t end = begin;
    while (word.substr(end, 3) == space_mark) end += 3;
    end = std::min(word.find(space_mark, end), word.size());
    tokenize_chunk(word.substr(begin, end - begin), static_cast<uint32_t>(begin), scratch, out);
    begin = end;
  }
}

void BpeModel::tokenize_chunk(std::string_view word, uint32_t offset, ModelScratch& scratch,
                              std::vector<Piece>& out) const {
  const Token whole = has_affixes() ? no_token : table_.find(word);
  if (whole != no_token && whole_[whole].load(std::memory_order_relaxed) == Whole::Yes) {
    out.push_back({whole, offset, offset + static_cast<uint32_t>(word.size())});
    return;
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  split_into_symbols(word, symbols);
  if (symbols.size() <= few) {
    merge_few(word, scratch);
  } else {
    merge_many(word, scratch);
  }
  if (whole != no_token) {
    const bool is_whole = symbols.size() == 1 && symbols[0].id == whole;
    whole_[whole].store(is_whole ? Whole::Yes : Whole::No, std::memory_order_relaxed);
  }
  const auto emit = [&](const Symbol& symbol) {
    out.push_back({symbol.id, offset + symbol.begin, offset + symbol.end});
  };
  for (size_t i = 0, count = symbols.size(); i < count; ++i) {
    const Symbol symbol = symbols[i];
    if (symbol.id != no_token) {
      emit(symbol);
    } else if (push_fallback(word.substr(symbol.begin, symbol.end - symbol.begin), symbol.begin, symbols)) {
      std::for_each(symbols.begin() + static_cast<ptrdiff_t>(count), symbols.end(), emit);
      symbols.resize(count);
    } else if (options_.unknown) {
      emit({*options_.unknown, symbol.begin, symbol.end, 0, 0});
    }
  }
}

Token BpeModel::find_symbol(std::string_view word, size_t begin, size_t size) const {
  const bool is_first = begin == 0;
  const bool is_last = begin + size == word.size();
  const std::string_view text = word.substr(begin, size);
  if (!has_affixes()) return table_.find(text);
  std::string spelled = is_first ? std::string() : options_.continuing_prefix;
  spelled += text;
  if (is_last) spelled += options_.word_suffix;
  return table_.find(spelled);
}

bool BpeModel::push_fallback(std::string_view text, uint32_t begin, std::vector<Symbol>& symbols) const {
  if (!options_.bytes.cover(text)) return false;
  for (const char byte : text) {
    symbols.push_back({options_.bytes.of(byte), begin, begin + 1, 0, 0});
    ++begin;
  }
  return true;
}

// Scored merging looks at the text of two symbols, so a character without a token stays one symbol until all
// merges are done; else it becomes its fallback bytes at once, and these may merge like any other token.
void BpeModel::split_into_symbols(std::string_view word, std::vector<Symbol>& symbols) const {
  bool previous_unknown = false;
  for (size_t begin = 0; begin < word.size();) {
    const size_t size = options_.raw_bytes ? 1 : unicode::decode_utf8(word, begin).size;
    const auto from = static_cast<uint32_t>(begin);
    const auto to = static_cast<uint32_t>(begin + size);
    begin += size;
    const Token id = find_symbol(word, from, size);
    if (id != no_token || options_.is_scored) {
      symbols.push_back({id, from, to, 0, 0});
      previous_unknown = false;
      continue;
    }
    if (push_fallback(word.substr(from, size), from, symbols)) {
      previous_unknown = false;
      continue;
    }
    if (!options_.unknown) continue;
    if (previous_unknown && options_.fuse_unknown) {
      symbols.back().end = to;
    } else {
      symbols.push_back({*options_.unknown, from, to, 0, 0});
    }
    previous_unknown = true;
  }
}

Merge BpeModel::rank(std::string_view word, const Symbol& left, const Symbol& right) const {
  if (!options_.is_scored) return merges_.find(left.id, right.id);
  const Token id = table_.find(word.substr(left.begin, right.end - left.begin));
  return id == no_token ? Merge{} : Merge{ranks_[id], id};
}

void BpeModel::merge_few(std::string_view word, ModelScratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Merge>& merges = scratch.merges;  // of symbol i and i + 1
  merges.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) merges.push_back(rank(word, symbols[i], symbols[i + 1]));
  while (!merges.empty()) {
    const auto best = std::min_element(merges.begin(), merges.end(),
                                       [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == MergeTable::no_rank) break;
    const auto at = static_cast<size_t>(best - merges.begin());
    symbols[at].id = best->id;
    symbols[at].end = symbols[at + 1].end;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
    merges.erase(best);
    if (at > 0) merges[at - 1] = rank(word, symbols[at - 1], symbols[at]);
    if (at < merges.size()) merges[at] = rank(word, symbols[at], symbols[at + 1]);
  }
}

void BpeModel::merge_many(std::string_view word, ModelScratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  const auto candidate = [&](int32_t left) -> Candidate {
    const Symbol& a = symbols[left];
    const Symbol& b = symbols[a.next];
    return {rank(word, a, b), left, a.begin, b.end};
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i + 1 < count; ++i) {
    const Candidate pair = candidate(i);
    if (pair.merge.rank != MergeTable::no_rank) heap.push_back(pair);
  }
  std::make_heap(heap.begin(), heap.end(), is_later);
  const auto push = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const Candidate pair = candidate(left);
    if (pair.merge.rank == MergeTable::no_rank) return;
    heap.push_back(pair);
    std::push_heap(heap.begin(), heap.end(), is_later);
  };
  constexpr size_t cost = 16;  // of a merge, in bytes of plain work
  while (!heap.empty() && scratch.go_on(cost)) {
    std::pop_heap(heap.begin(), heap.end(), is_later);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    // A symbol that was merged away is empty; one that has grown no longer ends where the candidate says.
    if (left.begin == left.end || left.next < 0 || symbols[left.next].end != best.end) continue;
    Symbol& right = symbols[left.next];
    left.id = best.merge.id;
    left.end = right.end;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    right.begin = right.end;
    push(left.previous);
    push(best.left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.begin == symbol.end; });
}

}  // namespace sluice::tokenizer
