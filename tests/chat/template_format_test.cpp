// The formats that published chat templates are found to have.
#include "chat/formats/template_format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/chat/chat_template_support.h"

namespace sluice::chat {
namespace {

namespace fs = std::filesystem;

std::string described(const TemplateFormat& format) {
  std::string text = format.output.tools ? format.output.tools->name : "none";
  if (format.output.reasoning)
    text += " " + format.output.reasoning->begin.substr(0, format.output.reasoning->begin.find('\n'));
  text += format.shows_tools ? " tools" : "";
  return text + (format.shows_calls ? " calls" : "");
}

TEST(TemplateFormat, PublishedTemplatesHaveTheFormatsOfTheirFamilies) {
  const fs::path folder = fs::path(SLUICE_SHARED) / "templates";
  if (!fs::exists(folder / "cases.json")) GTEST_SKIP() << folder << " is not there";
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const Result<ChatTemplate> parsed = ChatTemplate::parse(read_file(entry.path()));
    ASSERT_TRUE(parsed.ok());
    found[entry.path().stem().string()] = described(derive_format(*parsed));
  }
  const std::map<std::string, std::string> expected = {
      {"Apertus-8B-Instruct", "apertus <|inner_prefix|> tools calls"},
      {"ByteDance-Seed-OSS", "seed-oss <seed:think> tools calls"},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r <|START_THINKING|> tools calls"},
      {"GLM-4.6", "glm <think> tools calls"},
      {"GigaChat3-10B-A1.8B", "gigachat tools calls"},
      {"HuggingFaceTB-SmolLM3-3B", "none <think>"},
      {"Kimi-K2-Instruct", "kimi-k2 tools"},
      {"LFM2-8B-A1B", "lfm2 tools"},
      {"MiniMax-M2", "minimax <think> tools calls"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "mistral tools calls"},
      {"NVIDIA-Nemotron-Nano-v2", "nemotron <think> tools calls"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes tools calls"},
      {"Qwen-QwQ-32B", "hermes <think> tools calls"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes tools calls"},
      {"Qwen-Qwen3-0.6B", "hermes <think> tools calls"},
      {"Qwen3-Coder", "qwen3-coder tools calls"},
      {"Qwen3.5-4B", "qwen3-coder <think> tools calls"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-v3 <think>"},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1 <think> calls"},
      {"google-gemma-2-2b-it", "none"},
      {"google-gemma-4-31B-it", "gemma-4 <|channel>thought tools calls"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite <think> tools"},
      {"ibm-granite-granite-4.0", "hermes tools calls"},
      {"meetkai-functionary-medium-v3.2", "none tools"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama-3 tools calls"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama-3 tools calls"},
      {"microsoft-Phi-3.5-mini-instruct", "none"},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral [THINK] tools calls"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral-list tools calls"},
      {"openai-gpt-oss-120b", "harmony tools calls"},
      {"unsloth-Apriel-1.5", "apriel <thinking> tools calls"},
      {"unsloth-mistral-Devstral-Small-2507", "mistral tools calls"},
  };
  EXPECT_EQ(found, expected);
}

// Templates of no known family: the marks are found by what stands around the calls.
TEST(TemplateFormat, UnknownFormatsAreDerived) {
  const std::string head =
      "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}]";
  const std::string tail = "[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
  const auto derived = [&](const std::string& call) {
    const std::string calls = "{{ m.content }}{% for c in m.tool_calls or [] %}" + call + "{% endfor %}";
    const Result<ChatTemplate> parsed = ChatTemplate::parse(head + calls + tail);
    EXPECT_TRUE(parsed.ok());
    const TemplateFormat format = derive_format(*parsed);
    EXPECT_TRUE(format.shows_tools && format.shows_calls);
    return format.output.tools.value_or(ToolFormat{.name = "none"});
  };
  const ToolFormat object = derived(
      "<<CALL>>{\"fn\": \"{{ c.function.name }}\", \"args\": {{ c.function.arguments | tojson }}}<<END>>");
  EXPECT_EQ(object.name, "derived");
  EXPECT_EQ(object.call_begin + "|" + object.name_key + "|" + object.arguments_key + "|" + object.call_end,
            "<<CALL>>|fn|args|<<END>>");
  const ToolFormat named = derived("@use {{ c.function.name }} with {{ c.function.arguments | tojson }};;");
  EXPECT_EQ(named.call_begin + "|" + named.name_end + "|" + named.call_end, "@use | with |;;");
  const ToolFormat tagged = derived(
      "<run:{{ c.function.name }}>{% for k, v in c.function.arguments.items() %}<p:{{ k }}>{{ v }}</p>{% "
      "endfor %}</run>");
  EXPECT_EQ(tagged.call_begin + "|" + tagged.name_end + "|" + tagged.key_begin + "|" + tagged.key_end + "|" +
                tagged.value_end + "|" + tagged.call_end,
            "<run:|>|<p:|>|</p>|</run>");
}

}  // namespace
}  // namespace sluice::chat
