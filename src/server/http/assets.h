// The files of the page, which are part of the program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::server {

// As generated from web/.
struct EmbeddedFile {
  std::string_view name, bytes;
};
std::span<const EmbeddedFile> embedded_files();

struct Asset {
  std::string path;  // "/live.js"; index.html is "/"
  std::string_view content_type, bytes;
  std::string etag;  // with its quotes
};

std::vector<Asset> make_assets(std::span<const EmbeddedFile> files);

// What every answer that a browser may show as a page carries.
inline constexpr std::string_view kContentPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

}  // namespace sluice::server
