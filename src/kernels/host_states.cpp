#include "kernels/host_states.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sluice::kernels {

RecurrentOps* recurrent_ops(Backend& backend) {
  return dynamic_cast<RecurrentOps*>(&backend);
}

void advance_state(const TensorView& states, const StateBatch& batch, int sequence, StatePiece piece,
                   FunctionRef<void(float*, int64_t, int64_t)> run) {
  const auto place = [&](int32_t slot) { return states.at<float>(slot) + piece.begin; };
  const auto bytes = static_cast<size_t>(piece.size) * sizeof(float);
  const std::span<const StateBatch::Save> saves = batch.saves_of(sequence);
  SLUICE_CHECK(!saves.empty());
  const int32_t from = batch.from[static_cast<size_t>(sequence)];
  float* state = place(saves.back().slot);
  if (from < 0) {
    std::memset(state, 0, bytes);
  } else if (from != saves.back().slot) {
    std::memcpy(state, place(from), bytes);
  }
  int64_t done = 0;
  for (const StateBatch::Save& save : saves) {
    run(state, done, save.tokens - done);
    done = save.tokens;
    if (save.slot != saves.back().slot) std::memcpy(place(save.slot), state, bytes);
  }
}

const float* ConvRows::row(int sequence, int64_t index) const {
  if (index >= 0) return x_.at<float>(batch_.query_begin[static_cast<size_t>(sequence)] + index);
  const int32_t from = batch_.from[static_cast<size_t>(sequence)];
  const int64_t place = conv_.taps() - 1 + index;
  return from < 0 || place < 0 ? nullptr : states_.at<float>(from) + place * conv_.channels();
}

// The new rows are gathered before they replace those that they may come from.
void ConvRows::save() const {
  const int64_t kept = conv_.taps() - 1, channels = conv_.channels();
  std::vector<float> rows;
  for (int sequence = 0; sequence < batch_.sequences(); ++sequence) {
    const std::span<const StateBatch::Save> saves = batch_.saves_of(sequence);
    rows.assign(saves.size() * static_cast<size_t>(kept * channels), 0.0f);
    float* to = rows.data();
    for (const StateBatch::Save& save : saves)
      for (int64_t i = 0; i < kept; ++i, to += channels)
        if (const float* from = row(sequence, save.tokens - kept + i)) std::copy_n(from, channels, to);
    const float* made = rows.data();
    for (const StateBatch::Save& save : saves) {
      std::copy_n(made, kept * channels, states_.at<float>(save.slot));
      made += kept * channels;
    }
  }
}

std::vector<int> sequences_of_tokens(const StateBatch& batch) {
  std::vector<int> sequences(static_cast<size_t>(batch.tokens()));
  for (int s = 0; s < batch.sequences(); ++s)
    std::fill(sequences.begin() + batch.query_begin[static_cast<size_t>(s)],
              sequences.begin() + batch.query_begin[static_cast<size_t>(s) + 1], s);
  return sequences;
}

}  // namespace sluice::kernels
