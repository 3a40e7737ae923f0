// Sums over ranks whose memory is mapped here. Each rank has one piece of memory: flags, a count of the collectives it has
// made, and two inboxes that take turns, into which the other ranks write.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

inline constexpr int kMostRanks = 16;
// Few, so that the kernels of several ranks on one device run beside each other.
inline constexpr int kCollectiveBlocks = 32;
inline constexpr int kCollectiveThreads = 512;

// The memory of a rank begins with this, zeroed before any other rank sees it.
struct CollectiveHeader {
  uint32_t flags[kMostRanks][kCollectiveBlocks];  // by sender and block: how far that one has come
  uint32_t count;                                 // collectives that this rank has made
  uint32_t done;                                  // blocks of the one under way that have ended
  int32_t missing;                                // 1 + the rank that did not come; 0: none
};
inline constexpr int64_t kInboxOffset = 4096;
static_assert(sizeof(CollectiveHeader) <= kInboxOffset);

struct CollectiveRanks {
  unsigned char* memory[kMostRanks];  // of each rank, as this one maps it
  int32_t rank, size;
  int64_t inbox_bytes;   // of one of the two
  int32_t* missing;      // as in the header, in pinned memory of the host
  uint64_t patience_ns;  // that a kernel waits for a rank
};

// One shot: every rank writes all of x to the others, and each of them adds up. Two shots: every rank adds up its share,
// and writes that to the others. Both add in the order of ranks, in f32, and round once.
struct AddUpParams {
  CollectiveRanks ranks;
  void* x;
  int64_t count;  // elements; those of one shot fill at most inbox_bytes / size, of two shots inbox_bytes / 2
  DType type;     // BF16 or F32
  int32_t two_shots;
};
void launch_add_up(const AddUpParams&, Stream);

// Loads the kernels below and above. CUDA loads a kernel when it is first launched, may wait for the device to do that, and
// keeps other threads of the process from launching: for a sum under way that one of them has yet to come to, too long.
void load_collectives();

// x += scale * (b summed over the ranks), out = rms_norm(x). Contiguous [n, dim] of one type; all of b fits into one shot.
struct AddUpNormParams {
  CollectiveRanks ranks;
  void *out, *x;
  const void* b;
  const float* gain;  // [dim] or null
  int64_t n, dim;
  float eps, scale;
  DType type;
};
inline constexpr int64_t kWidestFusedNorm = int64_t{4} * kCollectiveThreads * 8;
void launch_add_up_norm(const AddUpNormParams&, Stream);

// Columns [width * r / size, width * (r + 1) / size) of out[n, width] of rank 0 = part of rank r.
struct GatherColumnsParams {
  CollectiveRanks ranks;
  void* out;
  const void* part;
  int64_t n, width;
  DType type;
};
// Rows of which the columns of one rank fit into its part of an inbox.
inline int64_t rows_of_gather(int64_t width, int size, int64_t inbox_bytes, int64_t element_bytes) {
  const int64_t widest = (width + size - 1) / size;
  return inbox_bytes / size / ((widest + 7) / 8 * 8 * element_bytes);
}
void launch_gather_columns(const GatherColumnsParams&, Stream);

struct ClearRowsParams {
  View x;
  const int32_t* kept;  // [n]; 0: the row becomes zeros
};
void launch_clear_rows(const ClearRowsParams&, Stream);

}  // namespace sluice::kernels::cuda
