// How a LatentParams becomes the arguments of FlashInfer's MLA kernels, which are the same for all architectures.
#pragma once

#include <flashinfer/attention/mla_params.cuh>

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/latent/flash_latent.h"

namespace sluice::kernels::cuda {

using LatentArguments = flashinfer::MLAParams<bf16, bf16, bf16, int32_t>;

// Rows of partial results: a split context has at most twice as many parts as it has whole ones, and there are as many whole
// ones as clusters.
inline int64_t partial_rows(const LatentPlanLayout& layout) {
  return int64_t{2} * layout.clusters * layout.rows();
}

inline LatentArguments latent_arguments(const LatentParams& p) {
  const auto array = [&](int32_t at) { return const_cast<int32_t*>(p.plan + at); };
  const auto u = [](int64_t value) { return static_cast<uint32_t>(value); };
  const LatentPlanLayout& l = p.layout;
  LatentArguments a{};
  a.q_nope = static_cast<bf16*>(p.q.data);
  a.q_pe = static_cast<bf16*>(p.q_rope.data);
  a.ckv = static_cast<bf16*>(p.cache.data);
  a.kpe = a.ckv + kLatentDim;
  a.partial_o = static_cast<bf16*>(p.partial);
  a.partial_lse = reinterpret_cast<float*>(a.partial_o + partial_rows(l) * kLatentDim);
  a.final_o = static_cast<bf16*>(p.out.data);
  a.final_lse = nullptr;
  a.q_indptr = array(l.work_array(0));
  a.kv_indptr = array(l.work_array(1));
  a.partial_indptr = array(l.work_array(2));
  a.q_len = array(l.work_array(3));
  a.kv_len = array(l.work_array(4));
  a.q_start = array(l.work_array(5));
  a.kv_start = array(l.work_array(6));
  a.kv_end = array(l.work_array(7));
  a.work_indptr = array(l.first_work());
  a.merge_packed_offset_start = array(l.merge_array(0));
  a.merge_packed_offset_end = array(l.merge_array(1));
  a.merge_partial_packed_offset_start = array(l.merge_array(2));
  a.merge_partial_packed_offset_end = array(l.merge_array(3));
  a.merge_partial_stride = array(l.merge_array(4));
  a.kv_indices = const_cast<int32_t*>(p.blocks);
  a.block_size = flashinfer::uint_fastdiv(u(p.block_size));
  a.num_heads = flashinfer::uint_fastdiv(u(l.heads));
  a.q_nope_stride_n = u(p.q.stride_n);
  a.q_nope_stride_h = u(p.q.stride_h);
  a.q_pe_stride_n = u(p.q_rope.stride_n);
  a.q_pe_stride_h = u(p.q_rope.stride_h);
  a.ckv_stride_page = a.kpe_stride_page = u(p.cache.stride_block);
  a.ckv_stride_n = a.kpe_stride_n = u(p.cache.stride_slot);
  a.o_stride_n = u(p.out.stride_n);
  a.o_stride_h = u(p.out.stride_h);
  a.sm_scale = p.scale;
  a.return_lse_base_on_e = false;
  return a;
}

}  // namespace sluice::kernels::cuda
