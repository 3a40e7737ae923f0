// Matrices that folders keep packed, from made tensors and configs: values, and what is said of configs that cannot be met.
#include "models/quantized/quantized_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/tensor_store.h"
#include "models/quantized/unpack.h"
#include "tensor/blocks.h"
#include "tensor/float_tables.h"
#include "tests/models/specs.h"

namespace sluice::models {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Tensors of a folder that lie in memory.
class Tensors {
 public:
  template <class T>
  Tensors& add(const std::string& name, DType type, const std::vector<int64_t>& shape,
               const std::vector<T>& values) {
    store_.add(name, TensorView::contiguous(kept(values), type, shape));
    return *this;
  }
  Tensors& add_sides(const std::string& name, const std::vector<int64_t>& sides) {
    const std::vector<int64_t> bytes{static_cast<int64_t>(sides.size()) * 8};
    store_.add(name, TensorView::contiguous(kept(sides), DType::U8, bytes), "I64");
    return *this;
  }
  const formats::TensorStore& store() const { return store_; }

 private:
  template <class T>
  void* kept(const std::vector<T>& values) {
    std::vector<std::byte>& bytes = kept_.emplace_back(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes.data();
  }
  std::deque<std::vector<std::byte>> kept_;
  formats::TensorStore store_;
};

Result<Quantization> read(const std::string& text) {
  const json::value config = json::parse(R"({"quantization_config": )" + text + "}");
  return read_quantization(config.get_object());
}

// Of the module, whatever the order of the columns in memory.
std::vector<float> values_of(const QuantizedMatrix& matrix) {
  const TensorView& view = matrix.tensor.view;
  const auto cols = static_cast<size_t>(view.dim(1));
  std::vector<float> out(static_cast<size_t>(view.elements())), row(cols);
  for (int64_t r = 0; r < view.dim(0); ++r) {
    dequantize_row(view.dtype, view.rows(r, r + 1).data, row.data(), view.dim(1));
    for (size_t k = 0; k < cols; ++k)
      out[static_cast<size_t>(r) * cols +
          (matrix.columns.empty() ? k : static_cast<size_t>(matrix.columns[k]))] = row[k];
  }
  return out;
}

Result<std::vector<float>> values_of(const Tensors& tensors, const Quantization& quantization,
                                     const std::string& stem) {
  Result<std::optional<QuantizedMatrix>> made = read_quantized(tensors.store(), quantization, stem);
  if (!made) return made.error();
  if (!made->has_value()) return std::vector<float>();
  return values_of(**made);
}

// Codes as one stream of bits.
std::vector<uint32_t> packed(const std::vector<int>& codes, int bits) {
  std::vector<uint32_t> words((codes.size() * static_cast<size_t>(bits) + 31) / 32);
  for (size_t i = 0; i < codes.size(); ++i)
    for (int bit = 0; bit < bits; ++bit) {
      const size_t at = i * static_cast<size_t>(bits) + static_cast<size_t>(bit);
      words[at / 32] |= static_cast<uint32_t>(codes[i] >> bit & 1) << at % 32;
    }
  return words;
}

constexpr const char* kPacked =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
  {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 3, "group_size": null, "strategy": "channel"}}}})";

Tensors three_bits(int64_t cols) {
  std::vector<int> codes;
  for (int64_t i = 0; i < cols; ++i) codes.push_back(static_cast<int>(i % 8));
  Tensors tensors;
  const std::vector<uint32_t> words = packed(codes, 3);
  tensors.add("a.weight_packed", DType::I32, {1, static_cast<int64_t>(words.size())}, words)
      .add("a.weight_scale", DType::F32, {1, 1}, std::vector<float>{0.5f});
  return tensors;
}

}  // namespace

TEST(QuantizedMatrix, ReadsFieldsThatLieInTwoWords) {
  Tensors tensors = three_bits(13);  // 39 bits; two words have room for 21 fields
  tensors.add_sides("a.weight_shape", {1, 13});
  const auto config = read(kPacked);
  ASSERT_TRUE(config.ok()) << problem(config);
  const auto values = values_of(tensors, *config, "a");
  ASSERT_TRUE(values.ok()) << problem(values);
  EXPECT_THAT(*values, ElementsAre(-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, -2, -1.5, -1, -0.5, 0));
}

