// A tiny model behind the real executor and engine, stepped by the test itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "grammar/grammar_store.h"
#include "kernels/async_device.h"
#include "kernels/ref/ref_backend.h"
#include "models/heads/head.h"
#include "runtime/model_executor.h"
#include "tests/runtime/sample_oracle.h"

namespace sluice::runtime::test {

inline const std::string kData = SLUICE_TEST_DATA;

// The reference back-end with a token that poisons its row, and a step that fails when it is told to.
class FaultyBackend : public kernels::RefBackend {
 public:
  void embed(TensorView out, const kernels::Weight& table, std::span<const int32_t> ids) override {
    if (fail_next) {
      fail_next = false;
      throw std::runtime_error("the device fell off the bus");
    }
    RefBackend::embed(out, table, ids);
    embedded += static_cast<int64_t>(ids.size());
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == poison) *out.at<float>(static_cast<int64_t>(i)) = std::numeric_limits<float>::quiet_NaN();
  }

  void gated(TensorView out, TensorView gate_up, kernels::Activation activation) override {
    fed += out.dim(0);
    RefBackend::gated(out, gate_up, activation);
  }

  Token poison = -1;
  bool fail_next = false;
  int64_t embedded = 0;  // tokens run so far
  int64_t fed = 0;       // tokens that feed-forwards ran so far, over all layers
};

// The same as an asynchronous device: what it samples is seen when it is waited for.
class AheadBackend : public FaultyBackend, public kernels::AsyncDevice {
 public:
  kernels::AsyncDevice* async_device() override { return this; }
  void embed(TensorView out, const kernels::Weight& table, std::span<const int32_t> ids) override {
    std::vector<int32_t> known(ids.begin(), ids.end());
    for (int32_t& id : known)
      if (id < 0) id = slots_.at(static_cast<size_t>(~id));
    begun_ahead += tickets_ > waited_;
    FaultyBackend::embed(out, table, known);
  }
  void run_step(const std::function<void()>& body) override {
    body();
    ++repeated_steps;
  }
  void download(TensorView out, TensorView x) override {
    ++downloads;
    FaultyBackend::download(out, x);
  }
  int slots() const override { return static_cast<int>(slots_.size()); }
  void sample(TensorView logits, std::span<const kernels::SampleArgs> rows,
              std::span<const kernels::LogitAdjustment> edits, std::span<const uint32_t> masks) override {
    list_.clear();
    masked_rows += std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.mask >= 0; });
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> row(logits.at<float>(static_cast<int64_t>(i)),
                                       static_cast<size_t>(logits.dim(1)));
      int32_t& slot = slots_.at(static_cast<size_t>(rows[i].slot));
      list_.push_back(kernels::oracle::sample_token(row, rows[i], {edits, masks}, slot));
      slot = list_.back().token;
    }
  }
  void send_rows(TensorView x, float* pinned) override {
    ++sent_rows;
    rows_.push_back({pinned, std::vector<float>(static_cast<size_t>(x.elements()))});
    const TensorView out =
        TensorView::contiguous(rows_.back().values.data(), DType::F32, {x.dim(0), x.dim(1)});
    RefBackend::download(out, x);
  }
  int64_t send_sampled(size_t count) override {
    list_.resize(count);
    Sent& sent = sent_[static_cast<size_t>(tickets_ % kTickets)];
    sent = {list_, std::exchange(rows_, {})};
    overlapped += tickets_ > waited_;
    return tickets_++;
  }
  // Only what was waited for is there: rows reach the host no earlier.
  std::span<const kernels::SampledToken> wait_sampled(int64_t ticket) override {
    if (lost) throw std::runtime_error("the device does not answer");
    Sent& sent = sent_[static_cast<size_t>(ticket % kTickets)];
    for (const Rows& rows : sent.rows) std::copy(rows.values.begin(), rows.values.end(), rows.pinned);
    waited_ = ticket + 1;
    return sent.tokens;
  }
  std::shared_ptr<std::byte> allocate_pinned(size_t bytes) override {
    auto buffer = std::make_shared<HostBuffer>(bytes);
    return {buffer, buffer->data()};
  }
  void copy_to_host(std::byte* pinned, std::span<const Piece> from) override {
    for (const Piece& piece : from) {
      std::memcpy(pinned, piece.data, piece.bytes);
      pinned += piece.bytes;
    }
  }
  void copy_from_host(std::span<const Piece> to, const std::byte* pinned) override {
    for (const Piece& piece : to) {
      std::memcpy(piece.data, pinned, piece.bytes);
      pinned += piece.bytes;
    }
  }
  void synchronize() override {}
  Room room() const override { return {size_t{1} << 30, size_t{1} << 30}; }
  void set_tuning(bool on) override { tuning = on; }
  std::string failure() const override { return lost ? "lost" : ""; }

  int64_t steps() const { return tickets_; }

  bool lost = false;  // whatever is waited for fails, for good
  bool tuning = true;
  int repeated_steps = 0;
  int downloads = 0;        // each waits for the device
  int overlapped = 0;       // steps that were sent while an earlier one was not yet waited for
  int sent_rows = 0;        // lists of rows that were sent beside steps
  int begun_ahead = 0;      // forward passes that began while an earlier step was not yet waited for
  int64_t masked_rows = 0;  // that were sampled under a mask

 private:
  struct Rows {
    float* pinned;
    std::vector<float> values;
  };
  struct Sent {
    std::vector<kernels::SampledToken> tokens;
    std::vector<Rows> rows;
  };
  std::vector<int32_t> slots_ = std::vector<int32_t>(256);
  std::vector<kernels::SampledToken> list_;
  std::vector<Rows> rows_;  // of the step in the making
  std::array<Sent, kTickets> sent_;
  int64_t tickets_ = 0, waited_ = 0;
};

