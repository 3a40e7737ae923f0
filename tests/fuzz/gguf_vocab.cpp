// Vocabulary metadata of any shape: refused, or a tokenizer that takes any text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace {

// Takes values off the front of the input; zeros and empty strings at its end.
class Source {
 public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value;
  }
  std::string_view text(size_t most) {
    const std::string_view value = bytes_.substr(0, byte() % (most + 1));
    bytes_.remove_prefix(value.size());
    return value;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

constexpr std::string_view models[] = {"llama", "gpt2", "t5", "bert", "gemma4", "none", "other"};
constexpr std::string_view pres[] = {"default",      "llama-bpe", "qwen2",   "gpt-4o",
                                     "deepseek-llm", "falcon",    "kimi-k2", "?"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  Source source({reinterpret_cast<const char*>(data), size});
  formats::GgufMetadata metadata;
  metadata.set("tokenizer.ggml.model", models[source.byte() % std::size(models)]);
  metadata.set("tokenizer.ggml.pre", pres[source.byte() % std::size(pres)]);
  const size_t count = source.byte() % 48;
  std::vector<std::string_view> tokens, merges;
  std::vector<int64_t> types, charsmap;
  std::vector<double> scores;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(source.text(6));
    types.push_back(source.byte() % 8);
    scores.push_back(-static_cast<double>(source.byte()));
  }
  for (size_t i = source.byte() % 32; i > 0; --i) merges.push_back(source.text(9));
  for (const char c : source.text(200)) charsmap.push_back(c);
  const uint8_t flags = source.byte();
  metadata.set("tokenizer.ggml.tokens", formats::GgufArray(tokens));
  if ((flags & 1) == 0) metadata.set("tokenizer.ggml.token_type", formats::GgufArray(types));
  if ((flags & 2) == 0) metadata.set("tokenizer.ggml.scores", formats::GgufArray(scores));
  if ((flags & 4) == 0) metadata.set("tokenizer.ggml.merges", formats::GgufArray(merges));
  if ((flags & 8) != 0) metadata.set("tokenizer.ggml.precompiled_charsmap", formats::GgufArray(charsmap));
  metadata.set("tokenizer.ggml.add_space_prefix", (flags & 16) != 0);
  metadata.set("tokenizer.ggml.remove_extra_whitespaces", (flags & 32) != 0);
  metadata.set("tokenizer.ggml.bos_token_id", int64_t{source.byte()});
  metadata.set("tokenizer.ggml.unknown_token_id", int64_t{source.byte()});
  const auto tokenizer = tokenizer::load_tokenizer_gguf(metadata);
  if (!tokenizer.ok()) return 0;
  const std::string_view text = source.rest().substr(0, 4096);
  const auto ids = tokenizer->encode(text, {.parse_special = (flags & 64) != 0, .add_special = true});
  if (ids.ok()) tokenizer->decode(*ids);
  (void)tokenizer->encode_with_ranges(text).ok();
  return 0;
}
