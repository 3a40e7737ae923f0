// Any bytes as a config.json, or as Model Optimizer's file where the first byte is odd: an error that names what is wrong, or a
// quantisation whose sizes keep to their limits and that answers for any module.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "models/quantized/quantization.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::models::Quantization;
  if (size < 2 || size > 2048) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const sluice::Result<sluice::json::value> value = sluice::parse_json(text, "a config");
  if (!value || !value->is_object()) return 0;
  const sluice::Result<Quantization> found = data[0] % 2 == 0
                                                 ? sluice::models::read_quantization(value->get_object())
                                                 : sluice::models::read_modelopt(value->get_object());
  if (!found) {
    require(!found.error().message.empty());
    return 0;
  }
  require(found->group_size >= 0 && found->block_rows >= 0 && found->block_cols >= 0);
  for (const sluice::models::QuantGroup& group : found->groups)
    require(group.bits >= 1 && group.bits <= 8 && group.group_size >= 0 && group.tile.rows >= 0 &&
            group.tile.cols >= 0);
  for (const char* module : {"", "lm_head", "model.layers.0.self_attn.q_proj"}) {
    const std::vector<std::string> names{module, std::string("language_model.") + module};
    (void)found->ignores(names);
    (void)found->tile_of(names);
    const auto packing = found->packing_of(names);
    require(!packing || (packing->bits >= 2 && packing->bits <= 8 && packing->group_size >= 0) ||
            found->method != Quantization::Method::Gptq);
  }
  return 0;
}
