// Scheduler::plan: what prompts with pictures take of the steps that answers wait for.
#include <algorithm>

#include "sched/scheduler.h"

namespace sluice::sched {

namespace {

// Work that reads pictures, of one step: one is run, others give the tower something to begin with.
constexpr int kMostPictureWorks = 8;
// Steps that a prompt is spread over at most: towers take longer than that, and what follows a picture may be long.
constexpr int kMostPictureSteps = 32;
constexpr int kLeastPictureTokens = 4;

}  // namespace

bool Scheduler::is_rationed(const RequestState& entry) const {
  return options_.parts_towers && options_.scheme.chunked_prefill && !entry.request->spans.empty();
}

// Seconds are of towers and of tokens together; where nobody waits for a token, as long as a step may be.
request::PictureShare Scheduler::picture_share() const {
  if (!options_.parts_towers || std::holds_alternative<TbtAny>(options_.target_tbt)) return {};
  int64_t answers = 0, pictures = 0;
  for (const RequestState* entry : running_) {
    const bool prefilling = is_prefilling(*entry);
    pictures += prefilling && is_rationed(*entry);
    answers += prefilling ? 0 : entry->granted;
  }
  const double longest = options_.contended_step.count();
  if (answers == 0) return {.seconds = longest};
  const double alone = cost_.seconds(static_cast<double>(answers));
  const double crowd = std::max(1.0, static_cast<double>(pictures) / static_cast<double>(answers));
  double seconds = tbt_of_batch().picture_share * crowd * alone;
  if (const auto* given = std::get_if<Seconds>(&options_.target_tbt))
    seconds = std::max(seconds, given->count() - alone);
  seconds = std::min(seconds, longest);
  const int64_t tokens = cost_.tokens_within(alone + seconds) - answers;
  return {
      .seconds = seconds,
      .tokens = static_cast<int>(std::clamp<int64_t>(tokens, kLeastPictureTokens, options_.max_step_tokens))};
}

// Of a prompt with pictures, in this step.
int Scheduler::picture_chunk(const StepBuilder& builder, const RequestState& entry, int begin) const {
  if (!is_rationed(entry) || begin >= entry.prompt_size()) return request::kAnyTokens;
  const int spread = (entry.prompt_size() + kMostPictureSteps - 1) / kMostPictureSteps;
  return std::max(builder.step.pictures.tokens, spread);
}

// Those whose last work was run go on first, so that a prompt that has its pictures ends before the next one begins.
void Scheduler::plan_prompts(StepBuilder& builder) {
  std::stable_partition(prefilling_.begin(), prefilling_.end(),
                        [](const RequestState* entry) { return !entry->postponed; });
  int pictures = 0;
  std::erase_if(prefilling_, [&](const RequestState* entry) {
    return builder.step.pictures.tokens < request::kAnyTokens && is_rationed(*entry) &&
           ++pictures > kMostPictureWorks;
  });
  plan_each(builder, prefilling_);
}

}  // namespace sluice::sched