TEST(QuantizedMatrix, SidesMayHave32Bits) {
  Tensors tensors = three_bits(13);
  tensors.add("a.weight_shape", DType::I32, {2}, std::vector<int32_t>{1, 13});
  const auto values = values_of(tensors, *read(kPacked), "a");
  ASSERT_TRUE(values.ok()) << problem(values);
  EXPECT_EQ(values->size(), 13u);
}

TEST(QuantizedMatrix, RefusesSidesThatAreNotThoseOfTheWords) {
  const auto config = read(kPacked);
  ASSERT_TRUE(config.ok());
  for (const std::vector<int64_t>& sides : {std::vector<int64_t>{1, 30}, {2, 13}, {1, 9}, {-1, 13}, {13}}) {
    Tensors tensors = three_bits(13);
    tensors.add_sides("a.weight_shape", sides);
    EXPECT_THAT(problem(values_of(tensors, *config, "a")), HasSubstr("'a.weight_shape'"));
  }
}

// Large enough to be made by several threads, as blocks and, where rows are no whole number of those, as plain values.
TEST(QuantizedMatrix, LargeMatricesHaveEachCodeInItsPlace) {
  const int64_t rows = 2056;
  const auto code = [](int64_t row, int64_t col) { return static_cast<uint32_t>((row * 7 + col * 3) % 16); };
  for (const int64_t cols : {1056, 1048}) {
    std::vector<uint32_t> awq(static_cast<size_t>(cols * rows / 8)), gptq(awq.size());
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < cols; ++k) {
        const int64_t place = n % 2 * 4 + n % 8 / 2;
        awq[static_cast<size_t>(k * rows / 8 + n / 8)] |= code(n, k) << 4 * place;
        gptq[static_cast<size_t>(k / 8 * rows + n)] |= code(n, k) << k % 8 * 4;
      }
    const std::vector<float> scales(static_cast<size_t>(rows), 0.5f);
    for (const char* method : {"awq", "gptq"}) {
      const bool by_columns = std::string(method) == "awq";
      Tensors tensors;
      tensors
          .add("a.qweight", DType::I32,
               by_columns ? std::vector<int64_t>{cols, rows / 8} : std::vector<int64_t>{cols / 8, rows},
               by_columns ? awq : gptq)
          .add("a.scales", DType::F32, {1, rows}, scales);
      if (!by_columns)
        tensors.add("a.qzeros", DType::I32, {1, rows / 8},
                    std::vector<uint32_t>(static_cast<size_t>(rows / 8), 0x77777777));
      const auto config = read(std::string(R"({"quant_method": ")") + method +
                               R"(", "bits": 4, "group_size": -1, "zero_point": false})");
      ASSERT_TRUE(config.ok()) << problem(config);
      const auto values = values_of(tensors, *config, "a");
      ASSERT_TRUE(values.ok()) << problem(values);
      int wrong = 0;
      for (int64_t i = 0; i < rows * cols; ++i)
        wrong +=
            (*values)[static_cast<size_t>(i)] != 0.5f * (static_cast<float>(code(i / cols, i % cols)) - 8);
      EXPECT_EQ(wrong, 0) << method << " of " << cols << " columns";
    }
  }
}

