// delta_step.cu's work where there is little of it, with its bits: a block has 32 columns of a head's state, so that the states of
// few sequences are read and written by all multiprocessors.
//
// A warp has kRows whole rows of the block's columns, a lane one column; sums over the rows are added as in delta_token.cuh. The
// blocks of all value heads of a key head are a cluster. Those of one head send each other their results for the norm, by
// stores that the reader's barrier counts: a fence over the device would wait for the state's loads and stores.
//
// Bytes: the states twice, and those of q and k once more for each block of a key head beyond the first.
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/recurrent/delta_step.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kColumns = 32;      // of a block
constexpr int kMostBlocks = 8;    // of a cluster
constexpr int kBlocksAtOnce = 3;  // on a multiprocessor, by their registers
constexpr int kMostAtOnce = 2;    // of a launch on a multiprocessor: with more, whole heads are as fast

template <int kRows>
struct FewTile {
  float q[kParts * kRows], k[kParts * kRows];  // as they were convolved
  float unit_q[kParts * kRows], unit_k[kParts * kRows], decay[kParts * kRows];
  float values[kColumns];
  float sums[2][kParts][kColumns];
  float4 results[kBlockColumns / 4];  // of the head's rule, rounded; zero beyond its columns
  float beta;
  uint64_t arrived;  // barrier: the results are there

  // Over all warps; every thread of the block calls it, with `turn` 0, then 1.
  __device__ __forceinline__ float sum_of_parts(int turn, float own) {
    const int lane = threadIdx.x % 32;
    sums[turn][threadIdx.x / 32][lane] = own;
    __syncthreads();
    const auto two = [&](int part) { return sums[turn][part][lane] + sums[turn][part + 1][lane]; };
    return (two(0) + two(2)) + (two(4) + two(6));
  }
};

// A float to the same place in block `rank` of the cluster, whose barrier counts it.
__device__ __forceinline__ void send(const float* to, float value, const uint64_t* barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 place, counter;\nmapa.shared::cluster.u32 place, %0, %3;\n"
      "mapa.shared::cluster.u32 counter, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [place], %1, [counter];\n}" ::"r"(
          shared_address(to)),
      "r"(__float_as_uint(value)), "r"(shared_address(barrier)), "r"(rank)
      : "memory");
}

// Which columns of which head a block has.
struct FewPlace {
  int rank, members, pieces, member, piece, head;  // rank: in the cluster; pieces: blocks of a head

  __device__ __forceinline__ explicit FewPlace(const DeltaParams& d)
      : members(d.value_heads / d.key_heads), pieces(d.value_dim / kColumns) {
    const int blocks = members * pieces, key_head = static_cast<int>(blockIdx.x) / blocks;
    rank = static_cast<int>(blockIdx.x) % blocks;
    member = rank / pieces, piece = rank % pieces;
    head = d.tiled != 0 ? member * d.key_heads + key_head : key_head * members + member;
  }
};

// A column of the head's result is normed with the others, gated and stored by a lane of the first warp.
template <class T, int kRows>
__device__ __forceinline__ void finish_column(const DeltaStepParams& p, FewTile<kRows>& s,
                                              const FewPlace& place, float result, float gain, float gate,
                                              int row) {
  const int lane = threadIdx.x % 32, column = place.piece * kColumns + lane, dim = p.delta.value_dim;
  const float own = widen(narrow<T>(result));
  for (int i = 0; i < place.pieces; ++i)
    send(reinterpret_cast<const float*>(s.results) + column, own, &s.arrived,
         place.member * place.pieces + i);
  barrier_wait(shared_address(&s.arrived), 0);
  const float4 four = s.results[lane];
  const float f[4] = {four.x, four.y, four.z, four.w};
  const float factor = rsqrtf(sum_of_squares(f) * (1.0f / static_cast<float>(dim)) + p.norm_eps);
  float g[8] = {gate}, u[8] = {widen(narrow<T>(own * factor * gain + 0.0f))};
  gate8(g, u, p.activation);
  set_element<T>(p.delta.out, row, place.head * dim + column, g[0]);
}

