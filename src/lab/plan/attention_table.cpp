// Attention between measured calls.
#include <cmath>
#include <map>

#include "lab/plan/machine.h"

namespace sluice::lab {

namespace {

double operations(const AttentionRate& rate) {
  return 4.0 * rate.sequences * rate.queries * rate.seen * rate.heads * rate.dim;
}

}  // namespace

double attention_call_seconds(const Machine& machine, const AttentionRate& asked) {
  if (machine.attentions.empty()) return 0;
  std::map<double, Curve>
      by_sequences;  // decode: by the logarithm of sequences, then by positions; of one sequence
  Curve by_seen;     // prompts: of an operation
  for (const AttentionRate& rate : machine.attentions) {
    if (rate.heads != asked.heads || rate.kv_heads != asked.kv_heads || rate.dim != asked.dim) continue;
    if (rate.queries == 1) {
      by_sequences[std::log2(rate.sequences)][rate.seen] = rate.seconds / rate.sequences;
    } else {
      by_seen[rate.seen] = rate.seconds / operations(rate);
    }
  }
  if (asked.queries > 1)
    return by_seen.empty() ? 0 : on_curve(by_seen, asked.seen, false) * operations(asked) / asked.sequences;
  Curve at_seen;
  for (const auto& [sequences, curve] : by_sequences) at_seen[sequences] = on_curve(curve, asked.seen, true);
  return at_seen.empty() ? 0 : on_curve(at_seen, std::log2(asked.sequences), false);
}

}  // namespace sluice::lab
