#include "server/http/assets.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/sha256.h"

namespace sluice::server {

namespace {

constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
});

std::string_view type_of(std::string_view name) {
  for (const auto& [ending, type] : kTypes)
    if (name.ends_with(ending)) return type;
  return "application/octet-stream";
}

}  // namespace

std::vector<Asset> make_assets(std::span<const EmbeddedFile> files) {
  std::vector<Asset> assets;
  for (const EmbeddedFile& file : files) {
    const Sha256Digest digest = sha256(std::as_bytes(std::span(file.bytes.data(), file.bytes.size())));
    std::string etag = "\"";
    for (size_t i = 0; i < 12; ++i) etag += fmt::format("{:02x}", digest[i]);
    assets.push_back({file.name == "index.html" ? "/" : fmt::format("/{}", file.name), type_of(file.name),
                      file.bytes, etag + "\""});
  }
  return assets;
}

}  // namespace sluice::server