struct RigOptions {
  std::string model = "expert";
  std::string amateur;  // empty: none
  sched::SchedulerOptions scheduler{.max_seqs = 16, .max_context = 256};
  std::array<int, request::kTiers> blocks{256, 0, 0};  // of every group
  int state_slots = 0;                                 // of the device, where they are not as many
  int block_size = 4;
  DType kv_type = DType::F32;
  bool prefix_cache = true;
  int checkpoint_interval = 512;
  std::vector<Token> message_ends;
  std::vector<Token> end_tokens;
  std::string disk_folder = "/var/tmp";
  bool ahead = false;                              // on an asynchronous device
  std::shared_ptr<kernels::Backend> on = nullptr;  // in the place of either
  StepSize warm_up{};
  SpeculationOptions speculation{};
  std::string draft;  // model; empty: none
  bool head = false;  // the model's own guesses for it
  std::string eagle;  // folder of a head; empty: none
  std::shared_ptr<grammar::GrammarStore> grammars = nullptr;
  std::shared_ptr<models::ModelGroup> group = nullptr;  // of the model, which this rank leads
};

struct Answer {
  std::vector<std::vector<request::Sampled>> choices;
  std::vector<double> scores;
  std::vector<request::Sampled> prompt_logprobs;
  std::vector<std::vector<float>> vectors;
  std::vector<engine::Finished> ends;  // one, if all is well

  std::vector<Token> tokens(size_t choice = 0) const;
  const std::optional<Error>& error() const { return ends.at(0).error; }
};

class Rig {
 public:
  explicit Rig(const RigOptions& options = {});

  // Index of the answer.
  size_t submit(request::Request request);
  // Until nothing is left to do. The KV manager's invariants are checked after every step.
  void finish();
  bool step();
  // One request on its own.
  Answer run(request::Request request);
  const Answer& answer(size_t index) const { return *answers_[index]; }

  std::shared_ptr<FaultyBackend> backend = std::make_shared<FaultyBackend>();
  std::unique_ptr<models::Model> model, amateur, draft;
  std::optional<models::Head> head;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<engine::Engine> engine;

 private:
  std::vector<std::shared_ptr<Answer>> answers_;
};

// Token n is the character n, one for each of the model's logits.
std::shared_ptr<grammar::GrammarStore> character_grammars(int vocab);
request::Request greedy_request(std::vector<Token> prompt, int max_tokens);
// Tokens that look random but are the same everywhere; none is below 3 or over 90.
std::vector<Token> words(size_t count, uint32_t seed);
// The same of a vocabulary of 64.
std::vector<Token> few_words(size_t count, uint32_t seed);

}  // namespace sluice::runtime::test