// grid: (blocks of value heads, in the order of key heads, sequences); those of a key head are a cluster
template <class T, int kRows>
__global__ void __launch_bounds__(kBlock, kBlocksAtOnce) delta_step_few_kernel(const DeltaStepParams p) {
  require_bulk_copies();
  __shared__ FewTile<kRows> s;
  const DeltaParams& d = p.delta;
  const FewPlace place(d);
  const int part = threadIdx.x / 32, lane = threadIdx.x % 32, first = part * kRows;
  const int column = place.piece * kColumns + lane, rows = d.key_dim - first;
  const int at = (place.head * d.key_dim + first) * d.value_dim + column;
  StepChannels<T, kRows, kColumns> channels(p, place.head, place.piece * kColumns);
  TokenGates<T, kRows> gates(d, place.head);
  const bool finishes = part == 0;
  const float gain = finishes && p.gain != nullptr ? __ldg(p.gain + column) : 1.0f;
  if (threadIdx.x == 0) {
    const uint32_t arrived = shared_address(&s.arrived);
    barrier_init(arrived, 1);
    barriers_ready();
    barrier_expect(arrived, static_cast<uint32_t>(d.value_dim) * 4);
  }
  if (finishes && lane * 4 >= d.value_dim) s.results[lane] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float gate = 0.0f;
  const auto load_inputs = [&](int row) {
    channels.load_token(p, row);
    gates.load(d, row, place.head);
    if (finishes) gate = element<T>(p.gate, row, place.head * d.value_dim + column);
  };

  if (p.early == 0) wait_for_producer();
  const int row = static_cast<int>(blockIdx.y);  // sequences have one token each
  StepPlaces places(d.states, row);
  const bool known = places.from >= 0;
  const int64_t slot = places.from * d.states.stride;
  if (p.early == 0) load_inputs(row);
  channels.load_state_rows(p, known ? p.conv_states + slot : nullptr);
  float state[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state[r] = 0.0f;
    if (known && r < rows) state[r] = load_state(d.states.data + slot + at + r * d.value_dim);
  }
  places.load_slot();
  wait_for_producer();
  if (p.early != 0) {
    load_inputs(row);
    allow_dependents();
  }

  gates.share(d, s);
  channels.share(p, {s.q, s.k, s.values});
  __syncthreads();
  cluster_arrive_relaxed();  // the convolution's state has been read, and the barrier is there
  if (part == 0)
    make_unit<kRows * kParts / 32>(
        d, [&](int i) { return s.q[i]; }, [&](int i) { return s.k[i]; },
        [&](int i, float q, float k) { s.unit_q[i] = q, s.unit_k[i] = k; });
  __syncthreads();
  allow_dependents();
  float sum = 0.0f;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state[r] = state[r] * s.decay[first + r];
    sum = fmaf(state[r], s.unit_k[first + r], sum);
  }
  const float delta = (s.values[lane] - s.sum_of_parts(0, sum)) * s.beta;
  sum = 0.0f;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    state[r] = fmaf(delta, s.unit_k[first + r], state[r]);
    sum = fmaf(state[r], s.unit_q[first + r], sum);
  }
  places.each_save([&](int64_t slot_at) {
    float* const to = d.states.data + slot_at + at;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (r < rows) to[r * d.value_dim] = state[r];
  });
  const float result = s.sum_of_parts(1, sum);
  cluster_wait();
  if (finishes) finish_column<T>(p, s, place, result, gain, gate, row);
  places.each_save([&](int64_t slot_at) {
    channels.store(p, p.conv_states + slot_at, place.rank, place.members * place.pieces);
  });
}

template <class T, int kRows>
void launch_rows(const DeltaStepParams& p, Stream stream) {
  const DeltaParams& d = p.delta;
  const int64_t pieces = d.value_dim / kColumns;
  const Grid grid{blocks(d.value_heads * pieces, d.states.sequences), dim3(kBlock), 0,
                  static_cast<unsigned>(d.value_heads / d.key_heads * pieces)};
  launch("delta step", delta_step_few_kernel<T, kRows>, grid, stream, p);
}

}  // namespace

bool delta_step_few_fits(const DeltaStepParams& p) {
  static const int processors = multiprocessors();
  const DeltaParams& d = p.delta;
  const int64_t pieces = d.value_dim / kColumns;
  return d.value_dim % kColumns == 0 && d.value_heads / d.key_heads * pieces <= kMostBlocks &&
         d.value_heads * pieces * d.states.sequences <= int64_t{kMostAtOnce} * processors;
}

void launch_delta_step_few(const DeltaStepParams& p, Stream stream) {
  visit_activations(p.delta.qkv.type, [&](auto type) {
    using T = decltype(type);
    p.delta.key_dim <= 8 * kParts ? launch_rows<T, 8>(p, stream) : launch_rows<T, 16>(p, stream);
  });
}

}  // namespace sluice::kernels::cuda