// The same module under other keys than the rest.
TEST(QuantizedMatrix, GptqReadsTheKeysOfOneModule) {
  const auto config =
      read(R"({"quant_method": "gptq", "bits": 4, "group_size": 8, "checkpoint_format": "gptq_v2",
    "dynamic": {"-:.*none.*": {}, "+:.*eight.*": {"bits": 8, "group_size": -1}}})");
  ASSERT_TRUE(config.ok()) << problem(config);
  Tensors tensors;
  for (const auto& [stem, bits, groups] : {std::tuple("m.four", 4, 2), {"m.eight", 8, 1}}) {
    const int64_t words = 16 * bits / 32;
    std::vector<uint32_t> codes;  // one output row, so that words lie one after the other
    std::vector<int> plain;
    for (int i = 0; i < 16; ++i) plain.push_back(i % 16);
    codes = packed(plain, bits);
    const std::vector<uint32_t> zeros(static_cast<size_t>(groups), 1);
    tensors.add(std::string(stem) + ".qweight", DType::I32, {words, 1}, codes)
        .add(std::string(stem) + ".qzeros", DType::I32, {groups, 1}, zeros)
        .add(std::string(stem) + ".scales", DType::F32, {groups, 1},
             std::vector<float>(static_cast<size_t>(groups), 2.0f));
    const auto values = values_of(tensors, *config, stem);
    ASSERT_TRUE(values.ok()) << problem(values);
    EXPECT_EQ(values->front(), -2.0f);
    EXPECT_EQ(values->back(), 28.0f);
  }
}

TEST(QuantizedMatrix, ModulesThatAreLeftOutAreNotQuantised) {
  const auto config = read(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*left.*": {}}})");
  ASSERT_TRUE(config.ok()) << problem(config);
  Tensors tensors;
  tensors.add("m.left.qweight", DType::I32, {1, 1}, std::vector<uint32_t>{0});
  EXPECT_THAT(problem(values_of(tensors, *config, "m.left")), HasSubstr("'m.left' is quantised, but"));
}

TEST(QuantizedMatrix, OrderedColumnsNeedTheirOrder) {
  const std::string ordered =
      std::string(kPacked).replace(std::string(kPacked).find("\"num_bits\""), 0, R"("actorder": "group", )");
  const auto config = read(ordered);
  ASSERT_TRUE(config.ok()) << problem(config);
  Tensors tensors = three_bits(32);
  EXPECT_THAT(problem(values_of(tensors, *config, "a")), HasSubstr("no tensor '.weight_g_idx'"));
  tensors.add("a.weight_g_idx", DType::I32, {32}, std::vector<int32_t>(32, -1));  // never ordered
  EXPECT_EQ(problem(values_of(tensors, *config, "a")), "");
}

// Columns of a group side by side, in blocks; a matrix that no blocks of 32 hold in any order is plain.
TEST(QuantizedMatrix, OrderedColumnsStayInFourBits) {
  const auto config = read(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true,
    "checkpoint_format": "gptq_v2"})");
  ASSERT_TRUE(config.ok()) << problem(config);
  constexpr int kCols = 96;
  for (const bool even : {true, false}) {
    std::vector<int> codes;
    std::vector<int32_t> groups;
    for (int k = 0; k < kCols; ++k) {
      codes.push_back(k % 16);
      groups.push_back(even ? 2 - k % 3 : (k < 40 ? 1 : k < 70 ? 0 : 2));
    }
    Tensors tensors;
    tensors.add("a.qweight", DType::I32, {kCols / 8, 1}, packed(codes, 4))
        .add("a.qzeros", DType::I32, {3, 1}, std::vector<uint32_t>{3, 4, 5})
        .add("a.scales", DType::F32, {3, 1}, std::vector<float>{1.0f, 2.0f, 4.0f})
        .add("a.g_idx", DType::I32, {kCols}, groups);
    const auto made = read_quantized(tensors.store(), *config, "a");
    ASSERT_TRUE(made.ok()) << problem(made);
    EXPECT_EQ((*made)->tensor.view.dtype, even ? DType::Q4_Z : DType::F16);
    EXPECT_EQ((*made)->columns.size(), even ? size_t{kCols} : 0u);
    const std::vector<float> values = values_of(**made);
    for (int k = 0; k < kCols; ++k) {
      const int group = groups[static_cast<size_t>(k)];
      ASSERT_EQ(values[static_cast<size_t>(k)], static_cast<float>((1 << group) * (k % 16 - 3 - group))) << k;
    }
  }
}

