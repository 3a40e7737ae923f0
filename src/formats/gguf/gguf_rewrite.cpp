#include "formats/gguf/gguf_rewrite.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "formats/cursor.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/gguf_types.h"
#include "formats/mapped_file.h"
#include "formats/quote.h"
#include "tensor/blocks.h"
#include "tensor/quantize.h"

namespace sluice::formats {

namespace {

constexpr uint32_t kU32 = 4, kString = 8, kArray = 9;
constexpr uint64_t kAlignment = 32;

template <class T>
void append(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

uint64_t aligned(uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t scalar_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// The file was read before: every length is what it says.
void skip_value(Cursor& in, uint32_t type) {
  if (type == kString) {
    in.take(in.read<uint64_t>());
  } else if (type == kArray) {
    const auto element = in.read<uint32_t>();
    const auto count = in.read<uint64_t>();
    if (element != kString && element != kArray) {
      in.take(scalar_bytes(element) * count);
    } else {
      for (uint64_t i = 0; i < count && !in.failed(); ++i) skip_value(in, element);
    }
  } else {
    in.take(scalar_bytes(type));
  }
}

// The pairs of a file, with general.file_type replaced and general.alignment left out.
struct Pairs {
  uint64_t count = 0;
  std::string bytes;

  Pairs(std::string_view file, uint32_t file_type) {
    Cursor in(file);
    in.take(4 + 4 + 8);
    const auto stored = in.read<uint64_t>();
    for (uint64_t i = 0; i < stored && !in.failed(); ++i) {
      const size_t begin = in.position();
      const std::string_view key = in.take(in.read<uint64_t>());
      const auto type = in.read<uint32_t>();
      const size_t value = in.position();
      skip_value(in, type);
      if (key == "general.alignment") continue;
      std::string pair(file.substr(begin, in.position() - begin));
      if (key == "general.file_type" && type == kU32)
        std::memcpy(pair.data() + (value - begin), &file_type, 4);
      bytes += pair;
      ++count;
    }
  }
};

struct Planned {
  std::string name;
  TensorView from;
  DType type = DType::F32;
  uint64_t offset = 0, bytes = 0;
};

uint32_t id_of(DType type) {
  for (const GgmlType& known : kGgmlTypes)
    if (known.dtype == type) return known.id;
  return 0;
}

Result<std::vector<Planned>> plan(const TensorStore& store, const GgufRewrite& rewrite) {
  std::vector<Planned> all;
  uint64_t offset = 0;
  for (const std::string& name : store.names()) {
    const Result<TensorView> view = store.find(name);
    if (!view) return view.error();
    Planned one{name, *view, rewrite.choose(name, *view), offset, 0};
    one.bytes = static_cast<uint64_t>(row_bytes(one.type, view->elements()));
    offset = aligned(offset + one.bytes);
    all.push_back(std::move(one));
  }
  return all;
}

std::string header_of(const Pairs& pairs, const std::vector<Planned>& tensors) {
  std::string out = "GGUF";
  append<uint32_t>(out, 3);
  append<uint64_t>(out, tensors.size());
  append<uint64_t>(out, pairs.count);
  out += pairs.bytes;
  for (const Planned& tensor : tensors) {
    append<uint64_t>(out, tensor.name.size());
    out += tensor.name;
    append<uint32_t>(out, static_cast<uint32_t>(tensor.from.rank));
    for (int i = tensor.from.rank - 1; i >= 0; --i)
      append<uint64_t>(out, static_cast<uint64_t>(tensor.from.dim(i)));
    append<uint32_t>(out, id_of(tensor.type));
    append<uint64_t>(out, tensor.offset);
  }
  out.resize(aligned(out.size()), '\0');
  return out;
}

// A file that is written from some point on.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {}
  ~PartFile() {
    if (file_ >= 0) ::close(file_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Opens it, with `header` at its begin; the bytes that were there already where that header was.
  Result<uint64_t> open(const std::string& header) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) return failed("cannot be written");
    struct stat status {};
    std::string found(header.size(), '\0');
    const bool same = ::fstat(file_, &status) == 0 && status.st_size >= static_cast<off_t>(header.size()) &&
                      ::pread(file_, found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
                      found == header;
    if (same) return static_cast<uint64_t>(status.st_size);
    if (Status emptied = cut(0); !emptied) return emptied.error();
    if (Status written = write(header.data(), header.size(), 0); !written) return written.error();
    return header.size();
  }
  Status cut(uint64_t size) {
    if (::ftruncate(file_, static_cast<off_t>(size)) != 0) return failed("cannot be written");
    return {};
  }
  Status write(const void* data, size_t bytes, uint64_t at) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(file_, from, bytes, static_cast<off_t>(at));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failed("cannot be written");
      from += written;
      at += static_cast<uint64_t>(written);
      bytes -= static_cast<size_t>(written);
    }
    return {};
  }
  Status finish(const std::string& name) {
    if (::fsync(file_) != 0 || std::rename(path_.c_str(), name.c_str()) != 0)
      return failed("cannot be put in its place");
    return {};
  }

 private:
  Error failed(std::string_view what) const {
    return {ErrorCode::Io, fmt::format("{}: {}: {}", quote_path(path_), what, std::strerror(errno))};
  }
  std::string path_;
  int file_ = -1;
};

Result<std::vector<uint8_t>> converted(const Planned& tensor, ThreadPool& pool) {
  std::vector<uint8_t> out(tensor.bytes);
  if (tensor.type == tensor.from.dtype) {
    std::memcpy(out.data(), tensor.from.data, out.size());
    return out;
  }
  const int64_t cols = tensor.from.dim(-1), rows = tensor.from.elements() / cols;
  const int64_t from_bytes = row_bytes(tensor.from.dtype, cols), to_bytes = row_bytes(tensor.type, cols);
  std::atomic<bool> finite{true};
  pool.for_ranges(rows, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      dequantize_row(tensor.from.dtype, static_cast<const std::byte*>(tensor.from.data) + r * from_bytes,
                     row.data(), cols);
      if (!std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }))
        finite = false;
      else
        quantize_row(tensor.type, row.data(), out.data() + r * to_bytes, cols);
    }
  });
  if (!finite)
    return Error{ErrorCode::Corrupt,
                 fmt::format("tensor {} holds values that are not finite", quote(tensor.name))};
  return out;
}

}  // namespace

