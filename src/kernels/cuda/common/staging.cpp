#include "kernels/cuda/common/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/common/upload_arrays.h"

namespace sluice::kernels::cuda {

namespace {
constexpr size_t kAlignment = 256;
constexpr size_t kFirstCapacity = size_t{1} << 18;
}  // namespace

Staging::Staging(cudaStream_t stream) : stream_(stream) {
  for (cudaEvent_t& event : read_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
}

Staging::~Staging() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : read_) cudaEventDestroy(event);
}

void Staging::start_step() {
  if (!marked_) check(cudaEventRecord(read_[turn_], stream_), "event");
  turn_ = 1 - turn_;
  check(cudaEventSynchronize(read_[turn_]), "waiting for an earlier step");
  marked_ = false;
  retired_.clear();
  for (Buffer& buffer : buffers_) buffer.used = buffer.pending = buffer.put = 0;
}

void Staging::rewind() {
  for (Buffer& buffer : buffers_) {
    buffer.put = buffer.used;
    buffer.used = buffer.pending = 0;
  }
}

void Staging::go_on() {
  for (Buffer& buffer : buffers_) buffer.used = std::max(buffer.used, buffer.put);
}

void Staging::grow(Buffer& buffer, size_t bytes) {
  Buffer larger;
  larger.capacity = std::max({kFirstCapacity, 2 * buffer.capacity, 2 * bytes});
  larger.device = allocate_device(larger.capacity);
  for (PinnedBuffer& host : larger.host) host = allocate_pinned(larger.capacity);
  grown_ = true;
  if (buffer.capacity > 0) retired_.push_back(std::move(buffer));
  buffer = std::move(larger);
}

Staging::Place Staging::reserve(size_t index, size_t bytes) {
  while (buffers_.size() <= index) buffers_.emplace_back();
  Buffer& buffer = buffers_[index];
  size_t offset = (buffer.used + kAlignment - 1) / kAlignment * kAlignment;
  if (offset + bytes > buffer.capacity) {
    grow(buffer, offset + bytes);
    offset = 0;
  }
  buffer.used = offset + bytes;
  return {static_cast<std::byte*>(buffer.device.get()) + offset,
          static_cast<std::byte*>(buffer.host[turn_].get()) + offset};
}

void Staging::send(const Place& place, size_t bytes) {
  check(cudaMemcpyAsync(place.device, place.host, bytes, cudaMemcpyHostToDevice, stream_),
        "upload of a step's arrays");
}

const int32_t* Staging::put(size_t index, std::span<const int32_t> values, Mode mode) {
  // A buffer is there as soon as it is used, so that its address does not change when the first values come.
  const Place place = reserve(index, std::max(values.size_bytes(), sizeof(int32_t)));
  if (mode != Mode::Issue && !values.empty()) std::memcpy(place.host, values.data(), values.size_bytes());
  if (mode == Mode::Eager && !values.empty()) {
    send(place, values.size_bytes());
    marked_ = false;
  }
  if (mode == Mode::Describe && !values.empty()) buffers_[index].pending = buffers_[index].used;
  return reinterpret_cast<const int32_t*>(place.device);
}

void Staging::flush() {
  UploadArraysParams arrays = blank<UploadArraysParams>();
  int64_t bytes = 0;
  for (Buffer& buffer : buffers_) {
    if (buffer.pending == 0) continue;
    auto* const device = static_cast<std::byte*>(buffer.device.get());
    auto* const host = static_cast<std::byte*>(buffer.host[turn_].get());
    const auto pending = static_cast<int64_t>(std::exchange(buffer.pending, 0));
    if (arrays.count < UploadArraysParams::kMost && bytes + pending <= UploadArraysParams::kMostBytes) {
      arrays.arrays[arrays.count++] = {device, host, pending};
      bytes += pending;
    } else {
      send({device, host}, static_cast<size_t>(pending));
    }
  }
  launch_upload_arrays(arrays, stream_);
  check(cudaEventRecord(read_[turn_], stream_), "event");
  marked_ = true;
}

bool Staging::take_grown() {
  return std::exchange(grown_, false);
}

}  // namespace sluice::kernels::cuda
