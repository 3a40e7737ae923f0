#include "runtime/step_pipeline.h"

#include <algorithm>
#include <new>
#include <random>

#include "base/check.h"
#include "base/system/memory.h"

namespace sluice::runtime {

namespace {

// Where several ranks compute the model, rank 0 samples on the host and tells the others the tokens.
std::optional<OverlappedStepRunner> overlapped_on(const models::Model& model) {
  kernels::AsyncDevice* device = model.backend->async_device();
  if (device == nullptr || model.group) return std::nullopt;
  return OverlappedStepRunner(*device);
}

std::optional<DraftModel> draft_of(std::unique_ptr<StepRunner> runner, int vocab, const models::Head* head) {
  if (runner == nullptr) return std::nullopt;
  return std::optional<DraftModel>(std::in_place, std::move(runner), vocab, head);
}

// Between two steps: with more, nothing was to be done.
constexpr double kIdleSeconds = 2e-3;

// How the rows of one work are sampled, where they stand among the step's.
class RowsOfWork final : public RowSampling {
 public:
  RowsOfWork(OverlappedStepRunner::SampleBatch& batch, size_t first, size_t words)
      : batch_(batch), next_(first), words_(words) {}
  void add(const kernels::SampleArgs& how, std::span<const kernels::LogitAdjustment> edits) override {
    batch_.set(next_++, how, edits);
  }
  std::span<uint32_t> add_mask() override { return batch_.add_mask(next_ - 1, words_); }

