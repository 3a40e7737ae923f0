// A request whose sequences move together: the lanes of a search.
#pragma once

#include <memory>

#include "runtime/sequences/prompt_logprobs.h"
#include "runtime/sequences/search.h"
#include "runtime/sequences/sequence.h"

namespace sluice::runtime {

class SearchGroup final : public Sequence {
 public:
  SearchGroup(std::shared_ptr<const request::Request> request, std::unique_ptr<Search> search)
      : request_(std::move(request)), search_(std::move(search)) {}

  size_t lanes() const { return search_->lanes().size(); }
  // As of SampledSequence.
  void set_grammar(const std::shared_ptr<const grammar::CompiledGrammar>& grammar) {
    search_->set_grammar(grammar);
  }

  std::span<const Token> tokens(size_t lane) const override { return search_->lanes()[lane].tokens; }
  const request::Request* request() const override { return request_.get(); }
  StepNeed need(size_t lane, const request::Work& work) const override;
  void read_prompt(const PromptRows& rows, sampling::Workspace& workspace) override;
  // Moves when the last rows of all lanes are there.
  std::optional<request::Outcome> consume(const StepRows& rows) override;

 private:
  std::shared_ptr<const request::Request> request_;
  std::unique_ptr<Search> search_;
  PromptLogprobs prompt_;
};

}  // namespace sluice::runtime
