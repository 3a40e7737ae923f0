#include "tokenizer/pre_tokenizer_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace sluice::tokenizer {

namespace {

// Digits in groups of three from the right.
constexpr std::string_view groups_before_word_end = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view borders_of_groups = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view groups_of_numbers = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";

// Stands for the step from bytes to the byte-level alphabet; what follows works on mapped text.
constexpr std::string_view map_bytes = "map bytes";

using Patterns = std::span<const std::string_view>;

constexpr std::string_view gpt2[] = {byte_level_pattern};
constexpr std::string_view llama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view qwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view qwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view minicpm5[] = {
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view jais2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};
constexpr std::string_view cjk_and_hangul = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view han_and_kana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
// Letters of alphabets with case.
constexpr std::string_view deepseek_words =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"
    R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})"
    R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})"
    R"(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943}]+)";
constexpr std::string_view deepseek_llm[] = {
    "[\r\n]",
    deepseek_words,
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    cjk_and_hangul,
    R"(\p{N}+)"};
constexpr std::string_view deepseek_coder[] = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk_and_hangul,
                                               R"(\p{N})"};
constexpr std::string_view deepseek3[] = {
    R"(\p{N}{1,3})", han_and_kana,
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view afmoe[] = {
    groups_of_numbers,
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F})"
    R"(\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F})"
    R"(\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)",
    deepseek3[2]};
constexpr std::string_view youtu[] = {
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|)"
    R"([\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|)"
    R"([\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view falcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", byte_level_pattern, map_bytes, R"(\p{N}+)",
                                       "[0-9][0-9][0-9]"};
