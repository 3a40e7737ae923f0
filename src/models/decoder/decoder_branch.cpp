// How what a part of a layer makes, its branch, comes into the residual stream: its last product, its sum over the group, its
// norm and the addition, each with what follows it where the back-end has one operation for both.
#include <utility>

#include "models/decoder/decoder.h"
#include "models/layers/layers.h"

namespace sluice::models {

void Decoder::finish_branch(TensorView branch) {
  if (branch.dim(0) == 0) pending_output_proj_.reset();
  finish(backend_, branch, std::exchange(pending_output_proj_, std::nullopt));
  if (std::exchange(sum_pending_, false) && branch.dim(0) > 0) group_->add_up(branch, part_of(branch));
  part_ = {};
}

void Decoder::add_up_branch(TensorView branch) {
  if (tensor_group() == nullptr) return;
  if (branch.dim(0) == 0) pending_output_proj_.reset();
  part_ = pending_output_proj_ ? group_->part_memory(branch.dim(0), branch.dim(1)) : TensorView();
  finish(backend_, part_of(branch), std::exchange(pending_output_proj_, std::nullopt));
  sum_pending_ = true;
}

void Decoder::norm_branch(TensorView branch, const Norm& weights) {
  finish_branch(branch);
  if (spec_.norm != NormKind::Rms) return norm(branch, branch, weights);
  branch_norm_ =
      kernels::RmsGain{weights.gain, spec_.post_norm_eps > 0.0f ? spec_.post_norm_eps : spec_.norm_eps};
}

void Decoder::add_branch(TensorView x, TensorView from, TensorView branch) {
  finish_branch(branch);
  const auto branch_norm = std::exchange(branch_norm_, std::nullopt);
  const float sum_scale = std::exchange(sum_scale_, 1.0f);
  if (branch_norm && from.data == x.data)
    return backend_.add_normed({x, branch, spec_.residual_scale, sum_scale}, *branch_norm);
  SLUICE_CHECK_EQ(sum_scale, 1.0f);
  if (branch_norm) backend_.rms_norm(branch, branch, branch_norm->gain, branch_norm->eps);
  backend_.add(x, from, branch, spec_.residual_scale);
}

void Decoder::add_norm(TensorView out, TensorView x, TensorView branch, const Norm& weights, bool read_once) {
  const kernels::Residual residual{x, branch, spec_.residual_scale, std::exchange(sum_scale_, 1.0f)};
  const kernels::RmsGain gain{weights.gain, spec_.norm_eps, read_once && group_ == nullptr};
  if (const auto branch_norm = std::exchange(branch_norm_, std::nullopt); branch_norm && x.dim(0) > 0)
    return backend_.add_normed_rms_norm(out, residual, *branch_norm, gain);
  if (sum_pending_ && x.dim(0) > 0 && spec_.norm == NormKind::Rms &&
      group_->add_up_rms_norm(out, {x, part_of(branch), spec_.residual_scale}, gain)) {
    sum_pending_ = false;
    part_ = {};
    return;
  }
  if (sum_pending_) finish_branch(branch);
  const auto product = std::exchange(pending_output_proj_, std::nullopt);
  if (x.dim(0) == 0) return;
  if (spec_.norm == NormKind::Rms && product) {
    backend_.matmul_add_rms_norm(out, residual, *product, gain);
  } else if (spec_.norm == NormKind::Rms) {
    backend_.add_rms_norm(out, residual, gain);
  } else {
    finish(backend_, branch, product);
    backend_.add(x, x, branch, spec_.residual_scale);
    norm(out, x, weights);
  }
}

}  // namespace sluice::models
