#include "llm/call_flags.h"

namespace sluice::llm {

void declare_system(OptionSet& options, std::string& system) {
  options.add(system, "system", "system message; without it the chat template's own, where it has one");
}

void PromptFlags::declare(OptionSet& options) {
  declare_system(options, system);
  options.add(raw, "raw", "complete the text as it is, without the chat template");
  options.add(images, "image", "a picture that the prompt is about, of a model that reads pictures")
      .shown_as("FILE");
}

void declare_encoding(OptionSet& options, tokenizer::EncodeOptions& encode) {
  options.add(encode.parse_special, "special", "text that spells a special token becomes that token");
  options.add(encode.add_special, "add-special", "add the tokens that the model expects around a text");
}

void declare_decoding(OptionSet& options, bool& skips_special) {
  options.add(skips_special, "skip-special", "leave special tokens out of the text");
}

void declare_pooling(OptionSet& options, request::Pooling& pooling) {
  using Of = request::Pooling::Of;
  options.add_choice<Of>(pooling.of, "pooling", "the vector: mean of all positions, or the last one's",
                         {{"mean", Of::Mean}, {"last", Of::Last}});
  options.add_choice<bool>(pooling.normalize, "normalize", "the vector has Euclidean length 1",
                           {{"on", true}, {"off", false}});
}

}  // namespace sluice::llm
