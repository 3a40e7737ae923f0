// Collectives over ranks that are threads of this process, each with a back-end of its own on the one device.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/group_device.h"
#include "tensor/half.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::Collectives;
using kernels::DeviceCollective;

// Streams of the ranks must not wait for each other in one of the device's queues. Read when CUDA starts.
const int kQueues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

// What the ranks exchange by.
class Board {
 public:
  explicit Board(int size) : size_(size), meeting_(size), rows_(static_cast<size_t>(size)) {}
  kernels::RankExchange of(int rank) {
    return {rank, size_, [this, rank](std::span<const std::byte> own) {
              rows_[static_cast<size_t>(rank)].assign(own.begin(), own.end());
              meeting_.arrive_and_wait();
              std::vector<std::byte> all;
              for (const auto& row : rows_) all.insert(all.end(), row.begin(), row.end());
              meeting_.arrive_and_wait();
              return all;
            }};
  }

 private:
  int size_;
  std::barrier<> meeting_;
  std::vector<std::vector<std::byte>> rows_;
};

void on_each_rank(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Where they differ first, with what stands there; empty: nowhere.
std::string first_difference(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return fmt::format("{} values, not {}", got.size(), expected.size());
  const auto [at, wanted] = std::mismatch(got.begin(), got.end(), expected.begin());
  if (at == got.end()) return {};
  size_t others = 0;
  for (size_t i = 0; i < got.size(); ++i) others += got[i] != expected[i] ? 1 : 0;
  return fmt::format("value {} is {}, not {}; {} of {} differ", at - got.begin(), *at, *wanted, others,
                     got.size());
}

float nearest(float value, DType type) {
  return type == DType::F32 ? value : bf16_to_f32(f32_to_bf16(value));
}

class CollectiveTest : public DeviceTest {
 protected:
  static constexpr int kRanks = 4;

  kernels::CudaBackend& rank_device(int rank) {
    static std::vector<std::unique_ptr<kernels::CudaBackend>> devices = [] {
      std::vector<std::unique_ptr<kernels::CudaBackend>> made;
      for (int i = 0; i < kRanks; ++i)
        made.push_back(std::move(kernels::make_cuda_backend(options())).value());
      return made;
    }();
    return *devices[static_cast<size_t>(rank)];
  }

  using Group = std::vector<Result<std::unique_ptr<DeviceCollective>>>;
  Group join(int size, Collectives kind = Collectives::Auto) {
    rank_device(0);
    Board board(size);
    Group group;
    for (int rank = 0; rank < size; ++rank) group.emplace_back(Error{});
    on_each_rank(size, [&](int rank) {
      auto* device = dynamic_cast<kernels::GroupDevice*>(&rank_device(rank));
      group[static_cast<size_t>(rank)] = device->join(board.of(rank), kind);
    });
    return group;
  }

  // A tensor of every rank, and the numbers that it was made of.
  struct PerRank {
    std::vector<std::vector<float>> values;
    std::vector<kernels::Memory> memory;
  };
  PerRank random_of_ranks(int size, DType type, int64_t n, int64_t dim) {
    PerRank all;
    for (int rank = 0; rank < size; ++rank) {
      HostTensor host = HostTensor::make(type, {n, dim});
      std::vector<float> values;
      for (int64_t i = 0; i < n * dim; ++i) {
        values.push_back(nearest(normal(), type));
        if (type == DType::F32) host.view.at<float>()[i] = values.back();
        if (type == DType::BF16) host.view.at<uint16_t>()[i] = f32_to_bf16(values.back());
      }
      all.memory.push_back(rank_device(rank).upload(host.view));
      all.values.push_back(std::move(values));
    }
    return all;
  }
  std::vector<float> floats(int rank, TensorView x) {
    std::vector<float> values(static_cast<size_t>(x.elements()));
    rank_device(rank).download(
        TensorView::contiguous(values.data(), DType::F32, {static_cast<int64_t>(values.size())}), x);
    return values;
  }
  static std::vector<float> sum_of(const std::vector<std::vector<float>>& values, DType type) {
    std::vector<float> sum = values.front();
    for (size_t rank = 1; rank < values.size(); ++rank)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[rank][i];
    for (float& value : sum) value = nearest(value, type);
    return sum;
  }
  // Waits only when all ranks have made their calls: waiting for one would hold up the others.
  void run(int size, const std::function<void(int)>& body) {
    on_each_rank(size, body);
    for (int rank = 0; rank < size; ++rank) rank_device(rank).synchronize();
  }
};

struct Shape {
  int64_t n, dim;
};

TEST_F(CollectiveTest, SumsAreInTheOrderOfRanksAndTheSameOnEach) {
  for (const int size : {1, 2, 3, 4}) {
    Group group = join(size);
    for (auto& one : group) ASSERT_TRUE(one.ok()) << one.error().message;
    for (const DType type : {DType::BF16, DType::F32})
      for (const auto [n, dim] : {Shape{1, 64}, {3, 101}, {1, 4096}, {17, 576}, {64, 4096}, {601, 4097}}) {
        PerRank x = random_of_ranks(size, type, n, dim);
        run(size, [&](int rank) {
          (*group[static_cast<size_t>(rank)])->add_up(x.memory[static_cast<size_t>(rank)].view);
        });
        const std::vector<float> expected = sum_of(x.values, type);
        for (int rank = 0; rank < size; ++rank) {
          const auto at = static_cast<size_t>(rank);
          EXPECT_EQ(first_difference(floats(rank, x.memory[at].view), expected), "")
              << size << " ranks, rank " << rank << ", " << n << " x " << dim << " " << name(type);
          ASSERT_EQ((*group[at])->missing_rank(), std::nullopt) << "did not come to a sum of rank " << rank;
        }
      }
  }
}

TEST_F(CollectiveTest, RecordedStepsGoOnCounting) {
  const int size = 2;
  Group group = join(size);
  for (auto& one : group) ASSERT_TRUE(one.ok()) << one.error().message;
  PerRank small = random_of_ranks(size, DType::F32, 2, 640),
          large = random_of_ranks(size, DType::F32, 40, 4096);
  const auto step = [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    rank_device(rank).run_step([&] {
      (*group[at])->add_up(small.memory[at].view);
      (*group[at])->add_up(large.memory[at].view);
      (*group[at])->add_up(small.memory[at].view);
    });
  };
  const int before = rank_device(0).graphs();
  for (int i = 0; i < 5; ++i) run(size, step);
  EXPECT_EQ(rank_device(0).graphs(), before + 1);
  const auto doubled = [&](const PerRank& x, int times) {
    std::vector<std::vector<float>> values = x.values;
    for (int i = 0; i < times; ++i) values.assign(static_cast<size_t>(size), sum_of(values, DType::F32));
    return values.front();
  };
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(floats(rank, small.memory[static_cast<size_t>(rank)].view), doubled(small, 10)) << rank;
    EXPECT_EQ(floats(rank, large.memory[static_cast<size_t>(rank)].view), doubled(large, 5)) << rank;
  }
}

