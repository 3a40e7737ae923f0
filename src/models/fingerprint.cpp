#include "models/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "base/sha256.h"
#include "formats/mapped_pages.h"

namespace sluice::models {

namespace {

constexpr int64_t kSampleBytes = 1024;  // at the beginning, in the middle and at the end of a tensor

void add_sampled_text(Sha256& hash, std::string_view text) {
  const uint64_t size = text.size();
  hash.update(std::as_bytes(std::span(&size, 1)));
  hash.update(std::as_bytes(std::span(text)));
}

}  // namespace

std::string fingerprint(const ModelFiles& files) {
  Sha256 hash;
  add_sampled_text(hash, describe(files.spec));
  for (const std::string& tensor : files.tensors.names()) {
    const Result<TensorView> view = files.tensors.find(tensor);
    add_sampled_text(hash, tensor);
    if (!view) continue;
    add_sampled_text(hash, fmt::format("{} {}", name(view->dtype), view->bytes()));
    for (int axis = 0; axis < view->rank; ++axis) add_sampled_text(hash, std::to_string(view->dim(axis)));
    const auto* bytes = static_cast<const std::byte*>(view->data);
    const int64_t size = view->bytes(), piece = std::min(size, kSampleBytes);
    for (const int64_t begin : {int64_t{0}, (size - piece) / 2, size - piece})
      hash.update({bytes + begin, static_cast<size_t>(piece)});
    formats::release_pages(files.tensors, *view);  // a page that is read brings its neighbours, too
  }
  const Sha256Digest digest = hash.finish();
  std::string out;
  for (size_t i = 0; i < 16; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

}  // namespace sluice::models
