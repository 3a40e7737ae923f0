// Opening safetensors: a file, a folder, or the shards of an index.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/json.h"
#include "formats/mapped_file.h"
#include "formats/quote.h"
#include "formats/safetensors/safetensors.h"

namespace sluice::formats {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexExtension = ".index.json";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

using WeightMap = std::map<std::string, std::string>;

Result<Safetensors> open_part(const std::string& path) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  Result<Safetensors> parsed = parse_safetensors((*file)->bytes(), quote_path(path));
  if (parsed.ok()) parsed->tensors.keep(*file);
  return parsed;
}

bool is_shard_name(std::string_view name) {
  return name.size() > kExtension.size() && name.size() <= 255 && name.ends_with(kExtension) &&
         name[0] != '.' && name.find_first_of("/\\") == name.npos && is_plain_name(name);
}

// "3 tensors: 'a', 'b', 'c'", with the names cut after the first few.
std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text = fmt::format("{} tensor{}: ", names.size(), names.size() == 1 ? "" : "s");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + quote(names[i]);
  return names.size() > kShown ? text + ", …" : text;
}

// Every tensor that the index places in the shard is there, and no other.
Status check_shard(const std::string& shard, const std::set<std::string>& listed, const TensorStore& tensors,
                   std::string_view what) {
  std::vector<std::string> missing, extra;
  const std::vector<std::string> found = tensors.names();
  std::set_difference(listed.begin(), listed.end(), found.begin(), found.end(), std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), listed.begin(), listed.end(), std::back_inserter(extra));
  if (!missing.empty()) {
    return Error{ErrorCode::Corrupt, fmt::format("{}: weight_map places in {} what that file lacks: {}", what,
                                                 quote(shard), list_names(missing))};
  }
  if (!extra.empty()) {
    return Error{ErrorCode::Corrupt, fmt::format("{}: {} holds what weight_map does not place there: {}",
                                                 what, quote(shard), list_names(extra))};
  }
  return {};
}

Result<Safetensors> open_index(const std::string& path) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  const std::string what = quote_path(path);
  const Result<WeightMap> weight_map = parse_safetensors_index((*file)->bytes(), what);
  if (!weight_map.ok()) return weight_map.error();

  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, shard] : *weight_map) shards[shard].insert(name);
  Safetensors result;
  for (const auto& [shard, listed] : shards) {
    Result<Safetensors> part = open_part((fs::path(path).parent_path() / shard).string());
    if (!part.ok()) {
      return Error{part.error().code, fmt::format("{} (listed in {})", part.error().message, what)};
    }
    if (Status exact = check_shard(shard, listed, part->tensors, what); !exact.ok()) return exact.error();
    if (result.tensors.files().empty()) result.metadata = std::move(part->metadata);
    if (Status merged = result.tensors.merge(std::move(part->tensors)); !merged.ok()) return merged.error();
  }
  return result;
}

Result<Safetensors> open_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kSingleFile, ignored)) return open_part((folder / kSingleFile).string());
  if (fs::exists(folder / kIndexFile, ignored)) return open_index((folder / kIndexFile).string());
  constexpr std::array<const char*, 4> kPickles{"pytorch_model.bin", "pytorch_model.bin.index.json",
                                                "consolidated.00.pth", "model.pt"};
  for (const char* pickle : kPickles) {
    if (!fs::exists(folder / pickle, ignored)) continue;
    return Error{
        ErrorCode::Unsupported,
        fmt::format("{}: holds {}, which is a pickle: those can run code and are not read; convert it to "
                    "safetensors",
                    quote_path(folder.string()), pickle)};
  }
  return Error{ErrorCode::NotFound, fmt::format("{}: holds neither {} nor {}", quote_path(folder.string()),
                                                kSingleFile, kIndexFile)};
}

}  // namespace

Result<WeightMap> parse_safetensors_index(std::string_view text, std::string_view what) {
  const Result<json::value> index = parse_json(text, what);
  if (!index.ok()) return index.error();
  const json::object* fields = index->if_object();
  const json::value* listed = fields == nullptr ? nullptr : fields->if_contains("weight_map");
  if (listed == nullptr || !listed->is_object() || listed->get_object().empty()) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: weight_map is {}, must be an object with at least one tensor", what,
                             listed == nullptr ? "missing" : quote(json::serialize(*listed)))};
  }
  WeightMap weight_map;
  for (const auto& [name, shard] : listed->get_object()) {
    if (!shard.is_string() || !is_shard_name({shard.get_string().data(), shard.get_string().size()})) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("{}: weight_map {} is {}, must be the name of a {} file without a folder",
                               what, quote(name), quote(json::serialize(shard)), kExtension)};
    }
    weight_map.emplace(name, shard.get_string());
  }
  return weight_map;
}

Result<Safetensors> open_safetensors(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path);
  return path.ends_with(kIndexExtension) ? open_index(path) : open_part(path);
}

}  // namespace sluice::formats