TEST_F(CollectiveTest, SumAndNormInOneKernel) {
  for (const int size : {2, 4}) {
    Group group = join(size);
    for (auto& one : group) ASSERT_TRUE(one.ok()) << one.error().message;
    for (const DType type : {DType::BF16, DType::F32})
      for (const auto [n, dim] : {Shape{1, 64}, {5, 101}, {3, 4096}, {40, 576}, {2, 9000}}) {
        PerRank b = random_of_ranks(size, type, n, dim);
        PerRank x = random_of_ranks(1, type, n, dim), out = random_of_ranks(size, type, n, dim);
        HostTensor gain = HostTensor::make(DType::F32, {dim});
        for (int64_t i = 0; i < dim; ++i) gain.view.at<float>()[i] = normal();
        std::vector<kernels::Memory> streams, gains;
        for (int rank = 0; rank < size; ++rank) {
          streams.push_back(rank_device(rank).allocate(type, {n, dim}));
          rank_device(rank).copy(streams.back().view, x.memory[0].view);
          gains.push_back(rank_device(rank).upload(gain.view));
          rank_device(rank).synchronize();
        }
        run(size, [&](int rank) {
          const auto at = static_cast<size_t>(rank);
          EXPECT_TRUE((*group[at])
                          ->add_up_rms_norm(out.memory[at].view, {streams[at].view, b.memory[at].view, 0.5f},
                                            {gains[at].view, 1e-5f}));
        });
        const std::vector<float> sum = sum_of(b.values, type);
        std::vector<float> stream = x.values[0], normed(stream.size());
        for (size_t i = 0; i < stream.size(); ++i) stream[i] = nearest(stream[i] + 0.5f * sum[i], type);
        for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
          const size_t width = static_cast<size_t>(dim), begin = row * width;
          double squares = 0;
          for (size_t i = 0; i < width; ++i) squares += double{stream[begin + i]} * stream[begin + i];
          const double factor = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-5);
          for (size_t i = 0; i < width; ++i)
            normed[begin + i] = static_cast<float>(stream[begin + i] * factor * gain.view.at<float>()[i]);
        }
        const std::vector<float> first = floats(0, out.memory[0].view);
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_EQ(floats(rank, streams[static_cast<size_t>(rank)].view), stream) << n << " x " << dim;
          EXPECT_EQ(floats(rank, out.memory[static_cast<size_t>(rank)].view), first) << n << " x " << dim;
        }
        for (size_t i = 0; i < first.size(); ++i)
          ASSERT_NEAR(first[i], normed[i], (type == DType::F32 ? 1e-5 : 8e-3) * (1 + std::abs(normed[i])))
              << n << " x " << dim << " at " << i;
      }
    // Too many tokens for one shot: the sum is made by itself.
    PerRank large = random_of_ranks(1, DType::F32, 64, 4096);
    const TensorView view = large.memory[0].view;
    EXPECT_FALSE((*group[0])->add_up_rms_norm(view, {view, view, 1.0f}, {TensorView{}, 1e-5f}));
  }
}

