// GGUF from the outside in: the header of a file, a file, the parts of a split.
#include "formats/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/gguf/gguf_input.h"
#include "formats/mapped_file.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

constexpr uint64_t kMaxPairs = 65'536;
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr int64_t kMaxParts = 99'999;

Error bad_magic(const GgufInput& input, std::string_view magic) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"FUGG", " (a GGUF file of a big-endian machine)"}, {"lmgg", " (a GGML file from before GGUF)"},
      {"fmgg", " (a GGML file from before GGUF)"},        {"tjgg", " (a GGML file from before GGUF)"},
      {"algg", " (a GGML file from before GGUF)"},        {"PK\x03\x04", " (a zip archive or a pickle)"},
  };
  const auto other = std::find_if(std::begin(kOthers), std::end(kOthers),
                                  [&](const auto& candidate) { return candidate.first == magic; });
  return input.corrupt("magic is {}{}, must be 'GGUF'", quote(magic),
                       other == std::end(kOthers) ? std::string_view() : other->second);
}

Result<uint32_t> read_version(GgufInput& input) {
  const std::string_view magic = input.in.take(4);
  if (input.in.failed()) return input.truncated("magic");
  if (magic != "GGUF") return bad_magic(input, magic);
  const auto version = input.in.read<uint32_t>();
  if (input.in.failed()) return input.truncated("version");
  if (version == 2 || version == 3) return version;
  const bool swapped = version != 0 && (version & 0xffff) == 0;
  return Error{
      ErrorCode::Unsupported,
      fmt::format("{}: version is {}{}, must be 2 or 3", input.what, version,
                  swapped ? fmt::format(" ({} with its bytes swapped: a file of a big-endian machine)",
                                        __builtin_bswap32(version))
                          : "")};
}

Result<uint64_t> read_count(GgufInput& input, std::string_view field, uint64_t cap, uint64_t smallest) {
  const auto count = input.in.read<uint64_t>();
  if (input.in.failed()) return input.truncated(field);
  const uint64_t limit = std::min<uint64_t>(cap, input.in.remaining() / smallest);
  if (count <= limit) return count;
  return input.corrupt("{} is {}, limit {} in a file of {} bytes", field, count, limit, input.in.size());
}

Result<Gguf> open_one(const std::string& path) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  Result<Gguf> parsed = parse_gguf((*file)->bytes(), quote_path(path));
  if (parsed.ok()) parsed->tensors.keep(*file);
  return parsed;
}

// Which part of a split a file says it is. A file that is not of a split is part 0 of 1.
struct Part {
  int64_t number = 0;
  int64_t count = 1;
};

Result<Part> read_part(const Gguf& gguf, const std::string& path) {
  Part part;
  for (const auto& [key, field] :
       {std::pair("split.no", &part.number), std::pair("split.count", &part.count)}) {
    const Result<std::optional<int64_t>> value = gguf.metadata.get_int(key);
    if (!value.ok()) return Error{value.error().code, quote_path(path) + ": " + value.error().message};
    *field = value->value_or(*field);
  }
  if (part.count == 0) part.count = 1;
  if (part.count >= 1 && part.count <= kMaxParts && part.number >= 0 && part.number < part.count) return part;
  return Error{ErrorCode::Corrupt,
               fmt::format("{}: 'split.no' is {} and 'split.count' is {}, must be below the count "
                           "and at most {}",
                           quote_path(path), part.number, part.count, kMaxParts)};
}

std::string part_suffix(const Part& part) {
  return fmt::format("-{:05}-of-{:05}.gguf", part.number + 1, part.count);
}

Status check_tensor_count(const Gguf& gguf, const std::string& path) {
  const Result<std::optional<int64_t>> listed = gguf.metadata.get_int("split.tensors.count");
  if (!listed.ok()) return Error{listed.error().code, quote_path(path) + ": " + listed.error().message};
  const auto found = static_cast<int64_t>(gguf.tensors.size());
  if (listed->value_or(found) == found) return {};
  return Error{ErrorCode::Corrupt,
               fmt::format("{}: 'split.tensors.count' is {}, the parts of the split have {}",
                           quote_path(path), **listed, found)};
}

// Adds parts 2 to `count` to the first.
Status add_parts(Gguf& gguf, const std::string& first_path, int64_t count) {
  const std::string suffix = part_suffix({0, count});
  if (!first_path.ends_with(suffix)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: is the first of {} parts, its name must end in '{}'",
                             quote_path(first_path), count, suffix)};
  }
  const std::string stem = first_path.substr(0, first_path.size() - suffix.size());
  for (int64_t number = 1; number < count; ++number) {
    const std::string path = stem + part_suffix({number, count});
    Result<Gguf> next = open_one(path);
    if (!next.ok()) return next.error();
    const Result<Part> part = read_part(*next, path);
    if (!part.ok()) return part.error();
    if (part->number != number || part->count != count) {
      return Error{
          ErrorCode::Corrupt,
          fmt::format("{}: 'split.no' is {} and 'split.count' is {}, must be {} and {} as in the name",
                      quote_path(path), part->number, part->count, number, count)};
    }
    if (Status merged = gguf.tensors.merge(std::move(next->tensors)); !merged.ok()) return merged;
  }
  return check_tensor_count(gguf, first_path);
}

}  // namespace

Result<Gguf> parse_gguf(std::string_view file, std::string_view what) {
  GgufInput input{what, Cursor(file)};
  const Result<uint32_t> version = read_version(input);
  if (!version.ok()) return version.error();
  const Result<uint64_t> tensor_count =
      read_count(input, "number of tensors", kMaxTensors, kSmallestGgufTensor);
  if (!tensor_count.ok()) return tensor_count.error();
  const Result<uint64_t> pair_count = read_count(input, "number of keys", kMaxPairs, kSmallestGgufPair);
  if (!pair_count.ok()) return pair_count.error();
  Result<GgufPairs> pairs = read_gguf_pairs(input, *pair_count);
  if (!pairs.ok()) return pairs.error();
  Result<TensorStore> tensors = read_gguf_tensors(input, file, *tensor_count, pairs->alignment);
  if (!tensors.ok()) return tensors.error();
  return Gguf{static_cast<int>(*version), std::move(pairs->metadata), std::move(*tensors)};
}

Result<Gguf> open_gguf(const std::string& path) {
  Result<Gguf> gguf = open_one(path);
  if (!gguf.ok()) return gguf;
  const Result<Part> part = read_part(*gguf, path);
  if (!part.ok()) return part.error();
  if (part->number != 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: is part {} of {}, open the first one (its name ends in '{}')",
                             quote_path(path), part->number + 1, part->count, part_suffix({0, part->count}))};
  }
  if (part->count == 1) return gguf;
  if (Status parts = add_parts(*gguf, path, part->count); !parts.ok()) return parts.error();
  return gguf;
}

}  // namespace sluice::formats
