// How long ranks take for the sum of a step's activations: mpirun -n 2 build/release/bench_sums [THREADS] [ROWS] [WIDTH].
// Prints milliseconds of one sum, median of 200: by messages, through shared memory, and there with residual and norm; and how
// long a posted message takes whose sender computes for 20 ms.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "dist/mpi_group.h"
#include "kernels/cpu/cpu.h"
#include "models/group/shared_sums.h"

namespace {

using namespace sluice;

template <class Body>
double median_ms(dist::Communicator& ranks, const Body& body) {
  std::vector<double> times;
  for (int turn = 0; turn < 210; ++turn) {
    ranks.barrier();
    const TimePoint start = Clock::now();
    body();
    if (turn >= 10) times.push_back(1e3 * seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + 100, times.end());
  return times[100];
}

// Rank 0 posts all values and computes; the time until rank 1 has them, median of 20.
double arrival_ms(dist::Communicator& ranks, std::span<float> values) {
  std::vector<double> times;
  for (int turn = 0; turn < 20; ++turn) {
    ranks.barrier();
    const TimePoint start = Clock::now();
    if (ranks.rank() == 0) {
      ranks.post(1, std::as_bytes(values));
      while (seconds_since(start) < 0.02) {
      }
    }
    if (ranks.rank() == 1) ranks.receive(0, std::as_writable_bytes(values));
    times.push_back(1e3 * seconds_since(start));
    ranks.progress();
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  double median = times[10];
  ranks.broadcast(1, std::as_writable_bytes(std::span(&median, 1)));
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int64_t rows = number(2, 400), width = number(3, 2048);
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  Result<std::unique_ptr<dist::Communicator>> ranks =
      dist::join_mpi(size != nullptr ? std::atoi(size) : 1, {});
  if (!ranks) {
    fmt::print(stderr, "{}\n", ranks.error().message);
    return 1;
  }
  const auto backend = std::move(*kernels::make_cpu_backend({.threads = number(1, 1)}));
  auto* sums = dynamic_cast<kernels::PartSums*>(backend.get());
  models::SharedSums shared(**ranks, *sums);
  const auto x = backend->allocate(DType::F32, {rows, width}),
             stream = backend->allocate(DType::F32, {rows, width}),
             out = backend->allocate(DType::F32, {rows, width});
  const kernels::RmsGain gain{{}, 1e-5f};
  const std::span<float> values(x.view.at<float>(), static_cast<size_t>(rows * width));
  const double messages = median_ms(**ranks, [&] { (*ranks)->all_reduce(values); });
  const double plain = median_ms(**ranks, [&] { shared.add_up(x.view, shared.part(rows, width)); });
  const double added = median_ms(**ranks, [&] {
    backend->add_rms_norm(out.view, {stream.view, x.view}, gain);
  });
  const double fused = median_ms(**ranks, [&] {
    shared.add_up_rms_norm(out.view, {stream.view, shared.part(rows, width)}, gain);
  });
  const double late = arrival_ms(**ranks, values);
  if ((*ranks)->rank() == 0)
    fmt::print(
        "{} ranks of {} threads, {} x {}: messages {:.3f} ms, shared {:.3f} ms; residual and norm {:.3f} ms, "
        "with the sum {:.3f} ms; a posted message {:.3f} ms\n",
        (*ranks)->size(), number(1, 1), rows, width, messages, plain, added, fused, late);
}
