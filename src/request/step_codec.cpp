#include "request/step_codec.h"

#include <fmt/format.h>

#include <bit>
#include <string>
#include <type_traits>
#include <utility>

#include "request/step_check.h"

namespace sluice::request {
namespace {

constexpr uint32_t kMagic = 0x53544c53;  // "SLTS"
constexpr uint32_t kVersion = 2;

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T>;

// How many values an enumeration has: a byte from there on is none of them.
constexpr int values_of(Tier) {
  return kTiers;
}
constexpr int values_of(Pooling::Of) {
  return 2;
}
constexpr int values_of(EarlyStopping) {
  return 3;
}
constexpr int values_of(ContextFree::Syntax) {
  return 2;
}
constexpr int values_of(Speculation) {
  return static_cast<int>(kSpeculations);
}

template <class T>
auto bits_of(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else if constexpr (std::is_same_v<T, bool>)
    return static_cast<uint8_t>(value);
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

class Writer {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  template <class T>
  requires kIsNumber<T>
  void put(T value) {
    auto bits = bits_of(value);
    for (size_t i = 0; i < sizeof bits; ++i) out_.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
  }
  template <class T>
  requires std::is_enum_v<T>
  void put(T value) { put(static_cast<uint8_t>(value)); }
  template <class Tag, class Int>
  void put(StrongId<Tag, Int> id) {
    put(id.value);
  }
  void put(TimePoint time) { put(static_cast<int64_t>(time.time_since_epoch().count())); }
  void put(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    for (const char c : text) out_.push_back(static_cast<std::byte>(c));
  }
  void put(const Sha256Digest& digest) {
    for (const uint8_t byte : digest) put(byte);
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(static_cast<uint32_t>(list.size()));
    for (const T& element : list) put(element);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class... T>
  void put(const std::variant<T...>& value) {
    put(static_cast<uint8_t>(value.index()));
    std::visit([this](const auto& alternative) { this->put(alternative); }, value);
  }
  template <class T>
  void put(const std::shared_ptr<const T>& value) {
    put(*value);
  }
  template <class T>
  requires(std::is_class_v<T>) void put(const T& value) {
    fields(*this, const_cast<T&>(value));
  }  // which only reads what a writer is given

  std::vector<std::byte> out_;
};

// After the first failure everything reads as zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool failed() const { return failed_; }
  bool at_end() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }

 private:
  bool have(size_t count) {
    failed_ = failed_ || bytes_.size() - at_ < count;
    return !failed_;
  }
  template <class T>
  requires kIsNumber<T>
  void get(T& value) {
    decltype(bits_of(T{})) bits = 0;
    if (have(sizeof bits)) {
      for (size_t i = 0; i < sizeof bits; ++i)
        bits = static_cast<decltype(bits)>(bits | static_cast<decltype(bits)>(bytes_[at_++]) << (8 * i));
    }
    if constexpr (std::is_floating_point_v<T>)
      value = std::bit_cast<T>(bits);
    else if constexpr (std::is_same_v<T, bool>)
      value = flag(bits);
    else
      value = static_cast<T>(bits);
  }
  bool flag(uint8_t bits) {
    failed_ = failed_ || bits > 1;
    return bits == 1;
  }
  template <class T>
  requires std::is_enum_v<T>
  void get(T& value) {
    uint8_t number = 0;
    get(number);
    failed_ = failed_ || number >= values_of(T{});
    value = static_cast<T>(failed_ ? 0 : number);
  }
  template <class Tag, class Int>
  void get(StrongId<Tag, Int>& id) {
    get(id.value);
  }
  void get(TimePoint& time) {
    int64_t count = 0;
    get(count);
    time = TimePoint(Clock::duration(count));
  }
  void get(std::string& text) {
    uint32_t size = 0;
    get(size);
    if (!have(size)) return;
    text.assign(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
  }
  void get(Sha256Digest& digest) {
    for (uint8_t& byte : digest) get(byte);
  }
  // Every element takes at least a byte, so a count that lies ends with the bytes.
  template <class T>
  void get(std::vector<T>& list) {
    uint32_t size = 0;
    get(size);
    if (!have(size)) return;
    for (uint32_t i = 0; i < size && !failed_; ++i) get(list.emplace_back());
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool present = false;
    get(present);
    if (present && !failed_) get(value.emplace());
  }
  template <class... T>
  void get(std::variant<T...>& value) {
    uint8_t index = 0;
    get(index);
    failed_ = failed_ || index >= sizeof...(T);
    if (!failed_) get_alternative(value, index, std::index_sequence_for<T...>{});
  }
  template <class Variant, size_t... I>
  void get_alternative(Variant& value, uint8_t index, std::index_sequence<I...>) {
    ((index == I ? get(value.template emplace<I>()) : void()), ...);
  }
  template <class T>
  void get(std::shared_ptr<const T>& value) {
    auto read = std::make_shared<T>();
    get(*read);
    value = std::move(read);
  }
  template <class T>
  requires(std::is_class_v<T>) void get(T& value) { fields(*this, value); }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

// The fields of each type in their order: for writing and for reading.
template <class Io>
void fields(Io& io, EmbeddingSpan& v) {
  io(v.begin, v.end, v.content, v.bidirectional);
}
template <class Io>
void fields(Io& io, PromptImage& v) {
  io(v.content, v.width, v.height, v.rgb);
}
template <class Io>
void fields(Io& io, EmbeddingSource& v) {
  io(v.image, v.first);
}
template <class Io>
void fields(Io& io, Positions& v) {
  io(v.sections, v.values);
}
template <class Io>
void fields(Io& io, Place& v) {
  io(v.tier, v.block);
}
template <class Io>
void fields(Io& io, BlockMove& v) {
  io(v.group, v.from, v.to);
}
template <class Io>
void fields(Io& io, BlockTables& v) {
  io(v.groups, v.blocks, v.ends);
}
template <class Io>
void fields(Io& io, LogitBias& v) {
  io(v.token, v.bias);
}
template <class Io>
void fields(Io& io, Sampling& v) {
  io(v.temperature, v.top_k, v.top_p, v.min_p, v.typical_p, v.seed, v.best_of);
}
template <class Io>
void fields(Io& io, BeamSearch& v) {
  io(v.width, v.length_penalty, v.early_stopping);
}
template <class Io>
void fields(Io& io, ContrastiveSearch& v) {
  io(v.top_k, v.alpha);
}
template <class Io>
void fields(Io& io, ContrastiveDecoding& v) {
  io(v.alpha, v.beta, v.sampling);
}
template <class Io>
void fields(Io& io, JsonSchema& v) {
  io(v.schema, v.strict, v.closed_objects, v.any_order, v.compact);
}
template <class Io>
void fields(Io& io, JsonObject& v) {
  io(v.compact);
}
template <class Io>
void fields(Io& io, Pattern& v) {
  io(v.regex);
}
template <class Io>
void fields(Io& io, Choice& v) {
  io(v.options);
}
template <class Io>
void fields(Io& io, ContextFree& v) {
  io(v.syntax, v.grammar);
}
template <class Io>
void fields(Io& io, StructuralTag& v) {
  io(v.tag, v.strict, v.lenient);
}
template <class Io>
void fields(Io&, AnyText&) {}
template <class Io>
void fields(Io& io, FreeStart& v) {
  io(v.opening, v.budget, v.closing);
}
template <class Io>
void fields(Io& io, Constraint& v) {
  io(v.body, v.after, v.start);
}
template <class Io>
void fields(Io& io, SamplingParams& v) {
  io(v.repetition_penalty, v.presence_penalty, v.frequency_penalty, v.logit_bias, v.bad_words,
     v.allowed_tokens, v.constraint, v.stop_tokens, v.ignore_eos, v.min_tokens, v.max_tokens, v.logprobs,
     v.prompt_logprobs, v.prompt_logprobs_from, v.prompt_attention, v.n, v.speculate, v.method);
}
template <class Io>
void fields(Io& io, Pooling& v) {
  io(v.of, v.normalize);
}
template <class Io>
void fields(Io& io, Request& v) {
  io(v.id, v.client, v.weight, v.priority, v.prompt, v.spans, v.sources, v.positions, v.task, v.cache_salt,
     v.arrival, v.first_token_by);
}
template <class Io>
void fields(Io& io, Admission& v) {
  io(v.seq, v.request, v.cached);
}
template <class Io>
void fields(Io& io, Fork& v) {
  io(v.parent, v.child, v.choice);
}
template <class Io>
void fields(Io& io, Lanes& v) {
  io(v.group, v.lanes);
}
template <class Io>
void fields(Io& io, Work& v) {
  io(v.seq, v.begin, v.end, v.sample_from, v.rope_length, v.drafts, v.spans);
}
template <class Io>
void fields(Io& io, Rectangle& v) {
  io(v.rows, v.width);
}
template <class Io>
void fields(Io& io, Step& v) {
  io(v.retire, v.admit, v.forks, v.lanes, v.moves, v.work, v.tables, v.padding, v.preempted);
}

}  // namespace

std::vector<std::byte> serialize(const Step& step) {
  Writer writer;
  writer(kMagic, kVersion, step);
  return writer.take();
}

Result<Step> parse_step(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  uint32_t magic = 0, version = 0;
  reader(magic, version);
  if (reader.failed() || magic != kMagic) return corrupt_step("the bytes are no step");
  if (version != kVersion)
    return Error{ErrorCode::Unsupported,
                 fmt::format("step: version {}; this is version {}", version, kVersion)};
  Step step;
  reader(step);
  if (reader.failed())
    return corrupt_step(fmt::format("it ends or breaks off at byte {} of {}", reader.at(), bytes.size()));
  if (!reader.at_end())
    return corrupt_step(fmt::format("{} bytes stand behind its end", bytes.size() - reader.at()));
  if (Status status = check_step(step); !status) return status.error();
  return step;
}

}  // namespace sluice::request
