// The gated delta rule of long steps, 64 tokens at a time on tensor cores; sums in another order than delta_rule.cu has.
//
// The second of two kernels: delta_chunk_solve.cu has made -W, U and the scores of every chunk (formulas: delta_chunk.cuh).
// A block goes through the chunks of a sequence with 32, 64 or 128 columns of a head's state; a warp has 16 of them and all
// 128 keys, in f32 in registers, and needs nothing of the other warps. It computes with everything transposed: what a product
// leaves in registers, Xᵀ [columns, tokens] or Sᵀ [columns, keys], is the first operand of the next, rounded to bf16. In a
// narrow block, of one long prompt, the other two warps copy. W, U, q, k and scores of the next chunk are on their way to
// shared memory while one is computed, where there is room for two. A chunk ends where a state is saved; rows beyond it are
// zeros.
//
// A chunk and warp: 212 instructions of 16 x 8 x 16, and 55 KB read from shared memory. Bytes of a chunk and block: 16 KB each
// of W, q and k, 8 of scores, 128 a column of U read and of results written, which take U's place.
#include <algorithm>

#include "kernels/cuda/recurrent/delta_chunk.cuh"

namespace sluice::kernels::cuda {
namespace {

template <int kColumns>
struct ChunkStage {
  bf16 w[kChunk][kKeyPitch], q[kChunk][kKeyPitch], k[kChunk][kKeyPitch];
  bf16 scores[kChunk][kTokenPitch];
  bf16 u[kChunk][kColumns + 8];
  float up[kChunk], down[kChunk], decay[4];  // the first of decay
};

template <int kColumns>
struct ChunkBlock {
  // Warps that compute, from the first on, and warps that copy, up to the last.
  static constexpr int kWorking = kColumns / 16, kCopying = kWorking < 4 ? 4 - kWorking : kWorking;
  static constexpr int kThreads = 32 * (kWorking < 4 ? 4 : kWorking);
};

// Chunks of a sequence, one after the other, and what is saved behind them.
struct ChunkWalk {
  Walk walk;
  int32_t ahead;  // the first save behind the chunk's first token

  __device__ ChunkWalk(const StatesView& states, int sequence) : walk(states, sequence), ahead(walk.save) {}
  __device__ __forceinline__ int32_t saved_row(const StatesView& states, int32_t save) const {
    return walk.begin + states.saves[2 * save];
  }
  // Where the chunk ends that begins with `row`; `row` does not decrease.
  __device__ __forceinline__ int32_t end_of(const StatesView& states, int32_t row) {
    const int32_t end = walk.end < row + kChunk ? walk.end : row + kChunk;
    for (; ahead < walk.last_save; ++ahead) {
      const int32_t saved = saved_row(states, ahead);
      if (saved > row) return saved < end ? saved : end;
    }
    return end;
  }
};

// A warp's 16 columns of a head's state: lane 4g + t has columns g and g + 8 of keys 8n + 2t and 8n + 2t + 1.
struct ColumnState {
  float sums[kKeys / 8][4];

  // each(element of the states, number)
  template <class Visit>
  __device__ __forceinline__ void visit(const DeltaParams& p, int64_t at, const Visit& each) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * n + 2 * t + e % 2;
        if (key < p.key_dim) each(at + int64_t{key} * p.value_dim + g + e / 2 * 8, sums[n][e]);
      }
  }
  __device__ __forceinline__ void load(const DeltaParams& p, int64_t at, const float* from) {
#pragma unroll
    for (auto& four : sums)
#pragma unroll
      for (float& sum : four) sum = 0.0f;
    if (from != nullptr) visit(p, at, [&](int64_t element, float& sum) { sum = from[element]; });
  }
  __device__ __forceinline__ void store(const DeltaParams& p, int64_t at, float* to) {
    visit(p, at, [&](int64_t element, float sum) { to[element] = sum; });
  }
};

