// Miniatures of every quantised format against the logits of the weights that they stand for, and what is said about those whose
// config and tensors do not belong together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/golden.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#include "models/model.h"
#include "models/placement.h"
#include "runtime/device.h"
#include "tests/formats/files.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double kOnReference = 1e-3;
constexpr double kWithRoundedActivations = 2e-2;
const fs::path kQuantized = fs::path(SLUICE_TEST_DATA) / "quantized";

std::string model_of(const fs::path& folder) {
  return fs::exists(folder / "model.gguf") ? (folder / "model.gguf").string() : folder.string();
}

Result<std::unique_ptr<models::Model>> opened(const std::string& path, const runtime::DeviceOptions& device) {
  auto backend = runtime::make_backend(device);
  if (!backend) return backend.error();
  auto files = models::open_model(path);
  if (!files) return files.error();
  return models::load_model(std::move(*files), *backend);
}

void expect_logits(const fs::path& folder, const runtime::DeviceOptions& device, double tolerance) {
  SCOPED_TRACE(fmt::format("{} on {} {}", folder.filename().string(), device.device, device.isa));
  const auto model = opened(model_of(folder), device);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto cases = cli::read_golden(folder.string(), (*model)->spec().vocab);
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  ASSERT_FALSE(cases->empty());
  for (const cli::GoldenCase& golden : *cases) {
    const auto verdict = cli::judge(**model, golden, DType::F32, tolerance);
    ASSERT_TRUE(verdict.ok()) << verdict.error().message;
    EXPECT_LE(verdict->relative_error, tolerance) << golden.prompt.size() << " tokens";
  }
}

std::vector<fs::path> quantized_folders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(kQuantized)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Loads a folder whose quantization_config is changed, and in the header of whose tensors `what` becomes `with`, of the same
// length; the message, or "".
std::string said_of(const std::string& folder, const std::function<void(json::object&)>& change,
                    const std::string& what = "", const std::string& with = "") {
  const formats::TempFolder temporary;
  const fs::path source = kQuantized / folder;
  std::string tensors = bytes_of(source / "model.safetensors");
  if (!what.empty()) replace_all(tensors, what, with);
  temporary.write("model.safetensors", tensors);
  json::object config = json::parse(bytes_of(source / "config.json")).as_object();
  if (change) change(config["quantization_config"].as_object());
  temporary.write("config.json", json::serialize(config));
  const auto model = opened(temporary.path().string(), {.device = "ref"});
  return model ? "" : model.error().message;
}

json::object& weights_of_group(json::object& config) {
  return config["config_groups"].as_object()["group_0"].as_object()["weights"].as_object();
}

}  // namespace

TEST(Quantized, EveryFormatAgreesOnTheReference) {
  const std::vector<fs::path> folders = quantized_folders();
  EXPECT_GE(folders.size(), 34u);
  for (const fs::path& folder : folders) expect_logits(folder, {.device = "ref"}, kOnReference);
}

TEST(Quantized, EveryFormatAgreesOnTheCpu) {
  for (const fs::path& folder : quantized_folders())
    for (const auto& isa : kernels::available_isa_names())
      expect_logits(folder, {.device = "cpu", .isa = std::string(isa), .threads = 2},
                    kWithRoundedActivations);
}

// What is stored in four bits has at most five and a half in memory.
TEST(Quantized, FourBitsStaySmall) {
  for (const char* folder :
       {"gptq-v1", "gptq-v1-asym", "gptq-v2-asym", "gptq-act-order", "bnb-nf4", "bnb-nf4-nested", "bnb-fp4",
        "awq", "pack-quantized", "pack-quantized-asym", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
        "modelopt-nvfp4", "gguf-iq4_xs", "gguf-nvfp4"}) {
    const auto model = opened(model_of(kQuantized / folder), {.device = "ref"});
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto& layer = (*model)->weights.layers[0];
    for (const TensorView& part : std::get<models::DenseWeights>(layer.ffn).gate_up.parts)
      EXPECT_LE(part.bytes() * 2, part.elements() * 11 / 8) << folder << " " << part.describe();
  }
}

