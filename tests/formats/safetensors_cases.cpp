#include "tests/formats/safetensors_cases.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice::formats {

namespace {

using std::string;

string prefix(uint64_t length) {
  string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

// The same header, with and without data of the length it describes.
Case header_case(string name, const string& header, std::vector<string> says) {
  return {std::move(name), safetensors_file(header, ""), std::move(says)};
}

// One tensor 't' with these fields, and 16 bytes of data.
Case entry_case(string name, const string& fields, std::vector<string> says) {
  return {std::move(name), safetensors_file(R"({"t":{)" + fields + "}}", string(16, '\1')), std::move(says)};
}

string entry(std::string_view name, uint64_t begin, uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, end - begin, begin,
                     end);
}

}  // namespace

string safetensors_file(std::string_view header, std::string_view data) {
  return prefix(header.size()).append(header).append(data);
}

string rich_safetensors() {
  return safetensors_file(R"({"__metadata__":{"format":"pt","note":"\u00e9"},)"
                          R"("a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                          R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
                          R"("none":{"dtype":"F16","shape":[0,5],"data_offsets":[16,16]},)"
                          R"("ids":{"dtype":"I64","shape":[2],"data_offsets":[16,32]},)"
                          R"("nibbles":{"dtype":"F4","shape":[4],"data_offsets":[32,34]},)"
                          R"("deep":{"dtype":"U8","shape":[1,1,1,1,3],"data_offsets":[34,37]}}   )",
                          string(37, '\7'));
}

std::vector<Case> safetensors_prefix_cases() {
  const string file = safetensors_file("{}", "");
  return {
      {"prefix_smallest", file, {}},
      {"prefix_empty", "", {"is 0 bytes", "needs at least 8", "download incomplete"}},
      {"prefix_short", file.substr(0, 7), {"is 7 bytes", "needs at least 8", "download incomplete"}},
      {"prefix_zero", prefix(0), {"header begins with '', must be '{'"}},
      {"prefix_over_limit", prefix(100'000'001) + "{}", {"header length is 100000001, limit 100000000"}},
      {"prefix_huge",
       prefix(~uint64_t{0}) + "{}",
       {"header length is 18446744073709551615, limit 100000000"}},
      {"prefix_over_file", prefix(3) + "{}", {"is 10 bytes, its header needs 11", "download incomplete"}},
  };
}

std::vector<Case> safetensors_header_cases() {
  const string long_name(1025, 'n');
  return {
      header_case("header_padded", "{}      ", {}),
      header_case("header_metadata", R"({"__metadata__":{"a":"b"}})", {}),
      {"header_rich", rich_safetensors(), {}},
      header_case("header_leading_space", " {}", {"header begins with ' ', must be '{'"}),
      header_case("header_array", "[]", {"header begins with '[', must be '{'"}),
      header_case("header_newline", "{}\n", {"header ends with '\\x0a', must be '}' and spaces"}),
      header_case("header_nul_padded", string("{}\0", 3), {"header ends with '\\x00'"}),
      header_case("header_two_objects", "{}{}", {"invalid JSON at byte 2"}),
      header_case("header_unclosed", R"({"a":{})", {"invalid JSON"}),
      header_case("header_not_utf8", "{\"\xff\":1}", {"invalid JSON"}),
      header_case("header_overlong_utf8", "{\"\xc0\x80\":1}", {"invalid JSON"}),
      header_case("header_deep", R"({"a":[[[[[[[[[[1]]]]]]]]]]})", {"invalid JSON"}),
      header_case("header_nan", R"({"a":NaN})", {"invalid JSON"}),
      header_case("header_duplicate_tensor", "{" + entry("a", 0, 0) + "," + entry("a", 0, 0) + "}",
                  {"duplicate key 'a'"}),
      header_case("header_duplicate_field",
                  R"({"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                  {"duplicate key 'dtype'"}),
      header_case("metadata_list", R"({"__metadata__":["a"]})",
                  {"__metadata__ is '[\"a\"]', must be an object"}),
      header_case("metadata_number", R"({"__metadata__":{"a":1}})",
                  {"__metadata__ 'a' is '1', must be a string"}),
      header_case("metadata_nested", R"({"__metadata__":{"a":{}}})",
                  {"__metadata__ 'a' is '{}', must be a string"}),
      header_case("name_empty", "{" + entry("", 0, 0) + "}", {"tensor name ''", "1 to 1024 bytes"}),
      header_case("name_long", "{" + entry(long_name, 0, 0) + "}", {"(1025 bytes)", "1 to 1024 bytes"}),
      header_case("name_at_limit", "{" + entry(long_name.substr(1), 0, 0) + "}", {}),
      header_case("name_control", "{" + entry("a\\u001bb", 0, 0) + "}",
                  {"'a\\x1bb'", "no control characters"}),
  };
}

