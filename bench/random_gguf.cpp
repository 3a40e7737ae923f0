// Writes a GGUF file of a known shape with random blocks of one type in all matrices, to measure speed with:
// random_gguf FILE TYPE [llama-3.1-8b | llama-3.2-1b | smollm2-135m | tiny] [TOKENIZER.gguf], where TYPE is Q4_0, Q4_1,
// Q8_0, Q4_K, Q6_K or BF16. Its tokenizer is that of the last file, which has no more tokens than the shape; without one it
// has none.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

struct Shape {
  std::string_view name;
  int64_t dim, layers, heads, kv_heads, head_dim, inner, vocab;
};
constexpr Shape kShapes[] = {{"llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256},
                             {"llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256},
                             {"smollm2-135m", 576, 30, 9, 3, 64, 1536, 49152},
                             {"tiny", 512, 2, 8, 2, 64, 1024, 1024}};

// Where the f16 scales of a block lie, and what makes elements of about 0.02 of them.
struct Type {
  std::string_view name;
  uint32_t code;
  int64_t elements, bytes;
  std::vector<size_t> scales;
  uint16_t scale;  // f16
};
constexpr uint32_t kBf16 = 30;
const Type kTypes[] = {{"Q4_0", 2, 32, 18, {0}, 0x1c00}, {"Q4_1", 3, 32, 20, {0, 2}, 0x1c00},
                       {"BF16", kBf16, 1, 2, {}, 0},     {"Q4_K", 12, 256, 144, {0, 2}, 0x0040},
                       {"Q8_0", 8, 32, 34, {0}, 0x0a00}, {"Q6_K", 14, 256, 210, {208}, 0x0010}};

struct Tensor {
  std::string name;
  int64_t rows, cols;  // cols 0: a vector of ones in f32
  int64_t bytes(const Type& type) const {
    return cols > 0 ? rows * cols / type.elements * type.bytes : rows * 4;
  }
};

std::vector<Tensor> tensors_of(const Shape& s) {
  std::vector<Tensor> out{{"token_embd.weight", s.vocab, s.dim}};
  for (int64_t i = 0; i < s.layers; ++i) {
    const auto add = [&](const char* name, int64_t rows, int64_t cols) {
      out.push_back({fmt::format("blk.{}.{}.weight", i, name), rows, cols});
    };
    add("attn_norm", s.dim, 0);
    add("attn_q", s.heads * s.head_dim, s.dim);
    add("attn_k", s.kv_heads * s.head_dim, s.dim);
    add("attn_v", s.kv_heads * s.head_dim, s.dim);
    add("attn_output", s.dim, s.heads * s.head_dim);
    add("ffn_norm", s.dim, 0);
    add("ffn_gate", s.inner, s.dim);
    add("ffn_up", s.inner, s.dim);
    add("ffn_down", s.dim, s.inner);
  }
  out.push_back({"output_norm.weight", s.dim, 0});
  out.push_back({"output.weight", s.vocab, s.dim});
  return out;
}

class Header {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void put_bytes(std::string_view bytes) { bytes_ += bytes; }
  void key(std::string_view name, int64_t value) {
    put_text(name);
    put(uint32_t{4});
    put(static_cast<uint32_t>(value));
  }
  void key(std::string_view name, float value) {
    put_text(name);
    put(uint32_t{6});
    put(value);
  }
  void key(std::string_view name, std::string_view value) {
    put_text(name);
    put(uint32_t{8});
    put_text(value);
  }
  std::string aligned() const { return bytes_ + std::string((32 - bytes_.size() % 32) % 32, '\0'); }

 private:
  std::string bytes_;
};

// The metadata of a GGUF file whose keys begin with "tokenizer.", as they stand there.
class TokenizerReader {
 public:
  explicit TokenizerReader(std::string bytes) : bytes_(std::move(bytes)) {}

  bool read() {
    uint32_t magic = 0, version = 0;
    uint64_t tensors = 0, keys = 0;
    if (!take(magic) || !take(version) || !take(tensors) || !take(keys) || magic != 0x46554747) return false;
    for (uint64_t i = 0; i < keys; ++i) {
      const size_t begin = at_;
      std::string_view name;
      uint32_t type = 0;
      if (!take_text(name) || !take(type) || !skip(type)) return false;
      if (!name.starts_with("tokenizer.")) continue;
      found_.append(bytes_, begin, at_ - begin);
      ++count_;
    }
    return true;
  }
  const std::string& found() const { return found_; }
  uint64_t count() const { return count_; }

 private:
  template <class T>
  bool take(T& out) {
    if (bytes_.size() - at_ < sizeof out) return false;
    std::memcpy(&out, bytes_.data() + at_, sizeof out);
    at_ += sizeof out;
    return true;
  }
  bool take_text(std::string_view& out) {
    uint64_t size = 0;
    if (!take(size) || size > bytes_.size() - at_) return false;
    out = std::string_view(bytes_).substr(at_, size);
    at_ += size;
    return true;
  }
  bool skip(uint32_t type) {
    constexpr uint32_t kString = 8, kArray = 9;
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    std::string_view text;
    if (type == kString) return take_text(text);
    if (type != kArray) {
      if (type >= std::size(kSizes) || bytes_.size() - at_ < kSizes[type]) return false;
      at_ += kSizes[type];
      return true;
    }
    uint32_t of = 0;
    uint64_t count = 0;
    if (!take(of) || !take(count) || of == kArray) return false;
    for (uint64_t i = 0; i < count; ++i)
      if (!skip(of)) return false;
    return true;
  }

  std::string bytes_, found_;
  size_t at_ = 0;
  uint64_t count_ = 0;
};

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + 31) / 32 * 32;
}

