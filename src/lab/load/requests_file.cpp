// Files of requests: ShareGPT's conversations, Mooncake's and Azure's traces.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/system/file.h"
#include "lab/load/workload.h"

namespace sluice::lab {

namespace {

constexpr size_t kRequestsFileBytes = size_t{2} << 30;
constexpr int kCharactersPerToken = 4;  // about, of English

Error bad_line(const std::string& path, size_t line, std::string_view what) {
  return {ErrorCode::Corrupt, fmt::format("{}: line {}: {}", path, line, what)};
}

Result<std::vector<ListedRequest>> read_conversations(std::string_view text, const std::string& path) {
  Result<json::value> value = parse_json(text, path, {.bytes = kRequestsFileBytes});
  if (!value) return value.error();
  if (!value->is_array()) return Error{ErrorCode::Corrupt, path + ": not a list of conversations"};
  std::vector<ListedRequest> out;
  for (const json::value& entry : value->as_array()) {
    const json::value* turns = entry.is_object() ? entry.as_object().if_contains("conversations") : nullptr;
    if (turns == nullptr || !turns->is_array() || turns->as_array().size() < 2) continue;
    const auto said = [&](size_t i) -> std::string {
      const json::value& turn = turns->as_array()[i];
      const json::value* text_value = turn.is_object() ? turn.as_object().if_contains("value") : nullptr;
      return text_value != nullptr && text_value->is_string() ? std::string(text_value->as_string()) : "";
    };
    const std::string prompt = said(0), answer = said(1);
    if (prompt.empty() || answer.empty()) continue;
    const auto tokens = [](const std::string& part) {
      return static_cast<int>(std::min<size_t>(part.size() / kCharactersPerToken + 1, 1 << 20));
    };
    out.push_back({.input = tokens(prompt), .output = tokens(answer), .text = prompt});
  }
  return out;
}

Result<ListedRequest> read_mooncake(std::string_view line, const std::string& path, size_t number) {
  Result<json::value> value = parse_json(line, path);
  if (!value) return bad_line(path, number, value.error().message);
  if (!value->is_object()) return bad_line(path, number, "not an object");
  const json::object& object = value->as_object();
  const Result<std::optional<double>> at = get_number(object, "timestamp");
  const Result<std::optional<int64_t>> input = get_int(object, "input_length"),
                                       output = get_int(object, "output_length");
  const bool good = at && input && output && *at && *input && *output && **input > 0 && **output > 0 &&
                    **input < 1 << 24 && **output < 1 << 24;
  if (!good) return bad_line(path, number, "needs timestamp, input_length and output_length above 0");
  ListedRequest out{
      .at = **at / 1e3, .input = static_cast<int>(**input), .output = static_cast<int>(**output)};
  if (const json::value* ids = object.if_contains("hash_ids"); ids != nullptr && ids->is_array())
    for (const json::value& id : ids->as_array())
      if (id.is_int64()) out.blocks.push_back(static_cast<uint64_t>(id.as_int64()));
  return out;
}

// "2023-11-16 18:17:03.9799600" as seconds of its month.
std::optional<double> seconds_of(std::string_view stamp) {
  int day = 0, hour = 0, minute = 0;
  double second = 0;
  if (stamp.size() < 19) return std::nullopt;
  const auto read = [&](size_t from, size_t count, auto& out) {
    const auto [stop, problem] = std::from_chars(stamp.data() + from, stamp.data() + from + count, out);
    return problem == std::errc();
  };
  if (!read(8, 2, day) || !read(11, 2, hour) || !read(14, 2, minute) || !read(17, stamp.size() - 17, second))
    return std::nullopt;
  return day * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
}

Result<ListedRequest> read_azure(std::string_view line, const std::string& path, size_t number) {
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == line.npos || second == line.npos) return bad_line(path, number, "needs three columns");
  const std::optional<double> at = seconds_of(line.substr(0, first));
  int input = 0, output = 0;
  std::from_chars(line.data() + first + 1, line.data() + second, input);
  std::from_chars(line.data() + second + 1, line.data() + line.size(), output);
  if (!at || input <= 0 || output <= 0)
    return bad_line(path, number, "needs a time and two numbers of tokens above 0");
  return ListedRequest{.at = *at, .input = input, .output = output};
}

}  // namespace

Result<std::vector<ListedRequest>> read_requests_file(const std::string& path) {
  Result<std::string> text = read_regular_file(path, kRequestsFileBytes);
  if (!text) return text.error();
  const size_t begin = text->find_first_not_of(" \t\r\n");
  if (begin == text->npos) return Error{ErrorCode::Corrupt, path + ": is empty"};
  std::vector<ListedRequest> out;
  if ((*text)[begin] == '[') {
    Result<std::vector<ListedRequest>> read = read_conversations(*text, path);
    if (!read) return read.error();
    out = std::move(*read);
  } else {
    const bool mooncake = (*text)[begin] == '{';
    std::string_view rest = *text;
    for (size_t number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() || (!mooncake && number == 1)) continue;  // the header of a table
      Result<ListedRequest> row =
          mooncake ? read_mooncake(line, path, number) : read_azure(line, path, number);
      if (!row) return row.error();
      out.push_back(std::move(*row));
    }
  }
  if (out.empty()) return Error{ErrorCode::Corrupt, path + ": holds no requests"};
  double start = out.front().at;
  for (const ListedRequest& row : out) start = std::min(start, row.at);
  for (ListedRequest& row : out) row.at -= start;
  std::stable_sort(out.begin(), out.end(),
                   [](const ListedRequest& a, const ListedRequest& b) { return a.at < b.at; });
  return out;
}

}  // namespace sluice::lab
