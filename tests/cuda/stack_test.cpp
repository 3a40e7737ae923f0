// All layers in one launch against the same layers made of the back-end's other operations, both measured by those with f32
// activations and an f32 cache: no less exact.
#include "tests/cuda/stack_layers.h"

namespace sluice::cuda_test {
namespace {

TEST_F(StackTest, IsWhatItsLayersAre) {
  for (const StackCase& c : {StackCase{16, 8, 128, 1024, 3072, true}, StackCase{32, 8, 64, 2048, 4608},
                             StackCase{16, 2, 128, 1536, 4864, false, 128}, StackCase{24, 8, 128, 3072, 1152},
                             StackCase{16, 8, 128, 1024, 4096}}) {
    const Layers layers = make(c, 2, 330 * 64 / c.block_size + 1);
    Errors all;
    for (const int n : {1, 2, 5, 8})
      for (const int context : {1, 17, 576})
        all.add(check(layers, std::vector<int>(static_cast<size_t>(n), context)));
    all.add(check(layers, {5000}));
    all.add(check(layers, {5000, 1}));
    all.add(check(layers, {3, 129, 2500, 640, 1000, 63, 64, 65}));
    EXPECT_LT(all.excess(1.25), 1e-4)
        << "head " << c.head_dim << ", apart " << std::sqrt(all.apart / all.exact);
    check_caches(layers);
  }
}

TEST_F(StackTest, LeavesTheRestToOthers) {
  const StackCase plain{16, 8, 128, 1024, 3072};
  const auto taken = [&](const StackCase& c, const std::vector<int>& contexts) {
    const Layers l = make(c, 1, 700 * 64 / c.block_size + 1);
    const Tokens tokens(contexts, l);
    const auto n = static_cast<int64_t>(contexts.size());
    const Memory x = gpu().allocate(DType::BF16, {n, c.dim}),
                 angles = gpu().allocate(DType::F32, {n, c.head_dim / 2, 2});
    const RaggedBatch batch = tokens.view();
    gpu().begin(batch);
    return run_whole(l, x.view, angles.view, batch);
  };
  EXPECT_TRUE(taken(plain, {100}));
  EXPECT_FALSE(taken(plain, std::vector<int>(9, 100))) << "more tokens than it takes";
  EXPECT_FALSE(taken(plain, std::vector<int>(8, 5000))) << "more context than pays";
  EXPECT_FALSE(taken({32, 8, 128, 4096, 2176}, {100})) << "layers so large that launches do not matter";
  EXPECT_FALSE(taken({12, 4, 96, 1152, 3072}, {100})) << "heads of 96";
  EXPECT_FALSE(taken({16, 8, 128, 5120, 1024}, {100})) << "rows of 5,120";
  EXPECT_FALSE(taken({16, 8, 128, 1024, 3072, false, 16}, {100})) << "blocks of 16";
}

// Queries and keys in one order of their columns, values in another: such a matrix lies as two, and none of them is the whole.
TEST_F(StackTest, LeavesMatricesOfSeveralOrdersToOthers) {
  const StackCase c{16, 8, 128, 1024, 3072};
  Layers l = make(c, 1, 100);
  const auto order = [&](int step) {
    std::vector<int32_t> columns(static_cast<size_t>(c.dim));
    for (size_t k = 0; k < columns.size(); ++k)
      columns[k] = static_cast<int32_t>((static_cast<size_t>(step) * k + 3) % columns.size());
    return std::make_shared<const std::vector<int32_t>>(columns);
  };
  const kernels::ColumnOrder first = order(5), second = order(77);
  orders_ = {first, first, first, second};
  l.layers[0].qkv = weight({DType::Q4_0, DType::Q4_0, DType::Q4_0, DType::Q4_Z}, 1024, c.dim, false);
  orders_.clear();
  ASSERT_EQ(l.layers[0].qkv.device.runs.size(), 2u);
  const Tokens tokens({100}, l);
  const Memory x = gpu().allocate(DType::BF16, {1, c.dim}),
               angles = gpu().allocate(DType::F32, {1, c.head_dim / 2, 2});
  const RaggedBatch batch = tokens.view();
  gpu().begin(batch);
  EXPECT_FALSE(run_whole(l, x.view, angles.view, batch));
}

}  // namespace
}  // namespace sluice::cuda_test