TEST_F(CollectiveTest, ColumnsMeetOnTheFirstRank) {
  for (const int size : {2, 3, 4}) {
    Group group = join(size);
    for (auto& one : group) ASSERT_TRUE(one.ok()) << one.error().message;
    for (const DType type : {DType::BF16, DType::F32})
      for (const auto [n, width] : {Shape{1, 103}, {5, 512}, {33, 128256}}) {
        std::vector<PerRank> parts;
        std::vector<kernels::Memory> outs;
        for (int rank = 0; rank < size; ++rank) {
          const int64_t own = width * (rank + 1) / size - width * rank / size;
          PerRank part = random_of_ranks(1, type, n, own);
          outs.push_back(rank_device(rank).allocate(type, {n, width}));
          rank_device(rank).synchronize();
          parts.push_back(std::move(part));
        }
        run(size, [&](int rank) {
          const auto at = static_cast<size_t>(rank);
          (*group[at])->gather_columns(outs[at].view, parts[at].memory[0].view);
        });
        std::vector<float> expected;
        for (int64_t row = 0; row < n; ++row)
          for (const PerRank& part : parts) {
            const auto own = static_cast<int64_t>(part.values[0].size()) / n;
            const auto begin = part.values[0].begin() + row * own;
            expected.insert(expected.end(), begin, begin + own);
          }
        EXPECT_EQ(floats(0, outs[0].view), expected) << size << " ranks, " << n << " x " << width;
      }
  }
}

TEST_F(CollectiveTest, RowsOfOtherRanksAreCleared) {
  Group group = join(1);
  ASSERT_TRUE(group[0].ok()) << group[0].error().message;
  PerRank x = random_of_ranks(1, DType::BF16, 3, 70);
  const std::vector<int32_t> kept{1, 0, 1};
  (*group[0])->clear_rows(x.memory[0].view, kept);
  std::fill_n(x.values[0].begin() + 70, 70, 0.0f);
  EXPECT_EQ(floats(0, x.memory[0].view), x.values[0]);
}

TEST_F(CollectiveTest, ARankThatDoesNotComeIsNamedAndNothingHangs) {
  const int size = 3;
  Group group = join(size);
  for (auto& one : group) ASSERT_TRUE(one.ok()) << one.error().message;
  PerRank x = random_of_ranks(size, DType::BF16, 2, 512);
  const auto begun = std::chrono::steady_clock::now();
  run(size, [&](int rank) {
    if (rank == 1) return;
    for (int i = 0; i < 100; ++i)
      (*group[static_cast<size_t>(rank)])->add_up(x.memory[static_cast<size_t>(rank)].view);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_EQ((*group[0])->missing_rank(), 1);
  EXPECT_EQ((*group[2])->missing_rank(), 1);
  EXPECT_EQ((*group[1])->missing_rank(), std::nullopt);
  EXPECT_LT(seconds, (*group[0])->patience_seconds() + 1);
}

TEST_F(CollectiveTest, NcclWithOneRank) {
  Group group = join(1, Collectives::Nccl);
  if (!group[0].ok()) GTEST_SKIP() << group[0].error().message;
  EXPECT_EQ((*group[0])->name(), "nccl");
  PerRank x = random_of_ranks(1, DType::BF16, 3, 100), part = random_of_ranks(1, DType::F32, 2, 50);
  const kernels::Memory out = rank_device(0).allocate(DType::F32, {2, 50});
  for (int i = 0; i < 4; ++i)
    rank_device(0).run_step([&] {
      (*group[0])->add_up(x.memory[0].view);
      (*group[0])->gather_columns(out.view, part.memory[0].view);
    });
  EXPECT_EQ(floats(0, x.memory[0].view), x.values[0]);
  EXPECT_EQ(floats(0, out.view), part.values[0]);
}

TEST_F(CollectiveTest, NcclRefusesTwoRanksOnOneGpu) {
  Group group = join(2, Collectives::Nccl);
  for (auto& one : group) {
    ASSERT_FALSE(one.ok());
    EXPECT_NE(one.error().message.find("NCCL refuses two ranks on one GPU, and ranks 0 and 1"),
              std::string::npos)
        << one.error().message;
  }
}

}  // namespace
}  // namespace sluice::cuda_test