std::vector<Case> safetensors_entry_cases() {
  const string type = R"("dtype":"F32",)";
  const string shape = R"("shape":[4],)";
  const string place = R"("data_offsets":[0,16])";
  return {
      entry_case("entry_valid", type + shape + place, {}),
      entry_case("entry_unknown_field", type + shape + place + R"(,"extra":1)", {}),
      header_case("entry_not_object", R"({"t":1})", {"tensor 't': is '1', must be an object"}),
      entry_case("dtype_missing", shape + place, {"tensor 't': dtype is missing, must be a string"}),
      entry_case("dtype_number", R"("dtype":5,)" + shape + place, {"dtype is '5', must be a string"}),
      entry_case("dtype_unknown", R"("dtype":"F31",)" + shape + place,
                 {"dtype 'F31' is not a type of the format"}),
      entry_case("dtype_lower_case", R"("dtype":"f32",)" + shape + place, {"dtype 'f32' is not"}),
      entry_case("shape_missing", type + place, {"tensor 't': shape is missing, must be an array"}),
      entry_case("shape_object", type + R"("shape":{},)" + place, {"shape is '{}', must be an array"}),
      entry_case("shape_negative", type + R"("shape":[-4],)" + place, {"shape has '-4'", "0 to 2^63 - 1"}),
      entry_case("shape_float", type + R"("shape":[4.0],)" + place,
                 {"shape has '4", "must be a whole number"}),
      entry_case("shape_exponent", type + R"("shape":[4e0],)" + place,
                 {"shape has '4", "must be a whole number"}),
      entry_case("shape_text", type + R"("shape":["4"],)" + place,
                 {"shape has '\"4\"'", "must be a whole number"}),
      entry_case("shape_2_to_63", type + R"("shape":[9223372036854775808],)" + place,
                 {"shape has '9223372036854775808'", "0 to 2^63 - 1"}),
      entry_case("shape_overflow", type + R"("shape":[4294967296,4294967296],)" + place,
                 {"shape [4294967296, 4294967296] of F32 overflows, limit 2^63"}),
      entry_case("shape_overflow_hidden_by_zero", type + R"("shape":[0,4294967296,4294967296],)" + place,
                 {"overflows, limit 2^63"}),
      entry_case("shape_bits_overflow", type + R"("shape":[9223372036854775807],)" + place,
                 {"overflows", "2^64 bits"}),
      entry_case("shape_of_rank_33",
                 type + R"("shape":[1)" +
                     [] {
                       string more;
                       for (int i = 0; i < 32; ++i) more += ",1";
                       return more;
                     }() +
                     "]," + place,
                 {"shape has 33 dimensions, limit 32"}),
      entry_case("shape_part_of_a_byte", R"("dtype":"F4","shape":[33],)" + place,
                 {"shape [33] of F4 is 132 bits, must be whole bytes"}),
      entry_case("offsets_missing", type + R"("shape":[4])", {"data_offsets is missing, must be an array"}),
      entry_case("offsets_one", type + shape + R"("data_offsets":[0])",
                 {"data_offsets is [0], must be [begin, end]"}),
      entry_case("offsets_three", type + shape + R"("data_offsets":[0,16,32])",
                 {"data_offsets is [0, 16, 32]"}),
      entry_case("offsets_backward", type + shape + R"("data_offsets":[16,0])",
                 {"data_offsets is [16, 0]", "begin <= end"}),
      entry_case("offsets_negative", type + shape + R"("data_offsets":[-16,0])", {"data_offsets has '-16'"}),
      entry_case("offsets_float", type + shape + R"("data_offsets":[0,16.0])",
                 {"data_offsets has '1.6", "whole"}),
      entry_case("size_too_small", type + R"("shape":[5],)" + place,
                 {"data_offsets [0, 16] span 16 bytes, shape [5] of F32 needs 20"}),
      entry_case("size_too_large", type + R"("shape":[3],)" + place,
                 {"data_offsets [0, 16] span 16 bytes, shape [3] of F32 needs 12"}),
      entry_case("size_of_unsupported", R"("dtype":"I64","shape":[3],)" + place,
                 {"shape [3] of I64 needs 24"}),
  };
}

