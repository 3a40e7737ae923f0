// A tokenizer from a folder with tokenizer.json and the small files beside it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/published_json.h"
#include "base/system/file.h"
#include "tokenizer/loaders/json_fields.h"
#include "tokenizer/loaders/tokenizer_json.h"

namespace sluice::tokenizer {

namespace {

namespace fs = std::filesystem;

constexpr size_t largest_file = size_t{128} << 20;

// nullopt where there is no such file
Result<std::optional<std::string>> read_file(const fs::path& path) {
  Result<std::string> text = read_regular_file(path.string(), largest_file);
  if (text) return std::optional(std::move(*text));
  if (text.error().code == ErrorCode::NotFound) return std::optional<std::string>();
  return text.error();
}

// An empty object where there is no such file.
Result<json::object> read_object(const fs::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  if (!*text) return json::object();
  auto value = parse_published_json(**text, path.filename().string());
  if (!value) return value.error();
  if (!value->is_object()) return corrupt(fmt::format("{} must hold an object", path.string()));
  return std::move(value->get_object());
}

Result<std::vector<AddedToken>> read_added(const json::object& root) {
  std::vector<AddedToken> added;
  JsonFields fields(root, "tokenizer.json");
  const json::array* tokens = fields.array("added_tokens");
  if (!fields.status()) return fields.status().error();
  if (tokens == nullptr) return added;
  for (const json::value& value : *tokens) {
    if (!value.is_object()) return corrupt("tokenizer.json: an added token must be an object");
    JsonFields token(value.get_object(), "tokenizer.json: added token");
    const int64_t id = token.integer("id", -1);
    AddedToken entry;
    entry.content = token.text("content", "");
    entry.is_special = token.flag("special", false);
    entry.is_normalized = token.flag("normalized", !entry.is_special);
    entry.is_single_word = token.flag("single_word", false);
    entry.strips_left = token.flag("lstrip", false);
    entry.strips_right = token.flag("rstrip", false);
    if (!token.status()) return token.status().error();
    if (id < 0 || id >= static_cast<int64_t>(largest_vocabulary)) {
      return corrupt(fmt::format("tokenizer.json: added token '{}' has id {}", entry.content, id));
    }
    entry.id = static_cast<Token>(id);
    if (!entry.content.empty()) added.push_back(std::move(entry));
  }
  return added;
}

// Tokens that are looked for in normalized text are looked for as they are normalized.
Status split_added(std::vector<AddedToken> added, TokenizerData& data) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : added) {
    if (!token.is_normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    unicode::AlignedText text;
    text.append_input(token.content, 0);
    auto content = normalize(data.normalizer, std::move(text));
    if (!content) return content.error();
    token.content = content->bytes();
    if (!token.content.empty()) normalized.push_back(std::move(token));
  }
  data.added = AddedTokens(std::move(raw));
  data.added_normalized = AddedTokens(std::move(normalized));
  return {};
}

json::value part(const json::object& root, std::string_view key) {
  const json::value* found = root.if_contains(json::string_view(key.data(), key.size()));
  return found == nullptr ? json::value() : *found;
}

Status load_tokenizer_json(const json::object& root, TokenizerData& data) {
  auto added = read_added(root);
  if (!added) return added.error();
  if (Status status = parse_normalizer(part(root, "normalizer"), data.normalizer); !status) return status;
  if (Status status = parse_pre_tokenizer(part(root, "pre_tokenizer"), data.pre_tokenizer); !status)
    return status;
  const json::value* model = root.if_contains("model");
  if (model == nullptr) return corrupt("tokenizer.json has no 'model'");
  if (Status status = parse_model(*model, *added, data); !status) return status;
  if (Status status = parse_post_processor(part(root, "post_processor"), data.special); !status)
    return status;
  if (Status status = parse_decoder(part(root, "decoder"), data.decoder); !status) return status;
  for (const std::vector<Token>* ids : {&data.special.prefix, &data.special.suffix}) {
    const auto is_outside = [&](Token id) { return static_cast<size_t>(id) >= data.kinds.size(); };
    if (std::any_of(ids->begin(), ids->end(), is_outside))
      return corrupt("tokenizer.json: a template id is out of range");
  }
  return split_added(std::move(*added), data);
}

// The token of "bos_token": "<s>" or {"content": "<s>"}.
std::optional<Token> named_token(const TokenizerData& data, const json::object& config,
                                 std::string_view key) {
  const json::value* value = config.if_contains(json::string_view(key.data(), key.size()));
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  const Token id = data.spellings.find({value->get_string().data(), value->get_string().size()});
  return id == no_token ? std::nullopt : std::optional(id);
}

// One id or a list of ids; ids out of range are left out.
std::vector<Token> read_ids(const TokenizerData& data, const json::object& config, std::string_view key) {
  std::vector<Token> ids;
  const auto push = [&](const json::value& value) {
    if (!value.is_int64() || value.get_int64() < 0) return;
    if (static_cast<size_t>(value.get_int64()) < data.kinds.size())
      ids.push_back(static_cast<Token>(value.get_int64()));
  };
  const json::value* value = config.if_contains(json::string_view(key.data(), key.size()));
  if (value == nullptr) return ids;
  if (const json::array* list = value->if_array()) {
    std::for_each(list->begin(), list->end(), push);
  } else {
    push(*value);
  }
  return ids;
}

struct Configs {
  json::object tokenizer, specials, generation, model;
};

void load_special_ids(const Configs& configs, TokenizerData& data) {
  SpecialTokens& special = data.special;
  const auto find = [&](std::string_view name, std::optional<Token> otherwise) {
    for (const json::object* config : {&configs.tokenizer, &configs.specials}) {
      if (const auto id = named_token(data, *config, fmt::format("{}_token", name))) return id;
    }
    for (const json::object* config : {&configs.generation, &configs.model}) {
      const auto ids = read_ids(data, *config, fmt::format("{}_token_id", name));
      if (!ids.empty()) return std::optional(ids.front());
    }
    return otherwise;
  };
  special.bos = find("bos", std::nullopt);
  special.eos = find("eos", std::nullopt);
  special.pad = find("pad", std::nullopt);
  special.unknown = find("unk", special.unknown);
  for (const json::object* config : {&configs.generation, &configs.model}) {
    const auto ids = read_ids(data, *config, "eos_token_id");
    special.end_of_generation.insert(special.end_of_generation.end(), ids.begin(), ids.end());
  }
}

// Tokenizers of the Llama class put their affixes on by these flags, whatever the post-processor says; for the others
// the flags count where there is no post-processor.
Status apply_affix_flags(const json::object& config, bool has_processor, SpecialTokens& special) {
  JsonFields fields(config, "tokenizer_config.json");
  const std::string type = fields.text("tokenizer_class", "");
  const bool is_llama = type.find("Llama") != std::string::npos || type.find("Gemma") != std::string::npos;
  if (has_processor && !is_llama) return fields.status();
  const auto apply = [&](std::string_view key, std::optional<Token> id, std::vector<Token>& affix) {
    if (fields.value(key) == nullptr || !id) return;
    const bool is_wanted = fields.flag(key, false);
    const bool is_there = std::find(affix.begin(), affix.end(), *id) != affix.end();
    if (is_wanted && !is_there) affix.push_back(*id);
    if (!is_wanted) std::erase(affix, *id);
  };
  apply("add_bos_token", special.bos, special.prefix);
  apply("add_eos_token", special.eos, special.suffix);
  return fields.status();
}

Status push_templates(const json::object& config, std::vector<TemplateSource>& out) {
  const json::value* value = config.if_contains("chat_template");
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string()) {
    out.push_back({"default", std::string(value->get_string())});
    return {};
  }
  if (!value->is_array()) return corrupt("tokenizer_config.json: 'chat_template' must be a string or a list");
  for (const json::value& entry : value->get_array()) {
    if (!entry.is_object()) return corrupt("tokenizer_config.json: a chat template must be an object");
    JsonFields fields(entry.get_object(), "tokenizer_config.json: chat_template");
    out.push_back({fields.text("name", "default"), fields.text("template", "")});
    if (!fields.status()) return fields.status();
  }
  return {};
}