// Codes and scales of bitsandbytes as they are stored; a map of another kind, and blocks that are no whole number of ours, are
// plain.
TEST(QuantizedMatrix, FloatTablesStayInFourBits) {
  const auto config = read(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})");
  ASSERT_TRUE(config.ok()) << problem(config);
  struct Case {
    DType type, made;
    int block;
    float first;  // of the map, beside the type's own
  };
  for (const Case& c : {Case{DType::NF4, DType::NF4, 64, 0},
                        {DType::FP4, DType::FP4, 64, 0},
                        {DType::NF4, DType::F16, 16, 0},
                        {DType::FP4, DType::F16, 32, 0.5f}}) {
    std::vector<uint8_t> bytes;
    for (int i = 0; i < 64; ++i) bytes.push_back(static_cast<uint8_t>((2 * i) % 16 << 4 | (2 * i + 1) % 16));
    const std::array<float, 16> table = float_table(c.type);
    std::vector<float> map(table.begin(), table.end()), scales;
    map[0] += c.first;
    for (int i = 0; i < 128 / c.block; ++i) scales.push_back(0.5f + static_cast<float>(i));
    const std::string state = R"({"shape": [2, 64], "blocksize": )" + std::to_string(c.block) + "}";
    const std::string kind = c.type == DType::NF4 ? "nf4" : "fp4";
    Tensors tensors;
    tensors.add("a.weight", DType::U8, {64, 1}, bytes)
        .add("a.weight.quant_map", DType::F32, {16}, map)
        .add("a.weight.absmax", DType::F32, {128 / c.block}, scales)
        .add("a.weight.quant_state.bitsandbytes__" + kind, DType::U8, {static_cast<int64_t>(state.size())},
             std::vector<char>(state.begin(), state.end()));
    const auto made = read_quantized(tensors.store(), *config, "a");
    ASSERT_TRUE(made.ok()) << problem(made);
    EXPECT_EQ((*made)->tensor.view.dtype, c.made);
    if (c.made != DType::F16) {
      EXPECT_EQ((*made)->tensor.view.bytes(), 128 * 18 / 32);
    }
    const std::vector<float> values = values_of(**made);
    for (size_t i = 0; i < 128; ++i)
      EXPECT_NEAR(values[i], map[i % 16] * scales[i / static_cast<size_t>(c.block)], 2e-3f) << i;
  }
}

TEST(QuantizedMatrix, NamesAreCloserThanPatternsAndClasses) {
  const auto config =
      read(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
    "a": {"targets": ["Linear"], "weights": {"num_bits": 2, "strategy": "channel"}},
    "b": {"targets": ["re:model\\.language_model\\..*up_proj"], "weights": {"num_bits": 3, "strategy": "channel"}},
    "c": {"targets": ["model.layers.1.up_proj"], "weights": {"num_bits": 4, "strategy": "channel"}},
    "d": {"targets": ["Embedding"], "weights": {"num_bits": 8, "strategy": "channel"}},
    "e": {"targets": ["lm_head"], "weights": {"num_bits": 5, "strategy": "channel"}},
    "f": {"targets": ["re:.*self_attn$"], "weights": null}}})");
  ASSERT_TRUE(config.ok()) << problem(config);
  ASSERT_EQ(config->groups.size(), 5u);  // what says nothing of weights is none
  const auto bits = [&](std::vector<std::string> names) { return (*config->group_of(names))->bits; };
  EXPECT_EQ(bits({"model.layers.0.q_proj"}), 2);
  EXPECT_EQ(bits({"model.layers.0.up_proj", "model.language_model.layers.0.up_proj"}), 3);
  EXPECT_EQ(bits({"model.layers.1.up_proj", "model.language_model.layers.1.up_proj"}), 4);
  EXPECT_EQ(bits({"model.embed_tokens"}), 8);
  EXPECT_EQ(bits({"lm_head"}), 5);
}

