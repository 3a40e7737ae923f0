#include "lab/device/device_calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "kernels/async_device.h"
#include "lab/stopwatch.h"
#include "tensor/half.h"

namespace sluice::lab {

namespace {

using kernels::Memory;

class DeviceProbe {
 public:
  DeviceProbe(kernels::Backend& backend, const DeviceCalibrateOptions& options)
      : backend_(backend), device_(*backend.async_device()), options_(options) {}

  // Bytes a second, read and written.
  double memory_rate() {
    const int64_t width = 8192, size = info(backend_.activation_type()).block_bytes;
    const int64_t rows = std::max<int64_t>(1, options_.copied_bytes / (width * size));
    const Memory from = backend_.allocate(backend_.activation_type(), {rows, width}),
                 to = backend_.allocate(backend_.activation_type(), {rows, width});
    return 2.0 * double(rows * width * size) / fastest([&] { backend_.copy(to.view, from.view); });
  }

  double link_rate() {
    const auto bytes = static_cast<size_t>(options_.linked_bytes);
    const Memory there = backend_.allocate(
        backend_.activation_type(), {options_.linked_bytes / info(backend_.activation_type()).block_bytes});
    const std::shared_ptr<std::byte> here = device_.allocate_pinned(bytes);
    const kernels::AsyncDevice::Piece piece{there.view.data, bytes};
    return double(bytes) / fastest([&] { device_.copy_from_host({&piece, 1}, here.get()); });
  }

  // Of a launch within a replayed step.
  double launch_seconds() {
    constexpr int kLaunches = 200;
    const Memory x = rows(1, 64), out = rows(1, 64);
    const auto body = [&] {
      for (int i = 0; i < kLaunches; ++i) backend_.rms_norm(out.view, x.view, {}, 1e-5F);
    };
    return fastest([&] { device_.run_step(body); }) / kLaunches;
  }

  double elementwise_seconds() {
    constexpr int kRows = 8192, kInner = 4096;
    const Memory wide = rows(kRows, 2 * kInner), out = rows(kRows, kInner);
    return fastest([&] { backend_.gated(out.view, wide.view, kernels::Activation::Silu); }) /
           (3.0 * kRows * kInner);
  }

  void add_gemms(DType type, std::vector<GemmRate>& rates) {
    const int64_t width = options_.width, each = row_bytes(type, width) * width;
    const int64_t count = std::clamp<int64_t>(options_.matrix_bytes / each, 2, 1024);
    std::vector<kernels::Weight> weights;
    for (int64_t i = 0; i < count; ++i) weights.push_back(matrix(type, width));
    for (const int tokens : options_.rows) {
      const Memory x = rows(tokens, width), out = rows(tokens, width);
      const double seconds = fastest([&] {
        for (const kernels::Weight& weight : weights) backend_.matmul(out.view, x.view, weight);
      });
      rates.push_back(
          {type, static_cast<int>(width), tokens, seconds / (double(count) * double(width) * double(width))});
    }
  }

 private:
  // The first runs find the ways to compute a shape, and record what is replayed.
  template <class Body>
  double fastest(const Body& body) {
    for (int i = 0; i < 3; ++i) body();
    device_.synchronize();
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < options_.repeat; ++i) {
      const Stopwatch watch(TimeSource::Wall);
      body();
      device_.synchronize();
      best = std::min(best, watch.seconds());
    }
    return best;
  }

  // Random numbers: with equal ones a device needs less power and runs faster.
  Memory rows(int64_t count, int64_t width) {
    const bool wide = backend_.activation_type() == DType::F32;
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(count * width));
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = i < kDrawn ? normal(random_) : numbers[i % kDrawn];
    if (wide) return backend_.upload(TensorView::contiguous(numbers.data(), DType::F32, {count, width}));
    std::vector<uint16_t> halves(numbers.size());
    std::transform(numbers.begin(), numbers.end(), halves.begin(), f32_to_bf16);
    return backend_.upload(TensorView::contiguous(halves.data(), DType::BF16, {count, width}));
  }

  // Random bytes of which no two are a 16-bit number that is not finite.
  kernels::Weight matrix(DType type, int64_t width) {
    stored_.resize(static_cast<size_t>(row_bytes(type, width) * width));
    for (size_t i = 0; i < stored_.size(); ++i)
      stored_[i] = i < kDrawn ? static_cast<std::byte>(0x30 + random_() % 16) : stored_[i % kDrawn];
    kernels::Weight weight;
    weight.parts = {TensorView::contiguous(stored_.data(), type, {width, width})};
    weight.rows = weight.cols = width;
    kernels::Weight prepared = backend_.prepare(std::move(weight));
    device_.synchronize();
    return prepared;
  }

  static constexpr size_t kDrawn = (1 << 16) + 3;
  kernels::Backend& backend_;
  kernels::AsyncDevice& device_;
  const DeviceCalibrateOptions& options_;
  std::mt19937 random_{1};
  std::vector<std::byte> stored_;  // of one matrix
};

// What GEMMs reached, the device can do; kinds of arithmetic that were not measured are as fast as those that were.
void take_limits(Machine& machine) {
  for (const GemmRate& rate : machine.gemms) {
    const double size = double(info(rate.type).block_bytes) / info(rate.type).block_elements;
    machine.read = std::max(machine.read, size / rate.seconds_per_element);
    for (double& multiply : machine.multiply)
      multiply = std::max(multiply, 2 * rate.rows / rate.seconds_per_element);
  }
}

}  // namespace

Machine calibrate_device(kernels::Backend& backend, const DeviceCalibrateOptions& options,
                         const std::function<void(const std::string&)>& progress) {
  DeviceProbe probe(backend, options);
  Machine machine;
  machine.name = fmt::format("this machine ({})", backend.name());
  machine.memory = double(backend.async_device()->room().total_bytes);
  machine.read_share = machine.multiply_share = 1;
  for (const Machine& known : known_machines()) {
    if (backend.name().find(known.name) == std::string::npos) continue;
    machine.peer_link = known.peer_link;  // needs a second one to be measured
    machine.price = known.price;
  }
  progress("memory and link");
  machine.read = probe.memory_rate();
  machine.host_link = probe.link_rate();
  progress("launches");
  machine.overhead = probe.launch_seconds();
  machine.elementwise = probe.elementwise_seconds();
  for (const DType type : options.types) {
    progress(fmt::format("GEMMs of {}", sluice::name(type)));
    probe.add_gemms(type, machine.gemms);
  }
  take_limits(machine);
  return machine;
}

}  // namespace sluice::lab