std::string header_of(const Shape& s, const Type& type, const std::vector<Tensor>& tensors,
                      const TokenizerReader* tokenizer) {
  Header h;
  h.put(uint32_t{0x46554747});
  h.put(uint32_t{3});
  h.put(static_cast<uint64_t>(tensors.size()));
  h.put(uint64_t{11} + (tokenizer == nullptr ? 1 : tokenizer->count()));
  h.key("general.architecture", "llama");
  h.key("llama.block_count", s.layers);
  h.key("llama.context_length", int64_t{8192});
  h.key("llama.embedding_length", s.dim);
  h.key("llama.feed_forward_length", s.inner);
  h.key("llama.attention.head_count", s.heads);
  h.key("llama.attention.head_count_kv", s.kv_heads);
  h.key("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  h.key("llama.rope.freq_base", 500000.0f);
  h.key("llama.rope.dimension_count", s.head_dim);
  h.key("llama.vocab_size", s.vocab);
  if (tokenizer == nullptr) {
    h.key("tokenizer.ggml.model", "none");
  } else {
    h.put_bytes(tokenizer->found());
  }
  int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    h.put_text(tensor.name);
    h.put(tensor.cols > 0 ? uint32_t{2} : uint32_t{1});
    if (tensor.cols > 0) h.put(static_cast<uint64_t>(tensor.cols));
    h.put(static_cast<uint64_t>(tensor.rows));
    h.put(tensor.cols > 0 ? type.code : uint32_t{0});
    h.put(static_cast<uint64_t>(offset));
    offset += aligned(tensor.bytes(type));
  }
  return h.aligned();
}

// Random blocks; a tensor takes them from a place of its own on.
std::vector<uint8_t> make_pattern(const Type& type) {
  std::mt19937 random(1);
  std::vector<uint8_t> pattern(static_cast<size_t>(type.bytes) * 65521);
  for (uint8_t& byte : pattern) byte = static_cast<uint8_t>(random());
  for (size_t block = 0; block < pattern.size(); block += static_cast<size_t>(type.bytes))
    for (const size_t scale : type.scales) std::memcpy(&pattern[block + scale], &type.scale, 2);
  for (size_t i = 1; type.code == kBf16 && i < pattern.size(); i += 2)
    pattern[i] = static_cast<uint8_t>((pattern[i] & 0x80) | 0x3c);  // magnitudes of about 0.02
  return pattern;
}

bool write_all(int file, const void* data, size_t bytes, off_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = pwrite(file, from, bytes, offset);
    if (done <= 0) return false;
    from += done;
    bytes -= static_cast<size_t>(done);
    offset += done;
  }
  return true;
}

bool write_tensor(int file, const Tensor& tensor, const Type& type, off_t offset,
                  const std::vector<uint8_t>& pattern) {
  if (tensor.cols == 0) {
    const std::vector<float> ones(static_cast<size_t>(tensor.rows), 1.0f);
    return write_all(file, ones.data(), ones.size() * sizeof(float), offset);
  }
  auto left = static_cast<size_t>(tensor.bytes(type));
  size_t place = std::hash<std::string>{}(tensor.name) % 65521 * static_cast<size_t>(type.bytes);
  for (; left > 0; place = 0) {
    const size_t count = std::min(left, pattern.size() - place);
    if (!write_all(file, pattern.data() + place, count, offset)) return false;
    offset += static_cast<off_t>(count);
    left -= count;
  }
  return true;
}

int write_model(const std::string& path, const Shape& shape, const Type& type,
                const TokenizerReader* tokenizer) {
  const std::vector<Tensor> tensors = tensors_of(shape);
  const std::string header = header_of(shape, type, tensors, tokenizer);
  std::vector<int64_t> offsets;
  auto end = static_cast<int64_t>(header.size());
  for (const Tensor& tensor : tensors) {
    offsets.push_back(end);
    end += aligned(tensor.bytes(type));
  }
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const bool begun =
      file >= 0 && ftruncate(file, end) == 0 && write_all(file, header.data(), header.size(), 0);
  const std::vector<uint8_t> pattern = make_pattern(type);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{!begun};
  std::vector<std::thread> threads;
  for (unsigned t = 0; begun && t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < tensors.size(); i = next++)
        if (!write_tensor(file, tensors[i], type, offsets[i], pattern)) failed = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (file >= 0) close(file);
  if (!failed) return 0;
  fmt::print(stderr, "{}: cannot be written\n", path);
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view wanted = count > 3 ? arguments[3] : kShapes[0].name;
  std::optional<TokenizerReader> tokenizer;
  if (count > 4) {
    std::ifstream file(arguments[4], std::ios::binary);
    tokenizer.emplace(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!tokenizer->read()) {
      fmt::print(stderr, "{}: no GGUF file\n", arguments[4]);
      return 1;
    }
  }
  for (const Shape& shape : kShapes)
    for (const Type& type : kTypes)
      if (count > 2 && shape.name == wanted && type.name == arguments[2])
        return write_model(arguments[1], shape, type, tokenizer ? &*tokenizer : nullptr);
  fmt::print(stderr,
             "random_gguf FILE Q4_K|Q8_0|Q6_K [llama-3.1-8b | llama-3.2-1b | tiny] [TOKENIZER.gguf]\n");
  return 2;
}
