// A request as the runtime sees it: it says what it needs of a step and consumes what comes back. What needs the host
// waits alone; the other sequences of the step do not notice.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "kernels/sample.h"
#include "request/step.h"
#include "sampling/filters.h"

namespace sluice::runtime {

// What one work of a sequence needs of the step that runs it.
struct StepNeed {
  struct Range {
    int begin = 0, end = 0;  // positions of the work
    int size() const { return end > begin ? end - begin : 0; }
  };
  enum class Last : uint8_t {
    None,
    Device,  // a token is sampled where the logits are
    Host,    // the host reads the row
  };

  Range logits, hidden;    // rows of prompts that the host reads, in order of position
  Last last = Last::None;  // what happens to the row of the work's last position
  int drafts = 0;          // the same happens to the rows of so many positions before it, which drafts follow
  bool last_hidden = false;  // the host reads its hidden state too
  bool contrast = false;     // the contrast model runs the work as well
  bool attention = false;    // Sequence::attention() gets the queries of its layers
  // Of Last::Device without drafts; with drafts Sequence::verify() says it.
  bool masked = false;  // Sequence::fill_mask() says what may be sampled, once the tokens before are known
  kernels::SampleArgs how;
  std::span<const kernels::LogitAdjustment> edits;

  bool reads_host() const { return last == Last::Host || logits.size() > 0 || hidden.size() > 0; }
};

// Rows of a prompt, as asked for. A long range comes in several pieces; one of the two lists is empty.
struct PromptRows {
  int begin = 0, count = 0;       // positions
  std::span<const float> logits;  // [count, vocab]
  std::span<const float> hidden;  // [count, dim]
};

// The row of a work's last position, or of one that a draft follows.
struct HostRow {
  std::span<float> logits;          // [vocab], used up
  std::span<const float> hidden;    // [dim], where asked for
  std::span<const float> contrast;  // [vocab], of the contrast model where it ran
};

// What a step gave a sequence, after its prompt rows.
struct StepRows {
  // Of a work with drafts, one for each and the last.
  std::span<const kernels::SampledToken> sampled;  // Last::Device
  // Last::Host, of those lanes that asked for it, in order
  std::span<const HostRow> last;
  sampling::Workspace& workspace;
};

// Takes how rows are sampled, one after the other.
class RowSampling {
 public:
  virtual ~RowSampling() = default;
  virtual void add(const kernels::SampleArgs& how, std::span<const kernels::LogitAdjustment> edits) = 0;
  // Of the row added last: a bit for each token, all zero.
  virtual std::span<uint32_t> add_mask() = 0;
};

class PromptAttention;

class Sequence {
 public:
  virtual ~Sequence() = default;

  // Prompt and output of a lane, as far as the host knows them.
  virtual std::span<const Token> tokens(size_t lane) const = 0;
  // Null where it never came to be.
  virtual const request::Request* request() const { return nullptr; }
  // What it wants to know of the attention to its prompt; null: nothing.
  virtual PromptAttention* attention() { return nullptr; }
  // Where the device has the token that follows them; 0: nowhere.
  virtual int device_slot() const { return 0; }
  virtual StepNeed need(size_t lane, const request::Work& work) const = 0;
  // Of a work that is being submitted and whose need is masked, once what earlier steps gave is consumed: a bit for each
  // token that its last row may be sampled from. False where the row is of no more use, as the sequence is over or has
  // tokens behind it already: then it is not consumed.
  virtual bool fill_mask(const request::Work&, std::span<uint32_t>) { return false; }
  virtual void read_prompt(const PromptRows& rows, sampling::Workspace& workspace) = 0;
  // Once per step that it needed something of. Nothing where there is nothing to report. The caller names the sequence in
  // the outcome.
  virtual std::optional<request::Outcome> consume(const StepRows& rows) = 0;

  // Of a work that is being submitted, whose drafts are known by now: says how the device samples from the rows of its
  // drafts and from its last one. What comes of rows that it says nothing about is not used.
  virtual void verify(const request::Work&, RowSampling&) {}
  // How the device samples, from a draft model's row, the token `ahead` tokens behind those that are known.
  virtual void guess_on_device(int, int, RowSampling&) const {}

  // From a draft model's row behind the tokens and the guesses so far: the token that would be sampled from it. Nothing
  // where none can follow. The row is used up.
  virtual std::optional<Token> guess(std::span<float>, sampling::Workspace&) { return std::nullopt; }
  virtual void forget_guesses() {}

  // The answer to all later work.
  const std::optional<Error>& failed() const { return failed_; }
  void fail(Error error) { failed_ = std::move(error); }

  // Tokens, and those that submitted steps will add.
  int length(size_t lane) const { return static_cast<int>(tokens(lane).size()) + pending_; }
  // A step is being submitted that decides from a lane's last row.
  virtual void note_submitted(const request::Work&) {}
  // Whether KV that the work reads is lost, or, behind lost work, a token that it counts on never came.
  bool note_lost(size_t lane, const request::Work& work, bool lost) {
    lost_ = lost || (lost_ && work.known_end() > length(lane));
    return lost_;
  }

 protected:
  // The work runs to the end of the lane: what comes next is decided from its last row, or from those of its drafts.
  bool is_last(size_t lane, const request::Work& work) const {
    return work.sample_from < work.end && work.known_end() == length(lane);
  }

  int pending_ = 0;  // tokens that submitted steps will add
  std::optional<Error> failed_;

 private:
  bool lost_ = false;  // its last work
};

}  // namespace sluice::runtime
