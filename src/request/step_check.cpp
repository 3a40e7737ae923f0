#include "request/step_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

namespace sluice::request {
namespace {

constexpr int kMostGroups = 256;

bool are_tokens(std::span<const Token> tokens) {
  return std::all_of(tokens.begin(), tokens.end(), [](Token token) { return token >= 0; });
}

Status check_work(const Work& work) {
  if (work.begin < 0 || work.begin >= work.end)
    return corrupt_step(fmt::format("work runs positions [{}, {})", work.begin, work.end));
  if (work.sample_from < work.begin || work.sample_from > work.end)
    return corrupt_step(
        fmt::format("work on [{}, {}) samples from {}", work.begin, work.end, work.sample_from));
  if (work.rope_length < 0) return corrupt_step(fmt::format("rope_length is {}", work.rope_length));
  const bool guessed = std::all_of(work.drafts.begin(), work.drafts.end(),
                                   [](Token token) { return token >= 0 || token == kDraftLater; });
  if (work.drafts.size() >= static_cast<size_t>(work.end - work.begin) || !guessed)
    return corrupt_step(fmt::format("{} drafts in [{}, {})", work.drafts.size(), work.begin, work.end));
  for (const EmbeddingSpan& span : work.spans) {
    if (span.begin < 0 || span.begin >= work.end || span.end <= work.begin || span.begin >= span.end)
      return corrupt_step(fmt::format("work on [{}, {}) has embeddings of [{}, {})", work.begin, work.end,
                                      span.begin, span.end));
  }
  if (split_by(work.spans, work.end) != nullptr)
    return corrupt_step("work ends inside of a bidirectional span");
  return {};
}

Status check_tables(const BlockTables& tables, size_t work) {
  if (tables.groups < 0 || tables.groups > kMostGroups)
    return corrupt_step(fmt::format("{} groups of block tables; at most {}", tables.groups, kMostGroups));
  if (tables.ends.size() != work * static_cast<size_t>(tables.groups))
    return corrupt_step(fmt::format("{} block tables for {} pieces of work in {} groups", tables.ends.size(),
                                    work, tables.groups));
  const size_t last = tables.ends.empty() ? 0 : tables.ends.back();
  if (!std::is_sorted(tables.ends.begin(), tables.ends.end()) || last != tables.blocks.size())
    return corrupt_step("the block tables overlap or leave blocks over");
  for (const BlockId block : tables.blocks) {
    if (block < kNoBlock) return corrupt_step(fmt::format("a block table holds block {}", block.value));
  }
  return {};
}

Status check_admission(const Admission& admission) {
  const Request& request = *admission.request;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0 || !are_tokens(request.prompt)) return corrupt_step("a prompt is empty or holds no tokens");
  if (admission.cached < 0 || admission.cached >= prompt)
    return corrupt_step(fmt::format("{} cached tokens of a prompt of {}", admission.cached, prompt));
  if (!std::isfinite(request.weight) || request.weight <= 0)
    return corrupt_step(fmt::format("the weight of a client is {}", request.weight));
  if (Status status = validate_input(request); !status) return status;
  return validate(request.task, std::numeric_limits<Token>::max());
}

}  // namespace

Error corrupt_step(const std::string& message) {
  return {ErrorCode::Corrupt, "step: " + message};
}

Status check_step(const Step& step) {
  for (const Admission& admission : step.admit) {
    if (Status status = check_admission(admission); !status) return status;
  }
  for (const Work& work : step.work) {
    if (Status status = check_work(work); !status) return status;
  }
  for (const Fork& fork : step.forks) {
    if (fork.choice < 0) return corrupt_step(fmt::format("a fork is choice {}", fork.choice));
  }
  for (const BlockMove& move : step.moves) {
    const bool known = move.group >= 0 && move.group < step.tables.groups;
    if (!known || move.from.block <= kNoBlock || move.to.block <= kNoBlock)
      return corrupt_step(fmt::format("block {} moves to {} in group {} of {}", move.from.block.value,
                                      move.to.block.value, move.group, step.tables.groups));
  }
  if (step.padding && (step.padding->rows < 1 || step.padding->width < 1))
    return corrupt_step(fmt::format("padding to {} rows of {}", step.padding->rows, step.padding->width));
  return check_tables(step.tables, step.work.size());
}

}  // namespace sluice::request