constexpr std::string_view starcoder[] = {R"(\p{N})", byte_level_pattern};
constexpr std::string_view bloom[] = {
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"};
constexpr std::string_view viking[] = {bloom[0], R"(\p{N})"};
constexpr std::string_view tekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view gpt4o[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view tiny_aya[] = {groups_before_word_end, gpt4o[0]};
constexpr std::string_view kimi_k2[] = {
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view superbpe[] = {R"(\p{N}+)", borders_of_groups};
constexpr std::string_view bailingmoe[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::string_view seed_coder[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view laguna[] = {R"([^\n]+|[\n]+)", qwen2[0]};
// Possessive where giving back could never help: a run of a million letters needs no stack.
constexpr std::string_view exaone_moe[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::string_view chameleon[] = {"<sentinel:[0-9]+>",       "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                          R"(([\t\n]|    |  ))",     R"(\p{N})",
                                          R"([\p{P}!-/:-@\[-`{-~])", byte_level_pattern};
constexpr std::string_view newlines[] = {R"([^\n]+|[\n]+)"};
constexpr std::string_view unnamed[] = {R"([\p{P}\$\+<=>\^~\|]+)", byte_level_pattern, R"(\p{N}+)",
                                        "[0-9][0-9][0-9]"};

enum Flag : uint8_t { None = 0, IgnoresMerges = 1, AddsBos = 2, RawText = 4, MayLackMerges = 8 };

struct Entry {
  std::string_view name;
  Patterns patterns;
  int flags = None;
};

constexpr Entry entries[] = {
    {"", unnamed},
    {"default", unnamed},
    {"llama3", llama3, IgnoresMerges | AddsBos},
    {"llama-v3", llama3, IgnoresMerges | AddsBos},
    {"llama-bpe", llama3, IgnoresMerges | AddsBos},
    {"falcon3", llama3, IgnoresMerges | AddsBos},
    {"falcon-h1", llama3, IgnoresMerges | AddsBos},
    {"pixtral", llama3, IgnoresMerges | AddsBos},
    {"midm-2.0", llama3, IgnoresMerges | AddsBos},
    {"lfm2", llama3, IgnoresMerges | AddsBos},
    {"jina-v5-nano", llama3, IgnoresMerges | AddsBos},
    {"minicpm5", minicpm5, IgnoresMerges},
    {"jais-2", jais2},
    {"dbrx", llama3},
    {"smaug-bpe", llama3},
    {"glm4", llama3},
    {"chatglm-bpe", llama3},
    {"deepseek-llm", deepseek_llm},
    {"deepseek-coder", deepseek_coder},
    {"deepseek-v3", deepseek3},
    {"hunyuan-dense", deepseek3},
    {"joyai-llm", deepseek3},
    {"youtu", youtu, IgnoresMerges},
    {"falcon", falcon},
    {"starcoder", starcoder},
    {"refact", starcoder},
    {"command-r", starcoder},
    {"smollm", starcoder},
    {"codeshell", starcoder},
    {"exaone", starcoder},
    {"minerva-7b", starcoder},
    {"mellum2", starcoder},
    {"gpt-2", gpt2},
    {"phi-2", gpt2},
    {"mpt", gpt2},
    {"olmo", gpt2},
    {"jais", gpt2},
    {"jina-es", gpt2},
    {"jina-de", gpt2},
    {"jina-v1-en", gpt2},
    {"jina-v2-es", gpt2},
    {"jina-v2-de", gpt2},
    {"jina-v2-code", gpt2},
    {"roberta-bpe", gpt2},
    {"gigachat", gpt2},
    {"a.x-4.0", gpt2},
    {"mellum", gpt2},
    {"modern-bert", gpt2},
    {"exaone4", gpt2},
    {"trillion", gpt2},
    {"granite-docling", gpt2},
    {"qwen2", qwen2},
    {"deepseek-r1-qwen", qwen2},
    {"kormo", qwen2},
    {"f2llmv2", qwen2},
    {"megrez", qwen2},
    {"stablelm2", qwen2},
    {"hunyuan", qwen2},
    {"solar-open", qwen2},
    {"grok-2", qwen2},
    {"qwen35", qwen35},
    {"poro-chat", bloom},
    {"bloom", bloom},
    {"gpt3-finnish", bloom},
    {"viking", viking},
    {"tekken", tekken, IgnoresMerges | AddsBos},
    {"gpt-4o", gpt4o},
    {"o200k", gpt4o},
    {"llama4", gpt4o},
    {"kanana2", gpt4o},
    {"talkie", gpt4o},
    {"minimax-m2", gpt4o},
    {"granite-embed-multi-97m", gpt4o, IgnoresMerges},
    {"tiny_aya", tiny_aya},
    {"cohere2moe", tiny_aya},
    {"kimi-k2", kimi_k2, MayLackMerges},
    {"superbpe", superbpe},
    {"bailingmoe", bailingmoe},
    {"bailingmoe2", bailingmoe},
    {"llada-moe", bailingmoe},
    {"seed-coder", seed_coder},
    {"afmoe", afmoe},
    {"laguna", laguna},
    {"exaone-moe", exaone_moe},
    {"chameleon", chameleon, AddsBos},
    {"gemma4", newlines, RawText | AddsBos},
    {"granite-embed-multi-311m", newlines, RawText | AddsBos},
    {"sarvam-moe", newlines, RawText},
};

}  // namespace

Result<PreTokenizerStep> make_split(std::string_view pattern, SplitBehavior behavior, bool is_inverted) {
  if (behavior == SplitBehavior::Isolated && !is_inverted) {
    const unicode::CategorySet decimal = unicode::set_of(unicode::Category::Nd);
    if (pattern == groups_before_word_end) return PreTokenizerStep(DigitGroupStep{decimal, true, true});
    if (pattern == borders_of_groups) return PreTokenizerStep(DigitGroupStep{decimal, false, false});
    if (pattern == groups_of_numbers)
      return PreTokenizerStep(DigitGroupStep{unicode::sets::numbers, true, false});
  }
  auto compiled = unicode::Pattern::compile(pattern);
  if (!compiled) return compiled.error();
  return PreTokenizerStep(SplitStep{std::move(*compiled), behavior, is_inverted});
}

std::vector<std::string_view> distinct_pre_tokenizers() {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries) {
    const bool is_known = std::any_of(std::begin(entries), &entry, [&](const Entry& earlier) {
      return earlier.patterns.data() == entry.patterns.data();
    });
    if (!is_known) names.push_back(entry.name);
  }
  return names;
}

Result<NamedPreTokenizer> find_pre_tokenizer(std::string_view name) {
  const auto* found = std::find_if(std::begin(entries), std::end(entries),
                                   [&](const Entry& entry) { return entry.name == name; });
  if (found == std::end(entries)) {
    return Error{ErrorCode::Unsupported, fmt::format("tokenizer.ggml.pre: unknown pre-tokenizer '{}'", name)};
  }
  NamedPreTokenizer result;
  result.ignores_merges = (found->flags & IgnoresMerges) != 0;
  result.adds_bos = (found->flags & AddsBos) != 0;
  result.has_raw_text = (found->flags & RawText) != 0;
  result.may_lack_merges = (found->flags & MayLackMerges) != 0;
  for (const std::string_view pattern : found->patterns) {
    if (pattern == map_bytes) {
      result.maps_bytes = true;
      result.steps.emplace_back(MapBytesStep{});
      continue;
    }
    auto step = make_split(pattern, SplitBehavior::Isolated, false);
    if (!step) return step.error();
    result.steps.push_back(std::move(*step));
  }
  return result;
}

}  // namespace sluice::tokenizer
