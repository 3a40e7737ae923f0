#include "formats/safetensors/safetensors_write.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/json.h"
#include "formats/part_file.h"

namespace sluice::formats {

namespace {

constexpr size_t kHeaderAlignment = 8;

// The length of the JSON, then the JSON.
std::string safetensors_header(std::span<const WrittenGroup> groups) {
  json::object object{{"__metadata__", json::object{{"format", "pt"}}}};
  uint64_t at = 0;
  for (const WrittenGroup& group : groups)
    for (const WrittenTensor& tensor : group.tensors) {
      object[tensor.name] = json::object{{"dtype", tensor.dtype},
                                         {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                                         {"data_offsets", json::array{at, at + tensor.bytes}}};
      at += tensor.bytes;
    }
  std::string text = json::serialize(object);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

uint64_t group_bytes(const WrittenGroup& group) {
  uint64_t bytes = 0;
  for (const WrittenTensor& tensor : group.tensors) bytes += tensor.bytes;
  return bytes;
}

bool is_whole(const std::string& path, const std::string& header, uint64_t total) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) != total || error) return false;
  std::string found(header.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(found.data(), static_cast<std::streamsize>(found.size())) && found == header;
}

}  // namespace

Status write_safetensors(const std::string& path, std::span<const WrittenGroup> groups,
                         const std::function<void(const WrittenGroup&, uint64_t)>& done) {
  const std::string header = safetensors_header(groups);
  uint64_t total = header.size();
  for (const WrittenGroup& group : groups) total += group_bytes(group);
  if (is_whole(path, header, total)) return {};
  PartFile part(path + ".part");
  const Result<uint64_t> there = part.open(header);
  if (!there) return there.error();
  uint64_t at = header.size();
  for (const WrittenGroup& group : groups) {
    const uint64_t end = at + group_bytes(group);
    if (end > *there) {
      const Result<std::vector<std::vector<uint8_t>>> made = group.make();
      if (!made) return made.error();
      SLUICE_CHECK_EQ(made->size(), group.tensors.size());
      for (size_t i = 0; i < made->size(); ++i) {
        SLUICE_CHECK_EQ((*made)[i].size(), group.tensors[i].bytes);
        if (Status written = part.write((*made)[i].data(), (*made)[i].size(), at); !written) return written;
        at += group.tensors[i].bytes;
      }
    }
    at = end;
    done(group, at);
  }
  if (Status cut = part.cut(total); !cut) return cut;
  return part.finish(path);
}

}  // namespace sluice::formats