Status load_templates(const fs::path& folder, const json::object& config, std::vector<TemplateSource>& out) {
  const auto file = read_file(folder / "chat_template.jinja");
  if (!file) return file.error();
  if (*file) out.push_back({"default", std::move(**file)});
  const auto processor = read_object(folder / "chat_template.json");
  if (!processor) return processor.error();
  if (Status status = push_templates(*processor, out); !status) return status;
  if (Status status = push_templates(config, out); !status) return status;
  return {};
}

Result<Configs> read_configs(const fs::path& folder) {
  Configs configs;
  const struct {
    std::string_view name;
    json::object& out;
  } files[] = {{"tokenizer_config.json", configs.tokenizer},
               {"special_tokens_map.json", configs.specials},
               {"generation_config.json", configs.generation},
               {"config.json", configs.model}};
  for (const auto& file : files) {
    auto object = read_object(folder / file.name);
    if (!object) return object.error();
    file.out = std::move(*object);
  }
  return configs;
}

}  // namespace

Result<Tokenizer> parse_tokenizer_json(std::string_view text) {
  json::monotonic_resource memory;
  auto value = parse_json(text, "tokenizer.json", {}, &memory);
  if (!value) return value.error();
  if (!value->is_object()) return corrupt("tokenizer.json must hold an object");
  auto data = std::make_unique<TokenizerData>();
  if (Status status = load_tokenizer_json(value->get_object(), *data); !status) return status.error();
  add_known_end_tokens(*data);
  if (Status status = render_pieces(*data); !status) return status.error();
  return Tokenizer(std::move(data));
}

