// One step of the device, as the scheduler asks for it, and what came of it.
//
// The executor keeps the tokens and the sampling state of every sequence from `admit` to `retire`: a step
// names positions, never sampled values, so that the next one can be planned while this one runs. Its block tables are in
// it: nothing else has to be asked to run it, and it can be sent, recorded and replayed (step_codec.h). There is no
// prefill: a sequence runs positions [begin, end), and prompts, chunks of them, single tokens and verified
// drafts differ in numbers only.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "request/block_move.h"
#include "request/block_tables.h"
#include "request/request.h"
#include "request/speculation.h"

namespace sluice::request {

// Runs tokens [begin, end) of a sequence. Outputs are wanted from `sample_from` on; sample_from == end: none.
// Outputs are logits, or hidden states where the request asks for a vector. A token is sampled, or the vector is
// complete, where the sequence ends (end == its number of tokens); outputs of earlier positions are wanted for prompt
// log-probabilities and for means only, each position's once and in order, however often it runs.
//
// The last drafts.size() positions hold drafts, tokens that somebody guessed behind the end of the sequence. They are
// verified: the executor appends those that it would have sampled itself, up to the first that it would not, and then a
// token of its own. kDraftLater in their place: the executor guesses when it runs the work, as many or fewer.
struct Work {
  SeqId seq;
  int begin = 0, end = 0, sample_from = 0;
  // Length of the sequence that decides the rotary frequencies of the positions before it; a position from there on is
  // turned by those of the length it makes.
  int rope_length = 0;
  std::vector<Token> drafts;
  std::vector<EmbeddingSpan> spans;  // that positions of the work lie in, whole

  int known_end() const { return end - static_cast<int>(drafts.size()); }  // of the tokens that are no drafts
  friend bool operator==(const Work&, const Work&) = default;
};

// A sequence the executor has not seen: its tokens are the request's prompt, its sampling stream that of
// choice 0.
struct Admission {
  SeqId seq;
  std::shared_ptr<const Request> request;
  int cached = 0;  // tokens of the prompt that were found in the prefix cache
};

// Another choice of the same request: `child` starts with the tokens of `parent` (still the prompt alone) and
// has the sampling stream of `choice`.
struct Fork {
  SeqId parent, child;
  int choice = 0;
};

// The lanes of a search (beam, contrastive) after its last SearchMove, in the order of that move: lane i of
// the move is from now on sequence lanes[i]. Sequences of the group that are not listed are gone. KV tables
// and copies are settled already.
struct Lanes {
  SeqId group;  // the sequence that was admitted
  std::vector<SeqId> lanes;
};

// Rows and width of a padded step: the executor computes rows * width tokens, of which only those of `work`
// count.
struct Rectangle {
  int rows = 0, width = 0;
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

inline constexpr double kAnySeconds = std::numeric_limits<double>::infinity();
inline constexpr int kAnyTokens = std::numeric_limits<int>::max();

// What prompts with pictures may take of a step: either time for their vision towers, or so many tokens whose pictures are
// there, or some of both. Of works that want more, the first is run. Not sent to other ranks.
struct PictureShare {
  double seconds = kAnySeconds;
  int tokens = kAnyTokens;
};

// Applied in the order of the members. A step may have no work.
struct Step {
  std::vector<SeqId> retire;  // sequences and groups to forget
  std::vector<Admission> admit;
  std::vector<Fork> forks;
  std::vector<Lanes> lanes;
  std::vector<BlockMove> moves;
  std::vector<Work> work;            // the lanes of one group stand together, in order
  BlockTables tables;                // of the work, by its index
  std::optional<Rectangle> padding;  // absent: packed
  std::vector<RequestId> preempted;  // for people; the executor keeps their tokens
  PictureShare pictures;

  bool empty() const {
    return retire.empty() && admit.empty() && forks.empty() && lanes.empty() && moves.empty() && work.empty();
  }
  int64_t tokens() const {
    int64_t sum = 0;
    for (const Work& item : work) sum += item.end - item.begin;
    return sum;
  }
  // Tokens the device computes, padding included.
  int64_t computed_tokens() const { return padding ? int64_t{padding->rows} * padding->width : tokens(); }
};

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
};

struct Sampled {
  Token token = 0;
  // Log-softmax of the row as the model gave it (of a beam: after its processors); 0 where nobody asked.
  float logprob = 0;
  std::vector<TokenLogprob> top;  // likeliest first; as many as the request asked for
  int rank = 0;  // of prompt tokens: how many of the row are at least as likely; 0: not counted
};

// New tokens of one sequence; several where drafts were accepted. The executor has appended them to the
// sequence.
struct Tokens {
  std::vector<Sampled> tokens;
  bool ended = false;         // the sampler allows nothing more (a grammar is complete)
  Verified verified;          // of the drafts of the work: the accepted ones are the first tokens
  std::vector<Token> drafts;  // guesses of what comes next, for the sequence's next work
};

struct LaneMove {
  int parent = 0;  // index of a lane of the step
  Token token = 0;
};

struct Hypothesis {
  std::vector<Sampled> tokens;
  double score = 0;
  FinishReason reason = FinishReason::Stop;
  bool stop_token = false;  // the last token ended it and is not part of the text; the scheduler finds out
};

// How a search goes on: lane i of the next step is lane moves[i].parent of this one plus a token. No moves:
// the search is over.
struct SearchMove {
  std::vector<LaneMove> moves;
  // Tokens that every lane shares from now on. A search either settles all its tokens as it goes (contrastive search
  // does) and gives the reason of its end here, or gives hypotheses when it is over, best first.
  std::vector<Sampled> settled;
  FinishReason reason = FinishReason::Stop;
  std::vector<Hypothesis> hypotheses;
};

// The vector that a request asked for, after its last position.
struct Pooled {
  std::vector<float> values;
};

// The sequence would read KV that could not be read back (checksum of the disk tier): nothing was sampled, and it is
// computed again.
struct KvLost {};

// Nothing of the work was run: the pictures that it needs are not ready, or others took the step's share. It is to be planned
// again.
struct Postponed {};

// An Error is the sequence's own: non-finite or fully masked logits, for instance. After an Error or KvLost, work of
// the sequence in steps that were already submitted gives the same answer again, though it may count on a token that was
// never sampled.
struct Outcome {
  SeqId seq;  // the group, for searches
  std::variant<Tokens, SearchMove, Pooled, KvLost, Postponed, Error> result;
  std::vector<Sampled> prompt_logprobs;  // of tokens (begin, end) of the prompt, the tokens themselves given
  // Of each token of the prompt, with the last token of the answer: the largest weight that a head gave it, averaged over
  // the rows that were sampled from. Empty where nobody asked.
  std::vector<float> prompt_attention = {};
};

}  // namespace sluice::request
