// Start and end of every kernel that a program runs on the GPU, those inside CUDA graphs and those that overlap by
// programmatic dependent launch among them: a library that CUPTI loads into an unchanged program.
//   CUDA_INJECTION64_PATH=libkernel_trace.so [KERNEL_TRACE=FILE] [KERNEL_TRACE_LAST=COUNT] PROGRAM ...
// FILE has one kernel a line: start ns, end ns, graph (0: none), blocks, threads of a block, shared memory of a block, name.
// The last COUNT (200,000) are kept. bench/kernel_trace.py reads it.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20, kAlignment = 64, kKept = 200'000;

struct Record {
  uint64_t start = 0, end = 0;
  uint32_t graph = 0;
  int64_t blocks = 0, threads = 0, shared = 0;
  std::string name;
};

// Outlives every other static object: CUPTI hands over its last buffers at exit.
struct Trace {
  std::mutex mutex;
  std::vector<Record> records;
};
Trace& trace() {
  static auto* const all = new Trace;
  return *all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(trace().mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    trace().records.push_back({kernel.start, kernel.end, kernel.graphId,
                               int64_t{kernel.gridX} * kernel.gridY * kernel.gridZ,
                               int64_t{kernel.blockX} * kernel.blockY * kernel.blockZ,
                               int64_t{kernel.dynamicSharedMemory} + kernel.staticSharedMemory, kernel.name});
  }
  std::free(buffer);
}

void write_trace() {
  cuptiActivityFlushAll(1);
  const char* path = std::getenv("KERNEL_TRACE");
  const char* last = std::getenv("KERNEL_TRACE_LAST");
  std::FILE* file = std::fopen(path != nullptr ? path : "kernels.tsv", "w");
  if (file == nullptr) return;
  const std::lock_guard lock(trace().mutex);
  auto& records = trace().records;
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.start < b.start; });
  const size_t kept = last != nullptr ? std::strtoull(last, nullptr, 10) : kKept;
  for (size_t i = records.size() - std::min(kept, records.size()); i < records.size(); ++i) {
    const Record& r = records[i];
    std::fprintf(file, "%lu\t%lu\t%u\t%ld\t%ld\t%ld\t%s\n", r.start, r.end, r.graph, r.blocks, r.threads,
                 r.shared, r.name.c_str());
  }
  std::fclose(file);
}

}  // namespace

// Called by the driver when the program opens a device.
extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::atexit(write_trace);
  return 1;
}