TEST(Quantized, RefusesWhatItDoesNotKnowByName) {
  EXPECT_THAT(said_of("gptq-v1", [](json::object& c) { c["quant_method"] = "exl3"; }), HasSubstr("'exl3'"));
  EXPECT_THAT(said_of("gptq-v1", [](json::object& c) { c["bits"] = 5; }), HasSubstr("'bits' is 5"));
  EXPECT_THAT(said_of("gptq-v1", [](json::object& c) { c["bits"] = "four"; }), HasSubstr("bits"));
  EXPECT_THAT(said_of("gptq-v1", [](json::object& c) { c["checkpoint_format"] = "marlin"; }),
              HasSubstr("'marlin'"));
  EXPECT_THAT(said_of("awq", [](json::object& c) { c["version"] = "gemv"; }), HasSubstr("'gemv'"));
  EXPECT_THAT(said_of("pack-quantized", [](json::object& c) { c["format"] = "marlin-24"; }),
              HasSubstr("'marlin-24'"));
  EXPECT_THAT(said_of("pack-quantized", [](json::object& c) { c.erase("config_groups"); }),
              HasSubstr("config_groups"));
  EXPECT_THAT(said_of("modelopt-nvfp4", [](json::object& c) { c["quant_algo"] = "W4A8_AWQ"; }),
              HasSubstr("'W4A8_AWQ'"));
  EXPECT_THAT(said_of("fp8-blocks", [](json::object& c) { c["weight_block_size"] = json::array{128}; }),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(said_of("pack-quantized", [](json::object& c) { c["ignore"] = json::array{"re:(lm_head"}; }),
              HasSubstr("'ignore': pattern '(lm_head': missing closing parenthesis"));
  EXPECT_THAT(said_of("pack-quantized",
                      [](json::object& c) { c["ignore"] = json::array{"re:" + std::string(600, 'a')}; }),
              HasSubstr("has 603 bytes, limit 512"));
}

// Matching takes time that grows with the power of the name's length.
TEST(Quantized, StopsAtPatternsThatTakeTooLong) {
  EXPECT_THAT(said_of("pack-quantized",
                      [](json::object& c) { c["ignore"] = json::array{"re:(?:(?:[a-z_.0-9]+)+)+[A-Z]"}; }),
              HasSubstr("needs too many steps for 'model.layers.0.self_attn.q_proj'"));
}

TEST(Quantized, NamesConfigsThatContradictTheTensors) {
  EXPECT_THAT(said_of("gptq-v1", [](json::object& c) { c["group_size"] = 64; }), HasSubstr(".scales'"));
  EXPECT_THAT(said_of("gptq-v1", [](json::object& c) { c["bits"] = 8; }), HasSubstr("self_attn.q_proj"));
  EXPECT_THAT(said_of("awq", [](json::object& c) { c["group_size"] = 32; }), HasSubstr(".scales'"));
  EXPECT_THAT(said_of("awq", [](json::object& c) { c["modules_to_not_convert"] = json::array{"q_proj"}; }),
              HasSubstr("q_proj' is quantised, but"));
  EXPECT_THAT(said_of("pack-quantized", [](json::object& c) { weights_of_group(c)["symmetric"] = false; }),
              HasSubstr("symmetric is false"));
  EXPECT_THAT(said_of("pack-quantized", [](json::object& c) { weights_of_group(c)["group_size"] = 32; }),
              HasSubstr(".weight_scale'"));
  EXPECT_THAT(said_of("pack-quantized", [](json::object& c) { weights_of_group(c)["strategy"] = "channel"; }),
              HasSubstr("'group_size' is 128"));
  EXPECT_THAT(
      said_of("pack-quantized-mixed", [](json::object& c) { c["ignore"] = json::array{"re:.*q_proj"}; }),
      HasSubstr("is quantised, but"));
  EXPECT_THAT(said_of("bnb-nf4", [](json::object& c) { c["load_in_4bit"] = false; }),
              HasSubstr("load_in_4bit"));
  EXPECT_THAT(said_of("fp8-blocks",
                      [](json::object& c) {
                        c["weight_block_size"] = json::array{64, 64};
                      }),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(said_of("mxfp8-quantized", [](json::object& c) { weights_of_group(c)["group_size"] = 16; }),
              HasSubstr("weight_scale': scales are U8[64, 2], values F8_E4M3[64, 64]: 'group_size' is 16"));
  EXPECT_THAT(said_of("mxfp8-quantized", [](json::object& c) { weights_of_group(c)["num_bits"] = 4; }),
              HasSubstr("'num_bits' is 4"));
}

TEST(Quantized, ReadsFilesBesideTheConfig) {
  for (const auto& [folder, file] :
       {std::pair("gptq-v1", "quantize_config.json"), {"awq", "quant_config.json"}}) {
    const formats::TempFolder temporary;
    const fs::path source = kQuantized / folder;
    for (const auto& entry : fs::directory_iterator(source))
      if (entry.path().filename() != "config.json")
        temporary.write(entry.path().filename().string(), bytes_of(entry.path()));
    json::object config = json::parse(bytes_of(source / "config.json")).as_object();
    json::object keys = config["quantization_config"].as_object();
    keys.erase("quant_method");
    config.erase("quantization_config");
    temporary.write("config.json", json::serialize(config));
    temporary.write(file, json::serialize(keys));
    expect_logits(temporary.path(), {.device = "ref"}, kOnReference);
  }
}

TEST(Quantized, EightBitFloatsNeedScales) {
  EXPECT_THAT(said_of("float-quantized", nullptr, "weight_scale", "weight_zcale"),
              HasSubstr("q_proj' is F8_E4M3, and has neither '.weight_scale'"));
  EXPECT_THAT(said_of("float-quantized", [](json::object& c) { c["ignore"] = json::array{"re:.*q_proj"}; }),
              HasSubstr("q_proj' is quantised, but"));
  EXPECT_THAT(said_of("bnb-int8",
                      [](json::object& c) {
                        c["load_in_4bit"] = true;
                        c["load_in_8bit"] = false;
                      }),
              HasSubstr("has values of 8 bits, and quantization_config says 'load_in_4bit'"));
}

TEST(Quantized, NamesLayersThatCannotReadTheKeysOfAnother) {
  const auto said = [](const json::array& from) {
    const formats::TempFolder temporary;
    const fs::path source = kQuantized / "kv_from";
    temporary.write("model.safetensors", bytes_of(source / "model.safetensors"));
    json::object config = json::parse(bytes_of(source / "config.json")).as_object();
    config["kv_from"] = from;
    temporary.write("config.json", json::serialize(config));
    const auto model = opened(temporary.path().string(), {.device = "ref"});
    return model ? "" : model.error().message;
  };
  EXPECT_EQ(said({nullptr, 0, 0}), "");
  EXPECT_THAT(said({-1, 0}), HasSubstr("kv_from has 2 entries, there are 3 layers"));
  EXPECT_THAT(said({-1, 2, 0}), HasSubstr("kv_from of layer 1 is 2, must be a layer before it"));
  EXPECT_THAT(said({-1, 0, 1}), HasSubstr("kv_from of layer 2 is 1, which does not own"));
  EXPECT_THAT(said({-1, 0.5, 0}), HasSubstr("kv_from of layer 1 is 0.5"));
  EXPECT_THAT(said({-1, -1, 0}), HasSubstr("layer 1"));  // which has no keys of its own
}

// A rank whose own layers could run refuses too: the others would wait for it.
TEST(Quantized, EveryStageRefusesLayersThatReadTheKeysOfAnother) {
  const auto files = models::open_model((kQuantized / "kv_from").string());
  ASSERT_TRUE(files.ok());
  for (const int stage : {0, 1}) {
    const auto part = models::cut(files->spec, {.stage = {stage, 2}});
    ASSERT_FALSE(part.ok()) << stage;
    EXPECT_THAT(part.error().message, HasSubstr("reads the keys of layer 0, which lies on another stage"));
  }
}

TEST(Quantized, NamesTensorsThatAreMissingOrOfAnotherShape) {
  EXPECT_THAT(said_of("gptq-v1", nullptr, ".qzeros", ".qzer0s"), HasSubstr("'.qzeros'"));
  EXPECT_THAT(said_of("awq", nullptr, ".scales\"", ".scalez\""), HasSubstr("'.scales'"));
  EXPECT_THAT(said_of("gptq-v1", nullptr, "[16,128]", "[128,16]"), HasSubstr("q_proj.g_idx'"));
  EXPECT_THAT(said_of("nvfp4-pack-quantized", nullptr, "global_scale", "gl0bal_scale"),
              HasSubstr("weight_global_scale"));
  EXPECT_THAT(said_of("modelopt-nvfp4", nullptr, "weight_scale_2", "weight_scale_3"),
              HasSubstr("weight_scale_2"));
  EXPECT_THAT(said_of("bnb-nf4", nullptr, "blocksize", "bl0cksize"), HasSubstr("blocksize"));
  EXPECT_THAT(said_of("bnb-nf4-nested", nullptr, "nested_absmax", "nested_abzmax"),
              HasSubstr("nested_absmax"));
}

}  // namespace sluice