TEST(QuantizedMatrix, TilesHaveTheSizeThatTheConfigSays) {
  HostTensor stored = HostTensor::make(DType::F8_E4M3, {80, 80});
  std::memset(stored.buffer.data(), 0x38, stored.buffer.size());  // 1.0
  HostTensor scales = HostTensor::make(DType::F32, {2, 2});
  for (int i = 0; i < 4; ++i) scales.view.at<float>()[i] = static_cast<float>(i + 1);
  const Result<HostTensor> made =
      unpack_f8(stored.view, scales.view, {64, 64, "weight_block_size is [64, 64]"});
  ASSERT_TRUE(made.ok()) << problem(made);
  std::vector<float> row(80);
  dequantize_row(made->view.dtype, made->view.rows(63, 64).data, row.data(), 80);
  EXPECT_EQ(row[63], 1.0f);
  EXPECT_EQ(row[64], 2.0f);
  EXPECT_THAT(problem(unpack_f8(stored.view, scales.view, {32, 32, "weight_block_size is [32, 32]"})),
              HasSubstr("weight_block_size is [32, 32]"));
  EXPECT_THAT(problem(unpack_f8(stored.view, scales.view, {1, ScaleTile::kWhole, "'strategy' is 'channel'"})),
              HasSubstr("'strategy' is 'channel'"));
  *scales.view.at<float>() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(problem(unpack_f8(stored.view, scales.view)), HasSubstr("scale 0 is nan"));
}

TEST(QuantizedMatrix, Nvfp4OfOddGroupsIsPlain) {
  const auto config = read(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16})");
  ASSERT_TRUE(config.ok()) << problem(config);
  Tensors tensors;
  tensors
      .add("a.weight", DType::U8, {1, 24}, std::vector<uint8_t>(24, 0x72))  // 1, 6, 1, 6 ...
      .add("a.weight_scale", DType::F8_E4M3, {1, 3}, std::vector<uint8_t>{0x38, 0x40, 0x38})
      .add("a.weight_scale_2", DType::F32, {1}, std::vector<float>{0.25f});
  const auto values = values_of(tensors, *config, "a");
  ASSERT_TRUE(values.ok()) << problem(values);
  ASSERT_EQ(values->size(), 48u);
  EXPECT_EQ((*values)[0], 0.25f);
  EXPECT_EQ((*values)[17], 3.0f);
  EXPECT_EQ((*values)[47], 1.5f);
}

TEST(QuantizedMatrix, SaysWhichKeyItCannotMeet) {
  const auto group = [](const std::string& weights) {
    return R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"targets": ["Linear"],
      "weights": {"num_bits": 4, )" +
           weights + "}}}}";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {group(R"("strategy": "diagonal")"), "group 'g': 'strategy' is 'diagonal'"},
      {group(R"("strategy": "block", "block_structure": [2, 2])"), "'strategy' is 'block'"},
      {group(R"("strategy": "channel", "actorder": "spiral")"), "'actorder' is 'spiral'"},
      {group(R"("strategy": "channel", "type": "float")"), "'type' is float, must be int"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}},
        "sparsity_config": {"format": "sparse-24-bitmask"}})",
       "'sparse-24-bitmask'"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}},
        "transform_config": {"config_groups": {"R1": {}}}})",
       "'transform_config'"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {}, "quantization_status": "done"})",
       "'done'"},
      {R"({"quant_method": "gptq", "bits": 4, "pack_dtype": "int16"})", "'pack_dtype' is 'int16'"},
      {R"({"quant_method": "gptq", "bits": 4, "desc_act": 3})", "desc_act"},
      {R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 7}}})", "'dynamic': 'bits' is 7"},
      {R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:(": {}}})", "'dynamic': pattern '('"},
      {R"({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:exllamav2"})",
       "'auto_round:exllamav2'"},
      {R"({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"})", "'data_type' is 'mx_fp'"},
      {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", "'weight_block_size' is [0,128]"},
      {R"({"quant_method": "fp8", "activation_scheme": "sideways"})", "'sideways'"},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "W4A8_AWQ"}}})",
       "'quantized_layers': 'a': 'quant_algo' is 'W4A8_AWQ'"},
      {R"({"quant_method": "hqq"})", "'hqq'"}};
  for (const auto& [text, said] : cases) EXPECT_THAT(problem(read(text)), HasSubstr(said)) << text;
}

}  // namespace sluice::models
