// The decoder around its layers, on the reference, against plain numbers.
#include "models/decoder/decoder.h"

#include <gtest/gtest.h>

#include "kernels/ref/ref.h"

namespace sluice::models {
namespace {

Weight matrix(HostTensor& memory, std::initializer_list<int64_t> shape, const std::vector<float>& values) {
  memory = HostTensor::make(DType::F32, shape);
  std::copy(values.begin(), values.end(), memory.view.at<float>());
  return {{memory.view}, memory.view.dim(0), memory.view.dim(1), {}, {}};
}

TEST(Decoder, ProjectsEmbeddingsThatAreNarrowerThanTheLayers) {
  const std::unique_ptr<kernels::Backend> backend = kernels::make_ref_backend();
  ModelSpec spec;
  spec.dim = 3, spec.vocab = 2, spec.embedding_dim = 2;
  spec.output_norm = false;
  HostTensor table, in, out;
  ModelWeights weights;
  weights.embedding = weights.output = matrix(table, {2, 2}, {1, 2, 3, -1});
  weights.embedding_in = matrix(in, {3, 2}, {1, 0, 0, 1, 2, 2});
  weights.embedding_out = matrix(out, {2, 3}, {1, 0, 1, 0, -1, 0});
  Decoder decoder(spec, weights, *backend);
  const std::vector<Token> tokens{1};
  const std::vector<int32_t> positions{0}, query_begin{0, 1}, row{0};
  kernels::RaggedBatch batch;
  batch.positions = positions;
  batch.query_begin = query_begin;
  decoder.forward({.tokens = tokens, .batch = batch, .kv = {}});
  const TensorView hidden = decoder.hidden(row);
  ASSERT_EQ(hidden.dim(1), 3);
  EXPECT_FLOAT_EQ(hidden.at<float>()[2], 2.0f * 3.0f - 2.0f * 1.0f);
  // hidden (3, -1, 4), narrowed (7, 1), logits with both rows of the table
  const TensorView logits = decoder.logits(hidden);
  EXPECT_FLOAT_EQ(logits.at<float>()[0], 9.0f);
  EXPECT_FLOAT_EQ(logits.at<float>()[1], 20.0f);
}

}  // namespace
}  // namespace sluice::models
