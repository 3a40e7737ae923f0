// A random Llama with a head for multi-token prediction and one of EAGLE-3, written to folders, and what they compute in plain
// loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "tests/formats/files.h"

namespace sluice::runtime::test {

using Row = std::vector<float>;

// How the head's tensors are named.
enum class HeadNames { DeepSeek, MiMo, Qwen };

struct MiniatureOptions {
  HeadNames names = HeadNames::DeepSeek;
  // Factor on what layers add to the stream: with little of it the next token depends on the last one alone, and a head that
  // passes its token on guesses it.
  float layers = 1.0f;
  bool passes_on = false;  // the heads' layers read the token alone
};

class HeadMiniature {
 public:
  static constexpr int kDim = 16, kHeads = 4, kKvHeads = 2, kHeadDim = 4, kInner = 24, kVocab = 96,
                       kLayers = 3, kDraftVocab = 64;

  explicit HeadMiniature(const MiniatureOptions& options);

  std::string path() const { return folder_.path().string(); }
  std::string eagle_path() const { return eagle_folder_.path().string(); }

  // After the last norm, per token.
  std::vector<Row> hidden(const std::vector<Token>& tokens) const;
  // The head's: behind each pair of a token and the hidden state before it, positions from 0 on.
  std::vector<Row> head_hidden(const std::vector<Token>& tokens, const std::vector<Row>& before) const;
  Row logits(const Row& hidden) const;
  // What enters the layers, one behind the other, per token.
  std::vector<Row> tapped(const std::vector<Token>& tokens) const;
  // EAGLE-3: of what was tapped, and behind each pair of a token and the g before it.
  Row fused(const Row& taps) const { return product("eagle/fc", taps); }
  std::vector<Row> eagle_stream(const std::vector<Token>& tokens, std::vector<Row> g) const;
  // [kDraftVocab], of the tokens that target_token() says.
  Row eagle_logits(const Row& stream) const { return product("eagle/lm_head", normed("eagle/norm", stream)); }
  static Token target_token(int draft) { return draft < 32 ? draft : draft + 32; }

 private:
  struct Tensor {
    std::vector<int> shape;
    std::vector<float> values;
  };
  void add(const std::string& name, std::vector<int> shape, float scale, float mean = 0);
  void add_layer(const std::string& prefix, float scale, int input = kDim, int kv_heads = kKvHeads);
  void add_eagle();
  void pass_on_in_eagle();
  void add_head();
  void write() const;
  void write_tensors(const formats::TempFolder& folder, const std::string& prefix) const;
  std::string head_name(const std::string& part) const;
  Row product(const std::string& name, const Row& x) const;
  Row normed(const std::string& name, const Row& x, float plus = 0) const;
  void run_layer(const std::string& prefix, std::vector<Row>& x) const;
  void attend(const std::string& prefix, const std::vector<Row>& rows, std::vector<Row>& x) const;
  void feed(const std::string& prefix, std::vector<Row>& x) const;
  Row embedding(Token token) const;

  MiniatureOptions options_;
  std::map<std::string, Tensor> tensors_;
  formats::TempFolder folder_, eagle_folder_;
  uint32_t state_ = 1;
};

}  // namespace sluice::runtime::test