Status rewrite_gguf(const std::string& in, const std::string& out, const GgufRewrite& rewrite,
                    ThreadPool& pool) {
  const Result<Gguf> gguf = open_gguf(in);
  if (!gguf) return gguf.error();
  if (gguf->tensors.files().size() != 1)
    return Error{ErrorCode::Unsupported, fmt::format("{}: is split over {} files, must be one",
                                                     quote_path(in), gguf->tensors.files().size())};
  const Result<std::vector<Planned>> tensors = plan(gguf->tensors, rewrite);
  if (!tensors) return tensors.error();
  const std::string header =
      header_of(Pairs(gguf->tensors.files().front()->bytes(), rewrite.file_type), *tensors);
  PartFile part(out + ".part");
  const Result<uint64_t> there = part.open(header);
  if (!there) return there.error();
  const uint64_t total = tensors->empty()
                             ? header.size()
                             : header.size() + tensors->back().offset + aligned(tensors->back().bytes);
  for (const Planned& tensor : *tensors) {
    const uint64_t at = header.size() + tensor.offset, end = at + aligned(tensor.bytes);
    if (end <= *there) continue;
    Result<std::vector<uint8_t>> made = converted(tensor, pool);
    if (!made) return made.error();
    made->resize(aligned(made->size()), 0);
    if (Status written = part.write(made->data(), made->size(), at); !written) return written;
    rewrite.progress(tensor.name, tensor.type, static_cast<int64_t>(end), static_cast<int64_t>(total));
  }
  if (Status cut = part.cut(total); !cut) return cut;
  return part.finish(out);
}

}  // namespace sluice::formats