// The operands of tokens [row, row + count), by the threads that copy.
template <int kColumns>
__device__ __forceinline__ void copy_chunk(const DeltaParams& p, ChunkStage<kColumns>& s, int64_t row,
                                           int count) {
  using Block = ChunkBlock<kColumns>;
  constexpr int kCopyThreads = 32 * Block::kCopying;
  const int head = static_cast<int>(blockIdx.y),
            thread = static_cast<int>(threadIdx.x) - (Block::kThreads - kCopyThreads);
  if (thread < 0) return;
  const auto complete = [&](RowsToCopy rows, int width) {
    rows.count = count, rows.width = width, rows.thread = thread;
    return rows;
  };
  const ChunkRows rows = chunk_rows(p, head);
  const int64_t first = rows.first + row, query = int64_t{key_head_of(p, head)} * p.key_dim,
                result = int64_t{head} * p.value_dim + blockIdx.x * kColumns;
  const RowsToCopy w{rows.w + first * kKeys, kKeys, count, kKeys, thread},
      scores{rows.scores + first * kChunk, kChunk, count, kChunk, thread},
      u = complete(rows_of(p.out, row, result), kColumns),
      q = complete(rows_of(p.qkv, row, query), p.key_dim),
      k = complete(rows_of(p.qkv, row, query + int64_t{p.key_heads} * p.key_dim), p.key_dim);
  copy_rows<kKeys, kCopyThreads>(s.w, w);
  copy_rows<kColumns, kCopyThreads>(s.u, u);
  copy_rows<kKeys, kCopyThreads>(s.q, q);
  copy_rows<kKeys, kCopyThreads>(s.k, k);
  copy_rows<kChunk, kCopyThreads>(s.scores, scores);
#pragma unroll
  for (int i = thread; i < 2 * kChunk; i += kCopyThreads) {
    const int t = i % kChunk;
    const float* const from = (i < kChunk ? rows.up : rows.down) + first;
    copy_float_async((i < kChunk ? s.up : s.down) + t, t < count ? from + t : from, t < count);
  }
  if (thread == 0) copy_float_async(s.decay, rows.decay + first, true);
}

// Results of the warp's columns: `to` is that of the chunk's first token and the first column.
__device__ __forceinline__ void store_results(const float (&out)[8][4], bf16* to, int64_t stride, int count) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const uint32_t left = transposed(pack_pair(out[n][0], out[n][1])),
                   right = transposed(pack_pair(out[n][2], out[n][3]));
    if (8 * n + g >= count) continue;
    bf16* const row = to + (8 * n + g) * stride + 2 * t;
    *reinterpret_cast<uint32_t*>(row) = left;
    *reinterpret_cast<uint32_t*>(row + 8) = right;
  }
}

// One chunk of the warp's columns, of which `column` is the first in the stage: moves the state on and leaves the results.
template <int kColumns>
__device__ __forceinline__ void run_chunk(const ChunkStage<kColumns>& s, int column, ColumnState& state,
                                          float (&out)[8][4]) {
  const int t = threadIdx.x % 4;
  float x[8][4];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    Fragment u;
    load_first_transposed(s.u, column, 16 * pair, u);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * pair + i / 2][i % 2 * 2] = low_half(u[i]);
      x[2 * pair + i / 2][i % 2 * 2 + 1] = high_half(u[i]);
    }
  }
#pragma unroll
  for (auto& four : out)
#pragma unroll
    for (float& sum : four) sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    Fragment a;
    as_first(state.sums + 2 * k, a);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      Fragment w, q;
      load_second_rows(s.w, 16 * k, 16 * pair, w);
      load_second_rows(s.q, 16 * k, 16 * pair, q);
      multiply(x + 2 * pair, a, w);
      multiply(out + 2 * pair, a, q);
    }
  }
  const float decay = s.decay[0];
#pragma unroll
  for (auto& four : state.sums)
#pragma unroll
    for (float& sum : four) sum *= decay;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 up = *reinterpret_cast<const float2*>(&s.up[8 * n + 2 * t]);
    out[n][0] *= up.x, out[n][1] *= up.y, out[n][2] *= up.x, out[n][3] *= up.y;
  }
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    const auto down = [&](int n) { return *reinterpret_cast<const float2*>(&s.down[8 * n + 2 * t]); };
    Fragment a, faded;
    as_first(x + 2 * k, a);
    as_first(x + 2 * k, down(2 * k), down(2 * k + 1), faded);
#pragma unroll
    for (int pair = 0; pair < kKeys / 16; ++pair) {
      Fragment b;
      load_second(s.k, 16 * k, 16 * pair, b);
      multiply(state.sums + 2 * pair, faded, b);
    }
#pragma unroll
    for (int pair = k; pair < 4; ++pair) {
      Fragment b;
      load_second_rows(s.scores, 16 * k, 16 * pair, b);
      multiply(out + 2 * pair, a, b);
    }
  }
}

