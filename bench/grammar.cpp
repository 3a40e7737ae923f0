// What constraints cost and what they let pass: bench_grammar MODEL SCHEMAS [EVERY [closed]]
// MODEL is anything that has a tokenizer, or `bytes` for a vocabulary of single bytes, with which the counts are fast.
// SCHEMAS is a file like tests/grammar/data/schemas.json, or a folder of JSONSchemaBench (guidance-ai/jsonschemabench,
// maskbench/data), of which every EVERYth file is read. `closed`: objects are closed and types assumed, as the API does
// it. For each schema: the time from its text to the first mask, and of each mask while its values are written token by
// token. Processor time of one thread, so that other programs disturb it less. A line for each schema that is refused, each
// valid value that is refused and each invalid one that is taken.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/system/file.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace sluice;

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double at(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

void show(const char* what, std::vector<double>& list) {
  std::sort(list.begin(), list.end());
  double sum = 0;
  for (const double one : list) sum += one;
  fmt::print("{:<20} {:>7} times, mean {:8.1f} us, p50 {:8.1f}, p90 {:8.1f}, p99 {:8.1f}, most {:8.1f}\n",
             what, list.size(), 1e6 * sum / static_cast<double>(std::max<size_t>(1, list.size())),
             1e6 * at(list, 0.5), 1e6 * at(list, 0.9), 1e6 * at(list, 0.99),
             list.empty() ? 0 : 1e6 * list.back());
}

// The text of a value as it was sent: 1.0 stays 1.0, which draft 4 does not take for an integer.
std::string text_of(const json::value& value) {
  std::string out;
  if (const json::array* array = value.if_array()) {
    for (const json::value& one : *array) out += (out.empty() ? "" : ",") + text_of(one);
    return "[" + out + "]";
  }
  if (const json::object* object = value.if_object()) {
    for (const auto& member : *object)
      out += (out.empty() ? "" : ",") + write_json(json::value(member.key())) + ":" + text_of(member.value());
    return "{" + out + "}";
  }
  out = write_json(value);
  return value.is_double() && out.find_first_of(".en") == std::string::npos ? out + ".0" : out;
}

// Every `properties` of a schema.
void collect_properties(const json::value& schema, std::vector<const json::object*>& found) {
  if (const json::array* array = schema.if_array()) {
    for (const json::value& one : *array) collect_properties(one, found);
  }
  const json::object* object = schema.if_object();
  if (object == nullptr) return;
  const json::value* properties = object->if_contains("properties");
  if (properties != nullptr && properties->is_object()) found.push_back(&properties->get_object());
  for (const auto& member : *object) collect_properties(member.value(), found);
}

// The value with the members of each object in the order of the `properties` that name most of them.
json::value ordered(const json::value& value, const std::vector<const json::object*>& all) {
  if (const json::array* array = value.if_array()) {
    json::array out;
    for (const json::value& one : *array) out.push_back(ordered(one, all));
    return out;
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return value;
  const json::object* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const json::object* properties : all) {
    const auto count = std::count_if(object->begin(), object->end(),
                                     [&](const auto& member) { return properties->contains(member.key()); });
    if (count > most) best = properties;
    most = std::max(most, count);
  }
  json::object out;
  if (best != nullptr) {
    for (const auto& property : *best) {
      const json::value* member = object->if_contains(property.key());
      if (member != nullptr) out[property.key()] = ordered(*member, all);
    }
  }
  for (const auto& member : *object) {
    if (!out.contains(member.key())) out[member.key()] = ordered(member.value(), all);
  }
  return out;
}

struct Case {
  std::string name;
  json::value schema;
  std::vector<json::value> valid, invalid;
};

struct Totals {
  std::vector<double> lowered, first, mask, accept;
  int schemas = 0, refused = 0, strict_refused = 0, valid = 0, valid_refused = 0, misordered = 0, invalid = 0,
      invalid_taken = 0;

  void print() {
    const auto share = [](int part, int all) { return 100.0 * part / std::max(1, all); };
    fmt::print("schemas {}, refused {} ({:.2f} %), by `strict` {} ({:.2f} %)\n", schemas, refused,
               share(refused, schemas), strict_refused, share(strict_refused, schemas));
    fmt::print("valid values {}, refused {} ({:.2f} %), for the order of their members alone {}; ", valid,
               valid_refused, share(valid_refused, valid), misordered);
    fmt::print("invalid values {}, taken {}\n", invalid, invalid_taken);
    show("schema to its form", lowered);
    show("schema to first mask", first);
    show("mask of a token", mask);
    show("accept of a token", accept);
  }
};

class Bench {
 public:
  Bench(std::optional<tokenizer::Tokenizer> tokenizer, bool closed)
      : tokenizer_(std::move(tokenizer)), closed_(closed) {
    const double begin = seconds();
    if (tokenizer_) {
      vocabulary_ = std::make_shared<const grammar::Vocabulary>(
          *tokenizer_, static_cast<int>(tokenizer_->vocab_size()), tokenizer_->special().end_of_generation);
    } else {
      std::vector<std::string> tokens;
      for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
      tokens.emplace_back();
      vocabulary_ = std::make_shared<const grammar::Vocabulary>(std::move(tokens), std::vector<Token>{256});
    }
    fmt::print("{} tokens, made ready in {:.1f} ms\n", vocabulary_->width(), 1e3 * (seconds() - begin));
  }

  void measure(const Case& one) {
    ++totals_.schemas;
    const std::string schema = write_json(one.schema);
    const auto constraint = [&](bool strict) {
      return request::Constraint{
          request::JsonSchema{
              .schema = schema, .strict = strict, .closed_objects = closed_, .any_order = !closed_},
          ""};
    };
    if (!grammar::prepare(constraint(true))) ++totals_.strict_refused;
    const double begin = seconds();
    Result<grammar::PreparedConstraint> prepared = grammar::prepare(constraint(false));
    if (!prepared) return refuse(one, prepared.error());
    totals_.lowered.push_back(seconds() - begin);
    const auto compiled = grammar::CompiledGrammar::compile(std::move(*prepared), vocabulary_);
    if (!compiled) return refuse(one, compiled.error());
    const grammar::Matcher start(*compiled, vocabulary_->end_tokens());
    std::vector<int32_t> mask(vocabulary_->mask_words());
    (void)start.fill(mask);
    totals_.first.push_back(seconds() - begin);
    if (totals_.first.back() > 0.05) fmt::print("slow {:.3f} s {}\n", totals_.first.back(), one.name);
    for (const json::value& value : one.valid) {
      ++totals_.valid;
      const std::string why = write(start, text_of(value));
      if (why.empty()) continue;
      ++totals_.valid_refused;
      std::vector<const json::object*> properties;
      collect_properties(one.schema, properties);
      if (write(start, text_of(ordered(value, properties))).empty()) {
        ++totals_.misordered;
        continue;
      }
      fmt::print("refuses a valid value: {}: {}\n", one.name, why);
    }
    for (const json::value& value : one.invalid) {
      ++totals_.invalid;
      if (!write(start, text_of(value)).empty()) continue;
      ++totals_.invalid_taken;
      fmt::print("takes an invalid value: {}: {}\n", one.name, write_json(value));
    }
    std::fflush(stdout);
  }

  void print() { totals_.print(); }

 private:
  void refuse(const Case& one, const Error& error) {
    ++totals_.refused;
    fmt::print("refuses a schema: {}: {}\n", one.name, error.message);
  }

  std::vector<Token> tokens_of(const std::string& text) const {
    std::vector<Token> tokens;
    if (!tokenizer_) {
      for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
      return tokens;
    }
    Result<std::vector<Token>> encoded = tokenizer_->encode(text);
    return encoded ? std::move(*encoded) : tokens;
  }

  // Empty where the whole text is taken, else what it stumbles over.
  std::string write(const grammar::Matcher& start, const std::string& text) {
    std::vector<Token> tokens = tokens_of(text);
    tokens.push_back(vocabulary_->end_tokens().front());
    grammar::Matcher matcher = start;
    std::vector<int32_t> mask(vocabulary_->mask_words());
    std::string written;
    for (const Token token : tokens) {
      if (matcher.ended()) return token == tokens.back() ? "" : "ended behind " + tail(written);
      const double before = seconds();
      const Result<bool> filled = matcher.fill(mask);
      totals_.mask.push_back(seconds() - before);
      if (!filled) return filled.error().message;
      const auto index = static_cast<size_t>(token);
      if (*filled && ((mask[index / 32] >> (index % 32)) & 1) == 0)
        return fmt::format("no '{}' behind {}", vocabulary_->text(token), tail(written));
      const double between = seconds();
      const Status taken = matcher.accept(token);
      totals_.accept.push_back(seconds() - between);
      if (!taken) return taken.error().message;
      written += vocabulary_->text(token);
    }
    return matcher.ended() ? "" : "not ended";
  }

  static std::string tail(const std::string& text) {
    return text.size() <= 60 ? text : text.substr(text.size() - 60);
  }

  std::optional<tokenizer::Tokenizer> tokenizer_;
  bool closed_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  Totals totals_;
};

Result<json::value> read_json(const std::filesystem::path& path) {
  Result<std::string> text = read_regular_file(path.string(), size_t{64} << 20);
  if (!text) return text.error();
  return parse_json(*text, path.string(), {.depth = 256});
}

void add_all(const json::object& from, std::string_view key, std::vector<json::value>& to) {
  const json::value* values = from.if_contains(key);
  if (values != nullptr) to.assign(values->get_array().begin(), values->get_array().end());
}

// A file of JSONSchemaBench: {schema, tests: [{valid, data}]}.
Case bench_case(const std::string& name, const json::value& file) {
  Case one{.name = name, .schema = file.at("schema"), .valid = {}, .invalid = {}};
  for (const json::value& test : file.at("tests").get_array())
    (test.at("valid").get_bool() ? one.valid : one.invalid).push_back(test.at("data"));
  return one;
}

int measure_file(Bench& bench, const char* path) {
  Result<json::value> schemas = read_json(path);
  if (!schemas || !schemas->is_array()) return 74;
  for (const json::value& value : schemas->get_array()) {
    Case one{.name = std::string(value.at("name").get_string()),
             .schema = value.at("schema"),
             .valid = {},
             .invalid = {}};
    add_all(value.get_object(), "valid", one.valid);
    add_all(value.get_object(), "invalid", one.invalid);
    bench.measure(one);
  }
  return 0;
}

int measure_folder(Bench& bench, const char* path, size_t every) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size(); i += every) {
    const Result<json::value> file = read_json(files[i]);
    const std::string name = files[i].filename().string();
    if (file)
      bench.measure(bench_case(name, *file));
    else
      fmt::print("passed over: {}: {}\n", name, file.error().message);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3 || count > 5) {
    fmt::print(stderr, "bench_grammar MODEL|bytes SCHEMAS [EVERY [closed]]\n");
    return 64;
  }
  std::optional<tokenizer::Tokenizer> tokenizer;
  if (std::string_view(words[1]) != "bytes") {
    Result<tokenizer::Tokenizer> loaded = tokenizer::load_tokenizer(words[1]);
    if (!loaded) {
      fmt::print(stderr, "{}\n", loaded.error().message);
      return 74;
    }
    tokenizer = std::move(*loaded);
  }
  Bench bench(std::move(tokenizer), count > 4 && std::string_view(words[4]) == "closed");
  const size_t every = count > 3 ? std::max(1UL, std::strtoul(words[3], nullptr, 10)) : 1;
  const int code = std::filesystem::is_directory(words[2]) ? measure_folder(bench, words[2], every)
                                                           : measure_file(bench, words[2]);
  bench.print();
  return code;
}
