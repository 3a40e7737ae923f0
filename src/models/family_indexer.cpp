// Which layers choose what they attend to, from the configs of DeepSeek 3.2, GLM 5 and MiniMax M3.
#include <fmt/format.h>

#include <algorithm>

#include "models/family.h"

namespace sluice::models {

namespace {

// Whether each layer has an indexer of its own; the others attend to the positions of the layer before.
std::vector<bool> own_indexers(Config& c, size_t layers) {
  std::vector<bool> own(layers, true);
  const auto fill = [&](const auto& list, const auto& is_own) {
    if (list.size() < layers)
      return c.fail(fmt::format("indexers of {} layers are said, the model has {}", list.size(), layers));
    for (size_t i = 0; i < layers; ++i) own[i] = is_own(list[i]);
  };
  if (c.is_gguf()) {
    if (c.has("indexer_types")) {
      fill(c.numbers("indexer_types"), [](double flag) { return flag != 0; });
    } else {
      for (size_t i = 0; i < layers; ++i) own[i] = c.stores(fmt::format("blk.{}.indexer.proj.weight", i));
    }
  } else if (c.has("indexer_types")) {
    fill(c.texts("indexer_types"), [](const std::string& type) { return type != "shared"; });
  } else if (c.is_text("index_topk_pattern")) {
    fill(c.text_or("index_topk_pattern", ""), [](char letter) { return letter != 'S'; });
  } else if (c.has("index_topk_pattern")) {
    fill(c.texts("index_topk_pattern"), [](const std::string& type) { return type != "shared"; });
  } else {
    const int every = std::max(1, c.size_or("index_topk_freq", 1)),
              first = c.size_or("index_skip_topk_offset", 2);
    for (size_t i = 0; i < layers; ++i) own[i] = std::max(static_cast<int>(i) - first + 1, 0) % every == 0;
  }
  return own;
}

}  // namespace

void use_indexers(Config& c, ModelSpec& spec, RopeStyle style) {
  const bool pairs = c.flag_or("indexer_rope_interleave", style == RopeStyle::GptJ);
  const Indexer indexer{.chosen = c.size_or("index_topk", 0),
                        .heads = c.size_or("index_n_heads", 0),
                        .dim = c.size_or("index_head_dim", 0),
                        .style = pairs ? RopeStyle::GptJ : RopeStyle::NeoX};
  if (indexer.chosen == 0) return;
  if (indexer.heads == 0 || (c.is_gguf() && !c.stores("blk.0.indexer.proj.weight"))) {
    spec.context_limit = indexer.chosen;  // the file has no indexers
    spec.context = std::min(spec.context, spec.context_limit);
    return;
  }
  if (int64_t{indexer.heads} * indexer.dim > 1 << 24)
    return c.fail(fmt::format("'index_n_heads' is {} and 'index_head_dim' {}", indexer.heads, indexer.dim));
  const std::vector<bool> own = own_indexers(c, spec.layers.size());
  if (!own.empty() && !own[0]) c.fail("layer 0 has no indexer, and no layer before it has one");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& mixer = std::get<LatentAttention>(spec.layers[i].mixer);
    mixer.indexer = own[i] ? indexer : Indexer{.chosen = indexer.chosen};
    if (mixer.q_latent == 0) c.fail("'q_lora_rank' is missing, which indexers make their queries of");
    if (indexer.dim < mixer.rope_dim)
      c.fail(
          fmt::format("'index_head_dim' is {}, of which {} are to be rotated", indexer.dim, mixer.rope_dim));
  }
}

void use_block_indexers(Config& c, ModelSpec& spec) {
  const std::vector<std::string> kinds = c.texts("layer_types");
  const BlockIndexer indexer{.chosen = c.size_or(c.is_gguf() ? "index_topk" : "index_topk_blocks", 16),
                             .size = c.size_or("index_block_size", 128),
                             .local = c.size_or("index_local_blocks", 1),
                             .heads = c.size_or("index_n_heads", 4),
                             .dim = c.size_or("index_head_dim", 128)};
  const auto check = [&](bool good, std::string_view key, int value, std::string_view must) {
    if (!good) c.fail(fmt::format("'{}' is {}, must be {}", key, value, must));
  };
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool chooses = c.is_gguf() ? c.stores(fmt::format("blk.{}.indexer.q_proj.weight", i))
                                     : i < kinds.size() && kinds[i] == "minimax_m3_sparse";
    if (!chooses) continue;
    Attention& mixer = attention(spec.layers[i]);
    const auto rotated = static_cast<int>(2 * spec.ropes[0].inverse_frequency.size());
    const int least = std::min(indexer.chosen, 1 << 20);
    check(indexer.chosen >= 1 && indexer.chosen <= 1 << 20, "index_topk_blocks", indexer.chosen,
          "1 to 1048576");
    check(indexer.size >= 1 && indexer.size <= 1 << 20, "index_block_size", indexer.size, "1 to 1048576");
    check(indexer.local >= 1 && indexer.local <= least, "index_local_blocks", indexer.local,
          "1 to 'index_topk_blocks'");
    check(indexer.heads >= 1 && mixer.kv_heads % indexer.heads == 0, "index_n_heads", indexer.heads,
          "a divisor of 'num_key_value_heads'");
    check(indexer.dim >= rotated && indexer.dim <= 1 << 16, "index_head_dim", indexer.dim,
          "as many as are rotated, to 65536");
    mixer.indexer = indexer;
  }
}

}  // namespace sluice::models