std::vector<Case> safetensors_layout_cases() {
  const auto layout_case = [](string name, const string& entries, size_t bytes, std::vector<string> says) {
    return Case{std::move(name), safetensors_file("{" + entries + "}", string(bytes, '\1')), std::move(says)};
  };
  return {
      layout_case("layout_any_order", entry("b", 4, 6) + "," + entry("a", 0, 4), 6, {}),
      layout_case("layout_empty_tensors", entry("a", 0, 0) + "," + entry("b", 0, 4) + "," + entry("c", 4, 4),
                  4, {}),
      layout_case("layout_late_start", entry("a", 1, 4), 4,
                  {"'a' begins at data byte 1, must begin at 0", "hole"}),
      layout_case("layout_hole", entry("a", 0, 4) + "," + entry("b", 5, 6), 6,
                  {"'b' begins at data byte 5, must begin at 4", "hole"}),
      layout_case("layout_overlap", entry("a", 0, 4) + "," + entry("b", 3, 6), 6,
                  {"'b' begins at data byte 3, must begin at 4", "overlaps"}),
      layout_case("layout_same_place", entry("a", 0, 4) + "," + entry("b", 0, 4), 4,
                  {"'b' begins at data byte 0, must begin at 4", "overlaps"}),
      layout_case("layout_data_missing", entry("a", 0, 4), 3,
                  {"has 3 bytes of tensor data, its header describes 4", "download incomplete"}),
      layout_case("layout_data_left_over", entry("a", 0, 4), 5,
                  {"has 5 bytes of tensor data, its header describes 4"}),
      layout_case("layout_data_without_tensors", "", 1,
                  {"has 1 bytes of tensor data, its header describes 0"}),
  };
}

std::vector<Case> safetensors_index_cases() {
  const auto shard_case = [](string name, const string& shard, std::vector<string> says) {
    return Case{std::move(name), R"({"metadata":{"total_size":1},"weight_map":{"a":)" + shard + "}}",
                std::move(says)};
  };
  const string rule = "must be the name of a .safetensors file without a folder";
  return {
      shard_case("index_valid", R"("m-00001-of-00002.safetensors")", {}),
      shard_case("index_parent", R"("../m.safetensors")", {"weight_map 'a' is '\"../m.safetensors\"'", rule}),
      shard_case("index_absolute", R"("/etc/m.safetensors")", {rule}),
      shard_case("index_folder", R"("x/m.safetensors")", {rule}),
      shard_case("index_backslash", R"("x\\m.safetensors")", {rule}),
      shard_case("index_other_extension", R"("m.bin")", {rule}),
      shard_case("index_only_extension", R"(".safetensors")", {rule}),
      shard_case("index_empty_name", R"("")", {rule}),
      shard_case("index_nul", R"("m\u0000.safetensors")", {rule}),
      shard_case("index_long_name", "\"" + string(250, 'm') + ".safetensors\"", {rule}),
      shard_case("index_number", "1", {"weight_map 'a' is '1'", rule}),
      shard_case("index_twice", R"("m.safetensors","a":"n.safetensors")", {"duplicate key 'a'"}),
      {"index_missing", R"({"metadata":{}})", {"weight_map is missing, must be an object"}},
      {"index_list", R"({"weight_map":[]})", {"weight_map is '[]', must be an object"}},
      {"index_empty", R"({"weight_map":{}})", {"with at least one tensor"}},
      {"index_not_object", "[]", {"weight_map is missing"}},
      {"index_not_json", "weight_map", {"invalid JSON"}},
  };
}

}  // namespace sluice::formats