// grid: (pieces of kColumns, value heads, sequences); shared memory for `stages` chunks, one or two
template <int kColumns>
__global__ void __launch_bounds__(ChunkBlock<kColumns>::kThreads)
    delta_chunk_kernel(const DeltaParams p, int stages) {
  extern __shared__ __align__(16) uint8_t raw[];
  auto* const stage = reinterpret_cast<ChunkStage<kColumns>*>(raw);
  allow_dependents();
  wait_for_producer();
  const int head = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / 32;
  const bool works = warp < ChunkBlock<kColumns>::kWorking;
  const int64_t column = int64_t{blockIdx.x} * kColumns + 16 * warp;
  const int64_t place = int64_t{head} * p.key_dim * p.value_dim + column;
  bf16* const results = static_cast<bf16*>(p.out.data) + int64_t{head} * p.value_dim + column;
  ChunkWalk chunks(p.states, static_cast<int>(blockIdx.z));
  int32_t save = chunks.walk.save, row = chunks.walk.begin;
  int32_t last = chunks.end_of(p.states, row);
  if (row < last) copy_chunk(p, stage[0], row, last - row);
  end_copies();
  ColumnState state;
  if (works) state.load(p, place, chunks.walk.from);
  for (int turn = 0; row < last;) {
    const ChunkStage<kColumns>& s = stage[turn];
    await_copies<0>();
    __syncthreads();  // and the other stage has been read
    if (stages > 1) turn = 1 - turn;
    const int32_t next = chunks.end_of(p.states, last);
    const auto copy_next = [&] {
      if (last < next) copy_chunk(p, stage[turn], last, next - last);
      end_copies();
    };
    if (stages > 1) copy_next();
    if (works) {
      float out[8][4];
      run_chunk<kColumns>(s, 16 * warp, state, out);
      store_results(out, results + row * p.out.stride_n, p.out.stride_n, last - row);
      for (; save < chunks.walk.last_save && chunks.saved_row(p.states, save) <= last; ++save)
        state.store(p, place, p.states.data + p.states.saves[2 * save + 1] * p.states.stride);
    }
    if (stages == 1) {
      __syncthreads();
      copy_next();
    }
    row = last;
    last = next;
  }
}

template <int kColumns>
void launch_columns(const DeltaParams& p, Stream stream) {
  constexpr int64_t kStageBytes = sizeof(ChunkStage<kColumns>);
  const int64_t most = std::min<int64_t>(2, features().shared_bytes / kStageBytes);
  static const cudaError_t attribute =
      cudaFuncSetAttribute(delta_chunk_kernel<kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(most * kStageBytes));
  check_launch(attribute, "delta chunk");
  // Where most sequences have one chunk, more blocks on a multiprocessor are worth more than the next chunk's copies.
  const int stages = p.qkv.n <= int64_t{kChunk} * p.states.sequences ? 1 : static_cast<int>(most);
  launch("delta chunk", delta_chunk_kernel<kColumns>,
         {blocks(p.value_dim / kColumns, p.value_heads, p.states.sequences),
          dim3(ChunkBlock<kColumns>::kThreads), static_cast<size_t>(stages * kStageBytes)},
         stream, p, stages);
}

}  // namespace

bool delta_chunk_fits(const DeltaParams& p) {
  constexpr int32_t kMostChunks = 65535;  // of a grid
  return p.fixed_order == 0 && p.qkv.type == DType::BF16 && p.channel_decay == 0 && p.key_dim <= kKeys &&
         p.key_dim % 8 == 0 && p.value_dim % 64 == 0 && aligned_tokens(p.qkv) && aligned_tokens(p.out) &&
         p.chunk_count > 0 && p.chunk_count <= kMostChunks &&
         features().shared_bytes >= static_cast<int64_t>(sizeof(ChunkStage<128>));
}

int64_t delta_chunk_bytes(const DeltaParams& p) {
  return p.qkv.n * p.value_heads * kChunkRowBytes;
}

void launch_delta_chunk(const DeltaParams& p, Stream stream) {
  launch_delta_solve(p, stream);
  // The narrowest columns of which all multiprocessors together take every block at once: a chunk takes a warp the same time.
  const auto fill = [&](int columns) {
    return int64_t{p.value_heads} * p.states.sequences * (p.value_dim / columns) <= multiprocessors();
  };
  if (fill(32)) return launch_columns<32>(p, stream);
  if (fill(64) || p.value_dim % 128 != 0 || p.qkv.n <= int64_t{kChunk} * p.states.sequences)
    return launch_columns<64>(p, stream);
  launch_columns<128>(p, stream);
}

}  // namespace sluice::kernels::cuda
