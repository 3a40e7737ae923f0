// All layers in one launch, hundreds of times: the same tokens, contexts and caches give the same bits, whatever ran just
// before, and whenever the blocks of a launch begin. Every bit depends on every word that blocks hand to each other, so one
// word of another layer or launch shows.
#include <functional>

#include "tests/cuda/stack_layers.h"

namespace sluice::cuda_test {
namespace {

class StackRepeatTest : public StackTest {
 protected:
  static constexpr int kBehind = 8;  // steps of one kind between two looks at their results
  static constexpr int kRounds = 12;

  // A kind of step: its tokens have blocks of the caches to themselves. Its results lie apart, so that steps follow each
  // other without a wait.
  struct Kind {
    Tokens tokens;
    Both start;
    Memory angles, results[kBehind];
    std::vector<uint16_t> right;
  };

  std::vector<uint16_t> bits(const TensorView& view) {
    const HostTensor host = HostTensor::make(DType::BF16, {view.dim(0), view.dim(1)});
    gpu().download(host.view, view);
    const auto* data = host.view.at<uint16_t>();
    return {data, data + view.elements()};
  }
  void launch(const Layers& l, const Kind& kind, int behind, const kernels::RopeTable& table) {
    const RaggedBatch batch = kind.tokens.view();
    const TensorView x = kind.results[behind].view;
    bool taken = true;
    gpu().run_step([&] {
      gpu().begin(batch);
      gpu().rope_angles(kind.angles.view, batch, table);
      gpu().copy(x, kind.start.device);
      taken = run_whole(l, x, kind.angles.view, batch);
    });
    ASSERT_TRUE(taken);
  }
  Kind make_kind(const Layers& l, const std::vector<int>& contexts, int64_t first) {
    const auto n = static_cast<int64_t>(contexts.size());
    Kind kind{Tokens(contexts, l, first), random(n, l.c.dim), {}, {}, {}};
    kind.angles = gpu().allocate(DType::F32, {n, l.c.head_dim / 2, 2});
    for (Memory& result : kind.results) result = gpu().allocate(DType::BF16, {n, l.c.dim});
    return kind;
  }
  // The first result of each kind is held to the exact way, all others to its bits. `beside` is called before each step.
  void repeat(const Layers& l, const std::function<void()>& beside) {
    const Both frequencies = vector(l.c.head_dim / 2, 0.2f);
    const kernels::RopeTable table = table_of(frequencies);
    std::vector<Kind> kinds;
    int64_t first = 0;
    for (const std::vector<int>& contexts : {std::vector<int>{576},
                                             {1},
                                             {17, 400},
                                             {3, 129, 1500, 640, 1000, 63, 64, 65},
                                             {5000},
                                             std::vector<int>(8, 100),
                                             std::vector<int>(8, 576)}) {
      kinds.push_back(make_kind(l, contexts, first));
      Kind& kind = kinds.back();
      first += static_cast<int64_t>(kind.tokens.blocks.size());
      ASSERT_LE(first, l.blocks);
      make_room(l, static_cast<int64_t>(contexts.size()));
      const Errors errors = run_step(l, kind.tokens, kind.start, table);
      EXPECT_LT(errors.excess(1.5), kTolerance / 4) << "context " << contexts.front();
      kind.right = bits(whole_.view);
    }
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kBehind; ++i)
        for (const Kind& kind : kinds) {
          beside();
          launch(l, kind, i, table);
        }
      for (size_t k = 0; k < kinds.size(); ++k)
        for (int i = 0; i < kBehind; ++i)
          ASSERT_EQ(bits(kinds[k].results[i].view) == kinds[k].right, true)
              << "kind " << k << ", step " << i << " of round " << round;
    }
  }
  static constexpr int64_t kBlocks = 400;

  // As few rows as each block of the largest GPU needs to have some.
  Layers small_layers() { return make({16, 8, 128, 1024, 1152, true}, 8, kBlocks); }
};

TEST_F(StackRepeatTest, HasTheSameBitsEachTime) {
  repeat(small_layers(), [] {});
}

// Rows that registers hold but for one part, and rows that leave none for the matrix.
TEST_F(StackRepeatTest, HasTheSameBitsWithLongerRows) {
  repeat(make({16, 8, 128, 1024, 3072, true}, 3, kBlocks), [] {});
  repeat(make({16, 8, 128, 1024, 3200, true}, 3, kBlocks), [] {});
}

// Blocks begin when the other stream's have left their multiprocessors, not together.
TEST_F(StackRepeatTest, HasTheSameBitsBesideOtherWork) {
  const Layers l = small_layers();
  const Memory x = exact().allocate(DType::F32, {96, l.c.dim}),
               y = exact().allocate(DType::F32, {96, 2 * l.c.inner});
  int calls = 0;
  repeat(l, [&] {
    // Of several lengths, so that steps meet different parts of it.
    for (int i = 0; i <= calls % 3; ++i) exact().matmul(y.view, x.view, l.layers[0].exact[2]);
    ++calls;
  });
  exact().synchronize();
}

}  // namespace
}  // namespace sluice::cuda_test