Result<Tokenizer> load_tokenizer_hf(const std::string& folder) {
  const fs::path path(folder);
  const auto text = read_file(path / "tokenizer.json");
  if (!text) return text.error();
  if (!*text) return Error{ErrorCode::NotFound, fmt::format("{} has no tokenizer.json", folder)};
  json::monotonic_resource memory;
  auto value = parse_json(**text, "tokenizer.json", {}, &memory);
  if (!value) return value.error();
  if (!value->is_object()) return corrupt("tokenizer.json must hold an object");
  auto configs = read_configs(path);
  if (!configs) return configs.error();
  auto data = std::make_unique<TokenizerData>();
  const json::object& root = value->get_object();
  if (Status status = load_tokenizer_json(root, *data); !status) return status.error();
  load_special_ids(*configs, *data);
  const bool has_processor = !part(root, "post_processor").is_null();
  if (Status status = apply_affix_flags(configs->tokenizer, has_processor, data->special); !status) {
    return status.error();
  }
  if (Status status = load_templates(path, configs->tokenizer, data->chat_templates); !status)
    return status.error();
  add_known_end_tokens(*data);
  if (Status status = render_pieces(*data); !status) return status.error();
  return Tokenizer(std::move(data));
}

Result<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code error;
  const fs::path file(path);
  if (fs::is_directory(file, error)) return load_tokenizer_hf(path);
  if (!fs::exists(file, error)) return Error{ErrorCode::NotFound, fmt::format("{} does not exist", path)};
  if (file.filename() == "tokenizer.json") return load_tokenizer_hf(file.parent_path().string());
  auto gguf = formats::open_gguf(path);
  if (!gguf) return gguf.error();
  return load_tokenizer_gguf(gguf->metadata);
}

}  // namespace sluice::tokenizer
