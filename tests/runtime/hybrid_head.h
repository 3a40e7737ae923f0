// A golden miniature of the Qwen 3 Next and 3.5 families with a random head for multi-token prediction beside it, written to a
// folder, and what the head computes in plain loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "tests/formats/files.h"

namespace sluice::runtime::test {

struct HybridHeadOptions {
  std::string model = "qwen3_next";  // of tests/golden/data
  // Factor on what layers add to the stream; with none of it the next token depends on the last one alone.
  float layers = 1.0f;
  bool passes_on = false;  // the head reads the token alone: it guesses what a model of no layers does
  bool gguf = false;  // a GGUF file, with the names that llama.cpp's converter gives a dense model's head
};

class HybridHead {
 public:
  using Row = std::vector<double>;
  static constexpr int kDim = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kTurned = 4, kVocab = 64;

  explicit HybridHead(const HybridHeadOptions& options);

  std::string path() const { return (folder_.path() / (options_.gguf ? "model.gguf" : "")).string(); }
  // norm(layer(fc([norm_e(embedding(token)), norm_h(hidden)]))) behind each pair of a token and the hidden state before it,
  // positions from 0 on.
  std::vector<Row> head_hidden(const std::vector<Token>& tokens, const std::vector<Row>& before) const;
  Row logits(const Row& hidden) const { return product("lm_head", hidden); }

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  void read(const std::string& folder);
  void add_head();
  void fill(Tensor& tensor, float scale);
  void write(const std::string& folder) const;
  void write_gguf(const std::string& original);  // with the model's own tensors as they are there
  const Tensor& tensor(const std::string& name) const { return tensors_.at(name + ".weight"); }
  Row product(const std::string& name, const Row& x) const;
  Row normed(const std::string& name, Row x) const;
  Row turned_head(const std::string& norm, const Row& rows, int begin, int position) const;
  void attend(std::vector<Row>& x) const;
  Row swiglu(const std::string& prefix, const Row& x) const;
  Row fed(const Row& x) const;

  HybridHeadOptions options_;
  std::map<std::string, Tensor> tensors_;
  formats::TempFolder folder_;
  uint32_t state_ = 1;
};

}  // namespace sluice::runtime::test
