// A layer of the gated delta rule behind the matrices that read its input, one token for each sequence: convolution, rule, norm
// of each head and gate in one launch, with the bits of the four kernels that it stands for.
//
// A block has a head's state in registers (delta_token.cuh), all of its columns, so that it can norm them. It convolves its
// head's channels itself: those of q and k are also read by the blocks of the other value heads that share the key head. These
// blocks are a cluster. They write the convolution's new state, which may take the place of the one that they read, when all of
// them have read it, each a part. Sums of the norm are added in the order of norm.cu: a lane has four columns here and eight
// there, so that the odd one goes on with the sum of the even one.
//
// Bytes: the states twice, and those of q and k once more for each value head beyond the first. At one token the chain of
// loads, sums over the block and stores is what takes time: states are on their way before the kernel in front has ended,
// where they may be (DeltaStepParams::early).
#include "kernels/cuda/recurrent/delta_step.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kBlocksAtOnce = 2;  // on a multiprocessor, by their registers

template <int kRows>
struct StepTile {
  TokenTile<kRows> token;
  float q[kParts * kRows], k[kParts * kRows];  // as they were convolved
  float4 values[kBlockColumns / 4], gates[kBlockColumns / 4], gains[kBlockColumns / 4];
};

// A head's result is normed, gated and stored by a warp.
template <class T, int kRows>
__device__ __forceinline__ void finish_head(const DeltaStepParams& p, const StepTile<kRows>& s, float4 result,
                                            int row, int head) {
  const int lane = threadIdx.x % 32, column = lane * 4;
  float f[4] = {result.x, result.y, result.z, result.w};
#pragma unroll
  for (float& x : f) x = widen(narrow<T>(x));
  const float factor =
      rsqrtf(sum_of_squares(f) * (1.0f / static_cast<float>(p.delta.value_dim)) + p.norm_eps);
  if (column >= p.delta.value_dim) return;
  const float4 gates = s.gates[lane], gains = s.gains[lane];
  float g[8] = {gates.x, gates.y, gates.z, gates.w};
  float u[8] = {gains.x, gains.y, gains.z, gains.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) u[j] = widen(narrow<T>(f[j] * factor * u[j] + 0.0f));
  gate8(g, u, p.activation);
#pragma unroll
  for (int j = 0; j < 4; ++j) set_element<T>(p.delta.out, row, head * p.delta.value_dim + column + j, g[j]);
}

// grid: (value heads, in the order of key heads, sequences); the heads of a key head are a cluster
template <class T, int kRows>
__global__ void __launch_bounds__(kBlock, kBlocksAtOnce) delta_step_kernel(const DeltaStepParams p) {
  require_bulk_copies();
  __shared__ StepTile<kRows> s;
  const DeltaParams& d = p.delta;
  const int members = d.value_heads / d.key_heads, member = static_cast<int>(blockIdx.x) % members;
  const int head = d.tiled != 0 ? member * d.key_heads + static_cast<int>(blockIdx.x) / members
                                : static_cast<int>(blockIdx.x);
  const int part = threadIdx.x / 32, column = static_cast<int>(threadIdx.x) % 32 * 4;
  const bool there = column < d.value_dim;
  const int rows = there ? d.key_dim - part * kRows : 0;
  const int at = (head * d.key_dim + part * kRows) * d.value_dim + column;
  StepChannels<T, kRows, kBlockColumns> channels(p, head, 0);
  TokenGates<T, kRows> gates(d, head);
  const int own = static_cast<int>(threadIdx.x);  // the column whose gain and gate the thread brings
  const bool brings = own < d.value_dim;
  if (brings) reinterpret_cast<float*>(s.gains)[own] = p.gain != nullptr ? __ldg(p.gain + own) : 1.0f;
  float gate = 0.0f;
  const auto load_inputs = [&](int row) {
    channels.load_token(p, row);
    gates.load(d, row, head);
    if (brings) gate = element<T>(p.gate, row, head * d.value_dim + own);
  };

  if (p.early == 0) wait_for_producer();
  const int row = static_cast<int>(blockIdx.y);  // sequences have one token each
  StepPlaces places(d.states, row);
  const bool known = places.from >= 0;
  const int64_t slot = places.from * d.states.stride;
  if (p.early == 0) load_inputs(row);  // before the states: they are what the next steps wait for
  channels.load_state_rows(p, known ? p.conv_states + slot : nullptr);
  TokenState<kRows> state;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state.rows[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (known && r < rows) state.rows[r] = load_state4(d.states.data + slot + at + r * d.value_dim);
  }
  places.load_slot();
  wait_for_producer();
  if (p.early != 0) {
    load_inputs(row);
    allow_dependents();
  }

  gates.share(d, s.token);
  channels.share(p, {s.q, s.k, reinterpret_cast<float*>(s.values)});
  if (brings) reinterpret_cast<float*>(s.gates)[own] = gate;
  __syncthreads();
  cluster_arrive_relaxed();  // the convolution's state has been read
  if (part == 0)
    make_unit<kRows * kParts / 32>(
        d, [&](int i) { return s.q[i]; }, [&](int i) { return s.k[i]; },
        [&](int i, float q, float k) { s.token.q[i] = q, s.token.k[i] = k; });
  __syncthreads();
  // Not earlier where states come behind the wait: weights that the kernel behind reads ahead would be in their way.
  allow_dependents();
  const float4 value = there ? s.values[threadIdx.x % 32] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const float4 result = state.advance(s.token, value, [&] {
    places.each_save([&](int64_t slot_at) { state.store(d.states.data + slot_at + at, rows, d.value_dim); });
  });
  if (part == 0) finish_head<T>(p, s, result, row, head);
  __syncwarp();
  cluster_wait();
  places.each_save([&](int64_t slot_at) { channels.store(p, p.conv_states + slot_at, member, members); });
}

template <class T, int kRows>
void launch_rows(const DeltaStepParams& p, Stream stream) {
  const DeltaParams& d = p.delta;
  const Grid grid{blocks(d.value_heads, d.states.sequences), dim3(kBlock), 0,
                  static_cast<unsigned>(d.value_heads / d.key_heads)};
  launch("delta step", delta_step_kernel<T, kRows>, grid, stream, p);
}

}  // namespace

bool delta_step_fits(const DeltaStepParams& p) {
  const DeltaParams& d = p.delta;
  // A power of two: one over it is exact, as it is in norm.cu.
  const bool whole_head =
      d.value_dim >= 8 && d.value_dim <= kBlockColumns && (d.value_dim & (d.value_dim - 1)) == 0;
  return features().bulk_copies && d.single != 0 && whole_head && d.key_dim <= 16 * kParts && p.taps >= 1 &&
         p.taps <= kStepTaps && d.value_heads / d.key_heads <= kMostHeads && d.states.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(d.states.data) % sizeof(float4) == 0;
}

bool delta_step_at_once(const DeltaStepParams& p) {
  static const int processors = multiprocessors();
  return int64_t{p.delta.value_heads} * p.delta.states.sequences <= int64_t{kBlocksAtOnce} * processors;
}

void launch_delta_step(const DeltaStepParams& p, Stream stream) {
  if (delta_step_few_fits(p)) return launch_delta_step_few(p, stream);
  visit_activations(p.delta.qkv.type, [&](auto type) {
    using T = decltype(type);
    p.delta.key_dim <= 8 * kParts ? launch_rows<T, 8>(p, stream) : launch_rows<T, 16>(p, stream);
  });
}

}  // namespace sluice::kernels::cuda
