#include "lab/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "kernels/host.h"

namespace sluice::lab {

namespace {

using kernels::PagedKv;
using kernels::RaggedBatch;
using kernels::Weight;

double bytes_of(const TensorView& view) {
  return static_cast<double>(view.elements()) * info(view.dtype).block_bytes /
         info(view.dtype).block_elements;
}

// Of operations that read and write rows once.
template <class... Views>
StepCost moved(const Views&... views) {
  StepCost cost;
  cost.bytes = (bytes_of(views) + ...);
  return cost;
}

void add_weight(StepCost& cost, const Weight& weight, double tokens) {
  for (const TensorView& part : weight.parts) {
    cost.bytes += static_cast<double>(part.bytes());
    cost.operations[static_cast<size_t>(arithmetic_of(part.dtype))] +=
        2 * tokens * static_cast<double>(part.elements());
  }
}

std::string gemm_name(const Weight& weight) {
  return fmt::format("matmul {} x {} {}", weight.rows, weight.cols,
                     weight.parts.empty() ? "" : sluice::name(weight.parts[0].dtype));
}

// Keys and values that the tokens of a step see.
StepCost attention_cost(const PagedKv& kv, const RaggedBatch& batch, const kernels::AttentionShape& shape) {
  StepCost cost;
  const double row_bytes =
      shape.kv_heads * (shape.key_dim + shape.value_dim) * double(info(kv.k.dtype).block_bytes);
  for (int s = 0; s < batch.sequences(); ++s) {
    const int begin = batch.query_begin[static_cast<size_t>(s)],
              end = batch.query_begin[static_cast<size_t>(s) + 1];
    double most = 0;
    for (int token = begin; token < end; ++token) {
      const double context = batch.positions[static_cast<size_t>(token)] + 1;
      const double seen = shape.window > 0 ? std::min<double>(context, shape.window) : context;
      most = std::max(most, seen);
      cost.attention_operations += 2.0 * seen * shape.heads * (shape.key_dim + shape.value_dim);
    }
    cost.bytes += most * row_bytes;
  }
  return cost;
}

// Reads and writes each sequence's state, and computes so much with each of its elements for a token.
void add_states(StepCost& cost, const kernels::StateBatch& batch, int64_t elements, double operations) {
  cost.bytes += 2.0 * sizeof(float) * batch.sequences() * static_cast<double>(elements);
  cost.operations[static_cast<size_t>(Arithmetic::F32)] +=
      operations * static_cast<double>(batch.tokens()) * static_cast<double>(elements);
}

void add_to(StepCost& sum, const StepCost& cost) {
  sum.bytes += cost.bytes;
  sum.attention_operations += cost.attention_operations;
  for (size_t i = 0; i < sum.operations.size(); ++i) sum.operations[i] += cost.operations[i];
}

}  // namespace

ProfiledBackend::ProfiledBackend(std::shared_ptr<Backend> backend)
    : backend_(std::move(backend)), recurrent_(dynamic_cast<RecurrentOps&>(*backend_)) {}

std::vector<OperationCost> ProfiledBackend::costs() const {
  std::vector<OperationCost> out;
  for (const auto& [name, cost] : costs_) out.push_back(cost);
  std::stable_sort(out.begin(), out.end(),
                   [](const OperationCost& a, const OperationCost& b) { return a.seconds > b.seconds; });
  return out;
}

template <class Call>
void ProfiledBackend::timed(const std::string& name, const StepCost& cost, Call&& call) {
  const TimePoint start = Clock::now();
  call();
  const double seconds = seconds_since(start);
  OperationCost& entry = costs_[name];
  entry.name = name;
  ++entry.calls;
  entry.seconds += seconds;
  add_to(entry.cost, cost);
}

void ProfiledBackend::download(TensorView out, TensorView x) {
  timed("download", moved(out, x), [&] { backend_->download(out, x); });
}

void ProfiledBackend::embed(TensorView out, const Weight& table, std::span<const int32_t> ids) {
  timed("embed", moved(out), [&] { backend_->embed(out, table, ids); });
}

void ProfiledBackend::matmul(TensorView out, TensorView x, const Weight& weight) {
  StepCost cost;
  add_weight(cost, weight, static_cast<double>(x.dim(0)));
  timed(gemm_name(weight), cost, [&] { backend_->matmul(out, x, weight); });
}

void ProfiledBackend::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  StepCost cost;
  for (const Weight& weight : weights) add_weight(cost, weight, static_cast<double>(x.dim(0)));
  timed("matmul_heads", cost, [&] { backend_->matmul_heads(out, x, weights); });
}

void ProfiledBackend::rms_norm(TensorView out, TensorView x, TensorView gain, float eps) {
  timed("rms_norm", moved(out, x), [&] { backend_->rms_norm(out, x, gain, eps); });
}

void ProfiledBackend::layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) {
  timed("layer_norm", moved(out, x), [&] { backend_->layer_norm(out, x, gain, bias, eps); });
}

void ProfiledBackend::add(TensorView out, TensorView a, TensorView b, float b_scale) {
  timed("add", moved(out, a, b), [&] { backend_->add(out, a, b, b_scale); });
}

