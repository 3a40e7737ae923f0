// Sums over parts against the operations that they are made of: equal bits, whatever the threads; and norms by sums
// against those of whole rows.
#include "kernels/part_sums.h"

#include <utility>

#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Backend;
using kernels::PartSums;

struct Parts {
  std::vector<HostTensor> memory;
  std::vector<TensorView> views;

  Parts(Random& random, size_t count, int64_t rows, int64_t width) {
    for (size_t i = 0; i < count; ++i)
      views.push_back(memory.emplace_back(random.tensor({rows, width}, 3.0f)).view);
  }
};

// By Backend::add, in the order of parts.
HostTensor sum_of(Backend& backend, const std::vector<TensorView>& parts) {
  HostTensor sum = HostTensor::make(DType::F32, {parts[0].dim(0), parts[0].dim(1)});
  backend.copy(sum.view, parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) backend.add(sum.view, sum.view, parts[i]);
  return sum;
}

template <class Body>
void for_shapes(const Body& body) {
  for (const int threads : {1, 3})
    for (const auto& backend : cpu_backends(threads))
      for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{5}})
        for (const auto& [rows, width] :
             {std::pair<int64_t, int64_t>{1, 7}, {5, 578}, {3, 20011}, {33, 1030}}) {
          SCOPED_TRACE(::testing::Message() << backend->name() << " parts " << count << " width " << width);
          auto* sums = dynamic_cast<PartSums*>(backend.get());
          ASSERT_NE(sums, nullptr);
          Random random(5);
          body(*backend, *sums, Parts(random, count, rows, width));
        }
}

TEST(PartSums, AddsInTheOrderOfParts) {
  for_shapes([](Backend& backend, PartSums& sums, const Parts& parts) {
    const HostTensor expected = sum_of(backend, parts.views);
    const int64_t rows = expected.view.dim(0), width = expected.view.dim(1);
    HostTensor wide = HostTensor::make(DType::F32, {rows, width + 3});
    const TensorView out = wide.view.columns(2, 2 + width);
    sums.add_parts(out, parts.views);
    ASSERT_TRUE(same_bits(out, expected.view));
    sums.add_parts(parts.views.back(), parts.views);  // in place of one of them
    ASSERT_TRUE(same_bits(parts.views.back(), expected.view));
  });
}

TEST(PartSums, AddsToTheResidualAndNorms) {
  for_shapes([](Backend& backend, PartSums& sums, const Parts& parts) {
    const HostTensor branch = sum_of(backend, parts.views);
    const int64_t rows = branch.view.dim(0), width = branch.view.dim(1);
    Random random(9);
    const HostTensor gain = random.tensor({width}), stream = random.tensor({rows, width});
    HostTensor expected_sum = HostTensor::make(DType::F32, {rows, width});
    HostTensor sum = HostTensor::make(DType::F32, {rows, width});
    HostTensor expected = HostTensor::make(DType::F32, {rows, width});
    HostTensor out = HostTensor::make(DType::F32, {rows, width});
    backend.copy(expected_sum.view, stream.view);
    backend.copy(sum.view, stream.view);
    const kernels::RmsGain norm{gain.view, 1e-5f};
    backend.add_rms_norm(expected.view, {expected_sum.view, branch.view, 0.75f}, norm);
    sums.add_parts_rms_norm(out.view, {sum.view, {}, 0.75f}, parts.views, norm);
    ASSERT_TRUE(same_bits(sum.view, expected_sum.view));
    ASSERT_TRUE(same_bits(out.view, expected.view));
  });
}

// Columns of a row that lie apart, normed by the squares of all.
TEST(PartSums, NormsRowsThatLieApart) {
  for_shapes([](Backend& backend, PartSums& sums, const Parts& parts) {
    const int64_t rows = parts.views[0].dim(0), width = parts.views[0].dim(1);
    const auto count = static_cast<int64_t>(parts.views.size());
    Random random(9);
    const HostTensor gain = random.tensor({count * width});
    HostTensor whole = HostTensor::make(DType::F32, {rows, count * width});
    HostTensor squares = HostTensor::make(DType::F32, {rows, count});
    std::vector<HostTensor> each;
    for (int64_t i = 0; i < count; ++i) {
      const TensorView& part = parts.views[static_cast<size_t>(i)];
      backend.copy(whole.view.columns(i * width, (i + 1) * width), part);
      sums.square_sums(squares.view.columns(i, i + 1), part);
      each.push_back(HostTensor::make(DType::F32, {rows, 1}));
      backend.copy(each.back().view, squares.view.columns(i, i + 1));
      if (i > 0) backend.add(each[0].view, each[0].view, each.back().view);
    }
    for (const bool gained : {true, false}) {
      HostTensor expected = HostTensor::make(DType::F32, {rows, count * width});
      HostTensor out = HostTensor::make(DType::F32, {rows, count * width});
      backend.rms_norm(expected.view, whole.view, gained ? gain.view : TensorView(), 1e-5f);
      backend.copy(out.view, whole.view);
      for (int64_t i = 0; i < count; ++i) {
        const TensorView own = gained ? gain.view.rows(i * width, (i + 1) * width) : TensorView();
        sums.norm_by_sums(out.view.columns(i * width, (i + 1) * width), each[0].view, count * width,
                          {own, 1e-5f});
      }
      ASSERT_TRUE(near(out.view, expected.view, 2e-6f));
    }
  });
}

}  // namespace
}  // namespace sluice::parity
