// Decoding methods that run several lanes of one request together: beams, and the candidates of contrastive
// search.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "request/step.h"
#include "runtime/sequences/sequence.h"
#include "sampling/token_sampler.h"

namespace sluice::runtime {

// One sequence of a search. A new lane is its parent's copy plus a token.
struct SearchLane {
  std::vector<Token> tokens;  // prompt and output
  sampling::TokenSampler sampler;
};

class Search {
 public:
  virtual ~Search() = default;

  // The lanes that run. After advance() these are the next ones, in the order of its moves.
  const std::vector<SearchLane>& lanes() const { return lanes_; }

  // Before any token.
  void set_grammar(const std::shared_ptr<const grammar::CompiledGrammar>& grammar) {
    for (SearchLane& lane : lanes_) lane.sampler.set_grammar(grammar);
  }

  // Whether hidden states of every position are needed, not only of the last.
  virtual bool wants_context() const { return false; }
  // Hidden states [count, dim] of positions from `begin` on; may come again for the same positions.
  virtual void take_context(int /*begin*/, std::span<const float> /*hidden*/) {}

  // One step from the last rows of all lanes. An error is the request's own.
  virtual Result<request::SearchMove> advance(std::span<const HostRow> rows,
                                              sampling::Workspace& workspace) = 0;

 protected:
  explicit Search(SearchLane first) { lanes_.push_back(std::move(first)); }
  // Replaces the lanes by copies of their parents plus a token each.
  void move(std::span<const request::LaneMove> moves);

  std::vector<SearchLane> lanes_;
};

// The search that the request's method asks for; nullptr where its method samples tokens.
std::unique_ptr<Search> make_search(const request::Request& request, SearchLane first, int dim);

}  // namespace sluice::runtime