void ProfiledBackend::copy(TensorView out, TensorView x) {
  timed("copy", moved(out, x), [&] { backend_->copy(out, x); });
}

void ProfiledBackend::gate_rows(TensorView x, TensorView gate, kernels::Activation activation) {
  timed("gate_rows", moved(x, x), [&] { backend_->gate_rows(x, gate, activation); });
}

void ProfiledBackend::scale(TensorView x, float factor) {
  timed("scale", moved(x, x), [&] { backend_->scale(x, factor); });
}

void ProfiledBackend::softcap(TensorView x, float cap) {
  timed("softcap", moved(x, x), [&] { backend_->softcap(x, cap); });
}

void ProfiledBackend::clamp(TensorView x, float limit) {
  timed("clamp", moved(x, x), [&] { backend_->clamp(x, limit); });
}

void ProfiledBackend::activate(TensorView out, TensorView x, kernels::Activation activation) {
  timed("activate", moved(out, x), [&] { backend_->activate(out, x, activation); });
}

void ProfiledBackend::gated(TensorView out, TensorView gate_up, kernels::Activation activation) {
  timed("gated", moved(out, gate_up), [&] { backend_->gated(out, gate_up, activation); });
}

void ProfiledBackend::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  timed("gather_rows", moved(out, out), [&] { backend_->gather_rows(out, x, rows); });
}

void ProfiledBackend::rope_angles(TensorView angles, const RaggedBatch& batch,
                                  const kernels::RopeTable& table) {
  timed("rope_angles", moved(angles), [&] { backend_->rope_angles(angles, batch, table); });
}

void ProfiledBackend::rope(TensorView x, TensorView angles, kernels::RopeStyle style) {
  timed("rope", moved(x, x), [&] { backend_->rope(x, angles, style); });
}

void ProfiledBackend::write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) {
  timed("write_kv", moved(k), [&] { backend_->write_kv(kv, k, v, batch); });
}

void ProfiledBackend::attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
                             const kernels::AttentionShape& shape) {
  timed("attend", attention_cost(kv, batch, shape), [&] { backend_->attend(out, q, kv, batch, shape); });
}

void ProfiledBackend::copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) {
  timed("copy_blocks", {}, [&] { backend_->copy_blocks(kv, moves); });
}

void ProfiledBackend::route(TensorView ids, TensorView weights, TensorView logits,
                            const kernels::Routing& routing) {
  timed("route", moved(logits), [&] { backend_->route(ids, weights, logits, routing); });
}

void ProfiledBackend::moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                              const kernels::ExpertBank& bank) {
  StepCost cost;
  std::vector<double> tokens(bank.down.size());
  for (int64_t token = 0; token < ids.dim(0); ++token)
    for (int64_t slot = 0; slot < ids.dim(1); ++slot)
      if (const int32_t expert = ids.at<int32_t>(token)[slot]; bank.has(expert))
        ++tokens[static_cast<size_t>(expert - bank.first)];
  for (size_t expert = 0; expert < tokens.size(); ++expert) {
    if (tokens[expert] == 0) continue;
    add_weight(cost, bank.gate_up[expert], tokens[expert]);
    add_weight(cost, bank.down[expert], tokens[expert]);
  }
  timed("moe_ffn", cost, [&] { backend_->moe_ffn(out, x, ids, weights, bank); });
}

void ProfiledBackend::add_rms_norm(TensorView out, const kernels::Residual& x, const kernels::RmsGain& norm) {
  timed("add_rms_norm", moved(out, x.sum, x.sum, x.b), [&] { backend_->add_rms_norm(out, x, norm); });
}

void ProfiledBackend::multiply(TensorView out, TensorView a, TensorView b) {
  timed("multiply", moved(out, a, b), [&] { recurrent_.multiply(out, a, b); });
}

void ProfiledBackend::causal_conv(TensorView out, TensorView x, const kernels::CausalConv& conv,
                                  TensorView states, const kernels::StateBatch& batch) {
  StepCost cost = moved(out, x);
  add_states(cost, batch, conv.state_elements(), 0);
  timed("causal_conv", cost, [&] { recurrent_.causal_conv(out, x, conv, states, batch); });
}

void ProfiledBackend::delta_rule(TensorView out, const kernels::DeltaInput& input,
                                 const kernels::DeltaRule& rule, TensorView states,
                                 const kernels::StateBatch& batch) {
  StepCost cost = moved(out, input.qkv, input.decay, input.beta);
  add_states(cost, batch, rule.state_elements(), 7);
  timed("delta_rule", cost, [&] { recurrent_.delta_rule(out, input, rule, states, batch); });
}

void ProfiledBackend::selective_scan(TensorView out, const kernels::ScanInput& input,
                                     const kernels::SelectiveScan& scan, TensorView states,
                                     const kernels::StateBatch& batch) {
  StepCost cost = moved(out, input.x, input.b, input.c, input.step);
  add_states(cost, batch, scan.state_elements(), 5);
  timed("selective_scan", cost, [&] { recurrent_.selective_scan(out, input, scan, states, batch); });
}

}  // namespace sluice::lab
