#include "tests/formats/gguf_cases.h"

namespace sluice::formats {

namespace {

using std::string;

constexpr uint64_t kHuge = ~uint64_t{0};
constexpr int64_t kAlmost2To63 = 0x7fffffffffffffc0;

// A valid file whose header fields `change` may set.
Case header_case(string name, void (*change)(GgufWriter&), std::vector<string> says) {
  GgufWriter writer;
  writer.text("general.architecture", "llama").tensor("x", {4}, ggml_type::F32, 16);
  change(writer);
  return {std::move(name), writer.finish(), std::move(says)};
}

// A valid pair, then these bytes as another.
Case pair_case(string name, string pair, std::vector<string> says) {
  GgufWriter writer;
  writer.text("general.architecture", "llama").raw_pair(pair);
  return {std::move(name), writer.finish(), std::move(says)};
}

Case value_case(string name, uint32_t type, string value, std::vector<string> says) {
  return pair_case(std::move(name), raw_string("a.key") + raw(type) + value, std::move(says));
}

Case alignment_case(string name, uint32_t alignment, std::vector<string> says) {
  GgufWriter writer;
  writer.number("general.alignment", alignment);
  return {std::move(name), writer.finish(), std::move(says)};
}

struct OneTensor {
  std::vector<int64_t> extents{4};
  uint32_t type = ggml_type::F32;
  uint64_t offset = 0;
};

Case tensor_case(string name, const OneTensor& tensor, std::vector<string> says) {
  GgufWriter writer;
  writer.tensor_at(tensor.offset, "blk.0.x", tensor.extents, tensor.type, 16);
  return {std::move(name), writer.finish(), std::move(says)};
}

// The bytes of a description, with more than enough after them.
Case raw_tensor_case(string name, string description, std::vector<string> says) {
  GgufWriter writer;
  writer.raw_tensor(description);
  return {std::move(name), writer.finish() + string(128, '\0'), std::move(says)};
}

// A file that says `said` for its alignment, or nothing where that is 0, and keeps to `kept`.
string aligned_file(uint32_t said, uint64_t kept) {
  GgufWriter writer;
  writer.alignment = kept;
  if (said != 0) writer.number("general.alignment", said);
  writer.tensor("x", {4}, ggml_type::F32, 16).tensor("y", {4}, ggml_type::F32, 16);
  return writer.finish();
}

}  // namespace

GgufWriter rich_gguf() {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.pair("u8", gguf_type::U8, raw<uint8_t>(255)).pair("i8", gguf_type::I8, raw<int8_t>(-128));
  writer.pair("u16", gguf_type::U16, raw<uint16_t>(65535)).pair("i16", gguf_type::I16, raw<int16_t>(-32768));
  writer.number("u32", 4294967295u).pair("i32", gguf_type::I32, raw<int32_t>(-5));
  writer.pair("u64", gguf_type::U64, raw<uint64_t>(7)).pair("i64", gguf_type::I64, raw<int64_t>(-7));
  writer.pair("u64.large", gguf_type::U64, raw(kHuge));
  writer.pair("f32", gguf_type::F32, raw(1.5f)).pair("f64", gguf_type::F64, raw(-2.25));
  writer.pair("yes", gguf_type::Bool, raw<uint8_t>(1)).pair("no", gguf_type::Bool, raw<uint8_t>(0));
  writer.array("strings", gguf_type::String, 3, raw_string("a") + raw_string("") + raw_string("\xff\x01"));
  writer.array("ints", gguf_type::I32, 2, raw<int32_t>(-1) + raw<int32_t>(2));
  writer.array("bools", gguf_type::Bool, 2, string("\0\1", 2));
  writer.array("floats", gguf_type::F32, 2, raw(0.5f) + raw(-0.5f));
  writer.array("nothing", gguf_type::String, 0, "");
  writer.tensor("plain.weight", {3, 2}, ggml_type::F32, 24);
  writer.tensor("block.weight", {64, 2}, ggml_type::Q8_0, 136);
  writer.tensor("odd.weight", {256}, ggml_type::Q1_0, 36);
  return writer;
}

std::vector<Case> gguf_header_cases() {
  return {
      header_case("header_success", [](GgufWriter&) {}, {}),
      header_case("header_version_2", [](GgufWriter& file) { file.version = 2; }, {}),
      {"header_empty", GgufWriter().finish(), {}},
      header_case("header_bad_magic", [](GgufWriter& file) { file.magic = "GGUX"; },
                  {"magic is 'GGUX'", "must be 'GGUF'"}),
      header_case("header_older_magic", [](GgufWriter& file) { file.magic = "tjgg"; },
                  {"magic is 'tjgg'", "before GGUF"}),
      header_case("header_swapped_magic", [](GgufWriter& file) { file.magic = "FUGG"; },
                  {"'FUGG'", "big-endian"}),
      header_case("header_zip", [](GgufWriter& file) { file.magic = "PK\x03\x04"; },
                  {"'PK\\x03\\x04'", "pickle"}),
      header_case("header_version_0", [](GgufWriter& file) { file.version = 0; },
                  {"version is 0, must be 2 or 3"}),
      header_case("header_version_1", [](GgufWriter& file) { file.version = 1; },
                  {"version is 1, must be 2 or 3"}),
      header_case("header_version_future", [](GgufWriter& file) { file.version = 4; },
                  {"version is 4, must be 2 or 3"}),
      header_case("header_version_swapped", [](GgufWriter& file) { file.version = 0x03000000; },
                  {"version is 50331648", "3 with its bytes swapped", "big-endian"}),
      header_case("header_bad_n_tensors", [](GgufWriter& file) { file.tensor_count = kHuge; },
                  {"number of tensors is 18446744073709551615, limit"}),
      header_case("header_n_tensors_one_more", [](GgufWriter& file) { file.tensor_count = 2; },
                  {"name of tensor 1 has 0 bytes", "1 to 63"}),
      header_case("header_bad_n_kv", [](GgufWriter& file) { file.pair_count = kHuge; },
                  {"number of keys is 18446744073709551615, limit"}),
      header_case("header_n_kv_over_file", [](GgufWriter& file) { file.pair_count = 1000; },
                  {"number of keys is 1000, limit 9 in a file of 160 bytes"}),
  };
}

std::vector<Case> gguf_pair_cases() {
  const string any = raw(gguf_type::U8) + string(1, '\0');
  std::vector<Case> cases = {
      {"kv_success", rich_gguf().finish(), {}},
      pair_case("kv_bad_key_size", raw(kHuge) + "k" + any,
                {"key 1 has 18446744073709551615 bytes", "1 to 65535"}),
      pair_case("kv_key_over_limit", raw_string(string(65536, 'k')) + any,
                {"key 1 has 65536 bytes", "1 to 65535"}),
      pair_case("kv_key_at_limit", raw_string(string(65535, 'k')) + any, {}),
      pair_case("kv_key_past_end", raw<uint64_t>(500) + "k" + any,
                {"key 1 needs 500 bytes", "download incomplete"}),
      pair_case("kv_empty_key", raw_string("") + any, {"key 1 has 0 bytes", "1 to 65535"}),
      pair_case("kv_key_controls", raw_string("a\x1b[2J") + any,
                {"key 1 is 'a\\x1b[2J'", "without control characters"}),
      pair_case("kv_key_not_utf8", raw_string("a\xc0\x80") + any, {"'a\\xc0\\x80'", "must be UTF-8"}),
      value_case("kv_bad_type", 13, string(8, '\0'), {"type of key 'a.key' is 13, must be 0 to 12"}),
      value_case("kv_bad_type_negative", ~0u, string(8, '\0'),
                 {"type of key 'a.key' is 4294967295, must be 0 to 12"}),
      pair_case("kv_duplicate_key", raw_string("general.architecture") + any,
                {"'general.architecture' is there twice"}),
      value_case("kv_bad_bool", gguf_type::Bool, "\2", {"value of key 'a.key' is 2, a bool must be 0 or 1"}),
      value_case("kv_bad_value_size", gguf_type::String, raw(kHuge) + "abc",
                 {"a string of key 'a.key' has 18446744073709551615 bytes, limit 67108864"}),
      value_case("kv_value_past_end", gguf_type::String, raw<uint64_t>(4) + "abc",
                 {"a string of key 'a.key' needs 4 bytes", "download incomplete"}),
      value_case("kv_value_cut", gguf_type::U64, "abc",
                 {"value of key 'a.key' needs 8 bytes", "download incomplete"}),
  };
  const auto array_case = [&](string name, uint32_t element, uint64_t count, const string& elements,
                              std::vector<string> says) {
    cases.push_back(
        value_case(std::move(name), gguf_type::Array, raw(element) + raw(count) + elements, std::move(says)));
  };
  array_case("kv_array_bad_type", 13, 1, string(8, '\0'),
             {"element type of key 'a.key' is 13, must be 0 to 12"});
  array_case("kv_array_nested", gguf_type::Array, 1, string(16, '\0'), {"'a.key' is an array of arrays"});
  array_case("kv_array_huge", gguf_type::U32, kHuge, string(16, '\0'),
             {"key 'a.key' has 18446744073709551615 elements, limit 4 in the 16 bytes"});
  array_case("kv_array_product_wraps", gguf_type::U64, uint64_t{1} << 61, string(16, '\0'),
             {"has 2305843009213693952 elements, limit 2"});
  array_case("kv_array_strings_cut", gguf_type::String, 2, raw_string("abcdefgh") + raw<uint64_t>(9),
             {"a string of key 'a.key' needs 9 bytes"});
  array_case("kv_array_bad_bool", gguf_type::Bool, 1, "\3",
             {"'a.key' has the element 3, a bool must be 0 or 1"});
  array_case("kv_array_u64_large", gguf_type::U64, 1, raw(kHuge),
             {"'a.key' has the element 18446744073709551615, limit 2^63 - 1"});
  for (const uint32_t bad : {0u, 4u, 13u, 48u, 131072u, 0x80000000u}) {
    cases.push_back(alignment_case("kv_bad_align_" + std::to_string(bad), bad,
                                   {"value of key 'general.alignment' is " + std::to_string(bad),
                                    "must be a power of two from 8 to 65536"}));
  }
  cases.push_back(alignment_case("kv_align_64", 64, {}));
  GgufWriter wide;
  wide.pair("general.alignment", gguf_type::U64, raw<uint64_t>(32));
  cases.push_back(
      {"kv_wrong_type_align", wide.finish(), {"type of key 'general.alignment' is 10, must be 4 (u32)"}});
  GgufWriter text;
  text.text("general.alignment", "32");
  cases.push_back(
      {"kv_text_align", text.finish(), {"type of key 'general.alignment' is 8, must be 4 (u32)"}});
  return cases;
}

std::vector<Case> gguf_tensor_cases() {
  const string rest = raw<uint32_t>(1) + raw<int64_t>(4) + raw<uint32_t>(0) + raw<uint64_t>(0);
  constexpr int64_t k2To31 = int64_t{1} << 31;
  std::vector<Case> cases = {
      tensor_case("tensors_success", {}, {}),
      tensor_case("tensors_scalar", {.extents = {}}, {}),
      tensor_case("tensors_unsupported_size_checked", {.extents = {256}, .type = ggml_type::Q1_0},
                  {"is 96 bytes, its 1 tensors need 100"}),
      raw_tensor_case("tensors_bad_name_size", raw(kHuge) + "x" + rest,
                      {"name of tensor 0 has 18446744073709551615 bytes", "1 to 63"}),
      raw_tensor_case("tensors_name_64", raw_string(string(64, 'n')) + rest,
                      {"name of tensor 0 has 64 bytes", "1 to 63"}),
      raw_tensor_case("tensors_name_63", raw_string(string(63, 'n')) + rest, {}),
      raw_tensor_case("tensors_name_empty", raw_string("") + rest,
                      {"name of tensor 0 has 0 bytes", "1 to 63"}),
      raw_tensor_case("tensors_name_controls", raw_string("a\nb") + rest,
                      {"'a\\x0ab'", "without control characters"}),
      tensor_case("tensors_bad_n_dims", {.extents = {1, 1, 1, 1, 1}},
                  {"tensor 'blk.0.x' has 5 dimensions, limit 4"}),
      raw_tensor_case("tensors_n_dims_negative", raw_string("x") + raw(~0u) + rest,
                      {"tensor 'x' has 4294967295 dimensions, limit 4"}),
      tensor_case("tensors_bad_shape", {.extents = {4, -1}},
                  {"dimension 1 of tensor 'blk.0.x' is -1, must be 1 to 2^63 - 1"}),
      tensor_case("tensors_zero_dim", {.extents = {4, 0}},
                  {"dimension 1 of tensor 'blk.0.x' is 0, must be 1 to 2^63 - 1"}),
      tensor_case(
          "tensors_ne_too_big", {.extents = {k2To31, k2To31, 2, 1}},
          {"shape [1, 2, 2147483648, 2147483648] of tensor 'blk.0.x' overflows, limit 2^63 - 1 elements"}),
      tensor_case(
          "tensors_nbytes_too_big", {.extents = {kAlmost2To63}},
          {"shape [9223372036854775744] of tensor 'blk.0.x' in type F32 overflows, limit 2^64 - 1 bytes"}),
      tensor_case("tensors_bad_type", {.type = 42}, {"type of tensor 'blk.0.x' is 42", "0 to 41"}),
      tensor_case("tensors_type_negative", {.type = ~0u},
                  {"type of tensor 'blk.0.x' is 4294967295", "0 to 41"}),
      tensor_case("tensors_type_withdrawn", {.type = 4}, {"type of tensor 'blk.0.x' is 4,"}),
      tensor_case("tensors_part_of_a_block", {.extents = {48}, .type = ggml_type::Q8_0},
                  {"rows of tensor 'blk.0.x' have 48 elements, must be a multiple of 32 for type Q8_0"}),
      tensor_case("tensors_block_scalar", {.extents = {}, .type = ggml_type::Q8_0},
                  {"have 1 elements", "multiple of 32"}),
      tensor_case("tensors_bad_offset", {.offset = 32},
                  {"offset of tensor 'blk.0.x' is 32, must be 0 (alignment 32)"}),
      tensor_case("tensors_offset_huge", {.offset = kHuge},
                  {"offset of tensor 'blk.0.x' is 18446744073709551615, must be 0"}),
      {"tensors_custom_align", aligned_file(64, 64), {}},
      {"tensors_bad_align", aligned_file(0, 16), {"offset of tensor 'y' is 16, must be 32 (alignment 32)"}},
      {"tensors_inconsistent_align",
       aligned_file(64, 32),
       {"offset of tensor 'y' is 32, must be 64 (alignment 64)"}},
  };
  GgufWriter twice;
  twice.tensor("x", {4}, ggml_type::F32, 16).tensor("x", {4}, ggml_type::F32, 16);
  cases.push_back({"tensors_duplicate_name", twice.finish(), {"tensor 'x' is there twice"}});
  GgufWriter overlap;
  overlap.tensor("x", {4}, ggml_type::F32, 16).tensor_at(0, "y", {4}, ggml_type::F32, 16);
  cases.push_back({"tensors_overlap", overlap.finish(), {"offset of tensor 'y' is 0, must be 32"}});
  return cases;
}

std::vector<Case> gguf_data_cases() {
  GgufWriter unpadded;
  unpadded.pad_last = false;
  unpadded.tensor("x", {5}, ggml_type::F32, 20);
  const string whole = unpadded.finish();
  const string needed = std::to_string(whole.size());
  // Two tensors whose sizes add up to almost 2^64, and a third that wraps the sum.
  GgufWriter wrapping;
  wrapping.text("general.name", "a header of more than 128 bytes: the data begins further on");
  wrapping.tensor_at(0, "x", {kAlmost2To63}, ggml_type::I8, 0)
      .tensor_at(kAlmost2To63, "y", {kAlmost2To63}, ggml_type::I8, 0);
  const string almost = wrapping.finish() + string(128, '\0');
  wrapping.tensor_at(uint64_t{kAlmost2To63} * 2, "z", {kAlmost2To63}, ggml_type::I8, 0);
  return {
      {"data_success", whole, {}},
      {"data_more_than_needed", whole + "trailing", {}},
      {"data_not_enough",
       whole.substr(0, whole.size() - 1),
       {"is " + std::to_string(whole.size() - 1) + " bytes, its 1 tensors need " + needed,
        "download incomplete"}},
      {"data_none", unpadded.header(), {"its 1 tensors need " + needed, "download incomplete"}},
      {"data_mem_size_overflow",
       wrapping.finish() + string(128, '\0'),
       {"tensor 'z' of 9223372036854775744 bytes at offset 18446744073709551488 overflows, limit 2^64 - 1"}},
      {"data_over_file", almost, {"its 2 tensors need over 2^64", "download incomplete"}},
  };
}

}  // namespace sluice::formats