 private:
  OverlappedStepRunner::SampleBatch& batch_;
  size_t next_, words_;
};

}  // namespace

StepPipeline::StepPipeline(std::unique_ptr<StepRunner> target, std::unique_ptr<StepRunner> contrast,
                           Options options)
    : target_(std::move(target)),
      contrast_(std::move(contrast)),
      ahead_(overlapped_on(target_->runner().model())),
      draft_(draft_of(std::move(options.draft), target_->spec().vocab, options.head)),
      speculator_(options.speculation, draft_ ? draft_->kind() : Speculation::Off),
      sequences_({.vocab = target_->spec().vocab,
                  .dim = target_->spec().dim,
                  .eos_tokens = std::move(options.eos_tokens),
                  .entropy = (uint64_t{std::random_device{}()} << 32) | std::random_device{}(),
                  .slots = ahead_ ? &ahead_->slots() : nullptr,
                  .grammars = std::move(options.grammars),
                  .speculator = &speculator_}),
      delivery_(*target_, contrast_.get(), ahead_ ? &ahead_->device() : nullptr),
      pictures_(target_->runner().model(), options.picture_bytes) {
  if (options.head != nullptr) target_->runner().set_taps(options.head->taps);
}

void StepPipeline::clear() {
  sequences_.clear();
  target_->runner().drop_asked();
  target_->runner().mover().clear();
  if (contrast_) contrast_->runner().mover().clear();
  if (draft_) draft_->clear();
}

// What the host did since the step before counts.
double StepPipeline::seconds_of(const SubmittedStep& submitted) {
  const TimePoint now = Clock::now(), before = std::exchange(synchronized_, now);
  const bool idle = seconds_between(before, submitted.start) > kIdleSeconds;
  return seconds_between(idle ? submitted.start : before, now);
}

void StepPipeline::synchronize(SubmittedStep& submitted) {
  if (!submitted.ticket) return take_from_last_stage(submitted);
  const std::span<const kernels::SampledToken> sampled = ahead_->wait(*submitted.ticket);
  submitted.ticket.reset();
  const double seconds = seconds_of(submitted);
  delivery_.deliver(submitted.awaited, sampled, sequences_, submitted.outcomes);
  note_cost(submitted, seconds - submitted.draft_seconds);
}

double StepPipeline::launch_seconds() const {
  return ahead_ && ahead_->begun() ? seconds_between(started_, *ahead_->begun()) : 0;
}

void StepPipeline::start(const request::Step& step) {
  started_ = Clock::now();
  if (ahead_) ahead_->start();
  sequences_.apply(step);
  for (const request::Admission& admission : step.admit)
    contrasted_ |= request::uses_contrast_model(*admission.request);
  target_->runner().move(step.moves);
  if (contrast_ && contrasted_) contrast_->runner().move(step.moves);
  if (draft_) draft_->apply(step);
  target_->start();
  if (contrast_) contrast_->start();
  plan_.clear();
  for (size_t i = 0; i < step.work.size(); ++i)
    plan_.push_back({.work = &step.work[i], .index = i, .of = sequences_.at(step.work[i].seq), .need = {}});
}

// Whether a work counts on a token that the host has yet to sample.
bool StepPipeline::waits_for_host() const {
  return std::any_of(plan_.begin(), plan_.end(), [](const PlannedWork& item) {
    const Sequence& sequence = *item.of.sequence;
    return sequence.device_slot() == 0 && item.work->end <= sequence.length(item.of.lane) &&
           item.work->end > static_cast<int>(sequence.tokens(item.of.lane).size());
  });
}

// On an asynchronous device those of a draft model are places where they will be, until take_device_drafts().
void StepPipeline::fill_drafts(const request::Step& step, SubmittedStep& submitted,
                               const std::function<void()>& settle) {
  filled_.clear();
  filled_.reserve(plan_.size());
  std::vector<DraftModel::Item> items;
  for (size_t i = 0; i < plan_.size(); ++i) {
    PlannedWork& item = plan_[i];
    if (item.of.sequence->failed()) continue;
    DraftModel::Item& asked = items.emplace_back();
    asked = {.index = i, .sequence = item.of.sequence, .lane = item.of.lane};
    if (item.work->drafts.empty() || item.work->drafts.front() != request::kDraftLater) continue;
    asked.work = &filled_.emplace_back(*item.work);
    item.work = asked.work;
  }
  if (ahead_ && !filled_.empty()) settle();
  if (ahead_ && !draft_->is_head()) return draft_->submit(step, items, *ahead_);
  note_drafts(draft_->run(step, items), submitted);
}

void StepPipeline::finish(const request::Step& step, SubmittedStep& submitted,
                          const std::function<void()>& settle) {
  submitted.start = started_;
  step_ = &step;
  if (draft_) fill_drafts(step, submitted, settle);
  encode_pictures(step);
  size_t kept = 0;
  for (size_t i = 0; i < step.work.size(); ++i) {
    if (plan_work(step, i, plan_[i], submitted)) plan_[kept++] = plan_[i];
  }
  plan_.resize(kept);
  if (plan_.empty()) return;
  target_->pad(step.padding ? step.computed_tokens() - target_->batch().rows() : 0);
  note_size(submitted);
  if (!ahead_) return stages() > 1 ? run_in_stages(submitted, settle) : run_on_host(submitted);
  const bool whole = std::all_of(plan_.begin(), plan_.end(), [](const PlannedWork& item) {
    return item.work->end - item.work->begin == item.sampled_rows();
  });
  run_ahead(whole && !step.padding, submitted, settle);
}

// Of all works of prompts with pictures at once.
void StepPipeline::encode_pictures(const request::Step& step) {
  std::vector<PictureEmbeddings::Reader> readers;
  for (const PlannedWork& item : plan_) {
    const PictureEmbeddings::Reader reader{item.of.sequence->request(), item.work};
    if (!item.of.sequence->failed() && reader.has_pictures()) readers.push_back(reader);
  }
  pictures_.begin_step(readers, parts_towers() ? step.pictures : request::PictureShare());
}

bool StepPipeline::plan_work(const request::Step& step, size_t index, PlannedWork& item,
                             SubmittedStep& submitted) {
  Sequence& sequence = *item.of.sequence;
  if (sequence.failed()) {
    submitted.outcomes.push_back({item.of.owner, *sequence.failed(), {}});
    return false;
  }
  const request::Request* request = sequence.request();
  const PictureEmbeddings::Reader reader{request, item.work};
  if (reader.has_pictures() && !pictures_.is_ready(reader)) {
    submitted.outcomes.push_back({item.of.owner, request::Postponed{}, {}});
    return false;
  }
  item.need = sequence.need(item.of.lane, *item.work);
  item.need.contrast = item.need.contrast && contrast_;
  bool lost = target_->reads_lost_block(step, index);
  if (item.need.contrast) lost |= contrast_->reads_lost_block(step, index);
  if (sequence.note_lost(item.of.lane, *item.work, lost)) {
    submitted.outcomes.push_back({item.of.owner, request::KvLost{}, {}});
    return false;
  }
  Status placed;
  if (item.need.contrast && !item.work->spans.empty())
    placed = Error{ErrorCode::Unsupported, "the contrast model reads no pictures"};
  if (item.need.attention && placed.ok()) placed = PromptAttention::check(target_->runner());
  if (placed.ok() && request != nullptr) placed = pictures_.place(*request, *item.work, target_->batch());
  if (!placed.ok()) {
    sequence.fail(placed.error());
    submitted.outcomes.push_back({item.of.owner, *sequence.failed(), {}});
    return false;
  }
  const std::span<const Token> tokens = sequence.tokens(item.of.lane);
  item.first_row = target_->add(step, index, *item.work, tokens, sequence.device_slot());
  if (item.need.contrast) item.contrast_row = contrast_->add(step, index, *item.work, tokens, 0);
  if (item.need.last != StepNeed::Last::None) sequence.note_submitted(*item.work);
  return true;
}

// Rows of the plan whose hidden states or logits somebody may ask for; ascending.
std::span<const int32_t> StepPipeline::wanted_rows() {
  rows_.clear();
  for (const PlannedWork& item : plan_) {
    const request::Work& work = *item.work;
    const bool context = item.need.hidden.size() > 0, all = draft_ && draft_->reads_hidden();
    const int begin = all       ? work.begin
                      : context ? std::min(work.sample_from, item.need.hidden.begin)
                                : work.sample_from;
    for (int position = begin; position < work.end; ++position) rows_.push_back(item.row(position));
  }
  return rows_;
}

void StepPipeline::run_contrast() {
  if (!contrast_ || contrast_->batch().rows() == 0) return;
  std::vector<int32_t> rows;
  for (const PlannedWork& item : plan_) {
    if (item.need.contrast && item.need.last == StepNeed::Last::Host)
      rows.push_back(item.contrast_row + item.work->end - 1 - item.work->begin);
  }
  contrast_->runner().forward(contrast_->batch(), rows);
}

// What the head guesses from in the next step.
void StepPipeline::keep_hidden() {
  if (!draft_ || !draft_->is_head()) return;
  for (const PlannedWork& item : plan_) draft_->keep(*item.work, item.first_row, target_->runner());
}

void StepPipeline::ask_for_queries() {
  std::vector<int32_t> rows;
  for (const PlannedWork& item : plan_)
    if (item.need.attention) rows.push_back(item.last_row());
  if (!rows.empty()) target_->runner().keep_queries(rows);
}

// The last token of an answer comes with what all of its rows attended to.
void StepPipeline::read_attention() {
  size_t index = 0;
  for (const PlannedWork& item : plan_) {
    if (!item.need.attention) continue;
    const request::Request& request = *item.of.sequence->request();
    PromptAttention& attention = *item.of.sequence->attention();
    try {
      attention.add(target_->runner(), index++);
      if (attention.rows() < static_cast<size_t>(request.sampling().max_tokens)) continue;
      std::vector<std::span<const BlockId>> tables;
      for (int group = 0; group < step_->tables.groups; ++group)
        tables.push_back(step_->tables.of(item.index, group));
      attention.weigh(target_->runner(), tables, static_cast<int>(request.prompt.size()));
    } catch (const std::bad_alloc&) {
      item.of.sequence->fail(out_of_memory());
    }
  }
}

void StepPipeline::run_on_host(SubmittedStep& submitted) {
  const TimePoint start = Clock::now();
  ask_for_queries();
  if (pad_decode()) {
    target_->runner().forward(target_->batch());
  } else {
    target_->runner().forward(target_->batch(), wanted_rows());
  }
  run_contrast();
  read_attention();
  delivery_.deliver_now(plan_, submitted.outcomes);
  keep_hidden();
  note_cost(submitted, seconds_since(start));
}

void StepPipeline::note_size(SubmittedStep& submitted) const {
  for (const PlannedWork& item : plan_) {
    submitted.rows += item.work->end - item.work->begin;
    submitted.sampled += item.sampled_rows();
    submitted.sequences += item.sampled_rows() > 0 ? 1 : 0;
  }
}

// The step's own time is without that of the draft model, whether or not the passes were such that they tell of others.
void StepPipeline::note_drafts(const DraftModel::Cost& cost, SubmittedStep& submitted) {
  submitted.draft_seconds = cost.seconds;
  if (cost.passes > 0) speculator_.control().note_draft_cost(cost.passes, cost.seconds);
}

// Of steps whose rows are all sampled from: those of prompts cost less, as their logits are not computed.
void StepPipeline::note_cost(const SubmittedStep& step, double seconds) {
  speculator_.control().note_step(step.sequences);
  if (step.sampled == step.rows && step.counts) speculator_.control().note_cost(step.rows, seconds);
}

// A row that is of no more use is still sampled from, without a mask, and what comes of it is dropped.
void StepPipeline::fill_mask(PlannedWork& item) {
  const auto words = static_cast<size_t>(kernels::mask_words(target_->spec().vocab));
  const auto row = static_cast<size_t>(item.sampled);
  try {
    if (item.need.drafts > 0) {
      RowsOfWork rows(to_sample_, row, words);
      return item.of.sequence->verify(*item.work, rows);
    }
    if (item.of.sequence->fill_mask(*item.work, to_sample_.add_mask(row, words))) return;
    item.need.last = StepNeed::Last::None;
  } catch (const std::bad_alloc&) {
    item.of.sequence->fail(out_of_memory());
  }
  to_sample_.how[row].mask = -1;
}

// The device has begun with the pass that verifies them.
void StepPipeline::take_device_drafts(SubmittedStep& submitted) {
  if (!draft_ || draft_->is_head() || filled_.empty()) return;
  note_drafts(draft_->take(*ahead_), submitted);
}

ModelRunner::Outputs StepPipeline::run_then_sample(bool repeats, SubmittedStep& submitted,
                                                   const std::function<void()>& settle) {
  const ModelRunner::Outputs outputs =
      ahead_->forward(target_->runner(), target_->batch(), to_sample_,
                      repeats ? std::span<const int32_t>(to_sample_.rows) : wanted_rows(), repeats);
  settle();
  take_device_drafts(submitted);
  for (PlannedWork& item : plan_)
    if (item.need.masked || (item.need.last == StepNeed::Last::Device && item.need.drafts > 0))
      fill_mask(item);
  ahead_->sample(outputs, to_sample_);
  return outputs;
}

// Up to a size that comes back.
void StepPipeline::pad_to_recorded(bool single) {
  Batch& batch = target_->batch();
  const int rows = batch.rows();
  if (single) {
    while (batch.rows() < padded_rows(rows)) target_->add_idle_row();
  } else {
    const PaddedShape shape = padded_shape(batch.sequences(), rows);
    target_->fill_up(shape.sequences, shape.rows);
  }
  for (int row = rows; row < batch.rows(); ++row) to_sample_.add(row, {});
}

// Logits that the host reads are computed with those that the device samples from: whoever samples, the step is the same.
void StepPipeline::run_ahead(bool repeats, SubmittedStep& submitted, const std::function<void()>& settle) {
  const bool sends = delivery_.can_send(plan_);
  bool drafts = false, masks = false;
  to_sample_.clear();
  for (PlannedWork& item : plan_) {
    if (item.need.last == StepNeed::Last::None) continue;
    const bool on_device = item.need.last == StepNeed::Last::Device;
    if (!on_device && !sends) continue;
    item.sampled = static_cast<int>(to_sample_.rows.size());
    for (int i = item.need.drafts; i > 0; --i) to_sample_.add(item.last_row() - i, {});
    to_sample_.add(item.last_row(), item.need.how, item.need.edits);
    drafts |= item.need.drafts > 0;
    masks |= item.need.masked;
  }
  const PaddedShape shape = padded_shape(target_->batch().sequences(), target_->batch().rows());
  repeats = repeats && sends && (!drafts || shape.rows <= kMostRecordedRows);
  if (drafts) submitted.counts = recorded_.runs_fast(shape);
  if (repeats) pad_to_recorded(!drafts);
  ModelRunner::Outputs outputs;
  ask_for_queries();
  if (masks || drafts) {
    outputs = run_then_sample(repeats, submitted, settle);
  } else if (repeats) {
    outputs = ahead_->replay(target_->runner(), target_->batch(), to_sample_);
  } else {
    outputs = ahead_->run(target_->runner(), target_->batch(), to_sample_, wanted_rows());
  }
  run_contrast();
  if (sends) {
    delivery_.send(plan_, outputs, submitted.awaited);
    submitted.ticket = ahead_->send(to_sample_);
    return keep_hidden();
  }
  for (const PlannedWork& item : plan_)
    if (item.need.last == StepNeed::Last::Device)
      submitted.awaited.items.push_back(
          {.owner = item.of.owner, .sampled = item.sampled, .drafts = item.need.drafts});
  submitted.ticket = ahead_->send(to_sample_);
  read_attention();
  delivery_.deliver_now(plan_, submitted.outcomes);
  keep_hidden();
}

}  // namespace sluice::runtime
