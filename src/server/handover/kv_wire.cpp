#include "server/handover/kv_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/checksum.h"

namespace sluice::server {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kOrderMark = 0x4F4B4C53, kStreamMark = 0x424B4C53;  // "SLKO", "SLKB"
constexpr uint32_t kEnd = 0xFFFFFFFF;
constexpr uint32_t kMostGroups = 64;
constexpr uint64_t kMostBlockBytes = uint64_t{1} << 32;
constexpr uint32_t kMostBlockSize = 1 << 16;
constexpr size_t kStreamHead = 8;

template <class T>
void put_number(std::string& out, T value) {
  static_assert(std::is_unsigned_v<T>);
  const size_t begin = out.size();
  out.resize(begin + sizeof value);
  std::memcpy(out.data() + begin, &value, sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put_number(out, static_cast<uint32_t>(text.size()));
  out += text;
}

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Error wire_error(const std::string& message) {
  return {ErrorCode::InvalidArgument, "KV handover: " + message};
}

// Takes fields from the front; the first that is missing or too long is remembered.
class OrderFields {
 public:
  explicit OrderFields(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T number(std::string_view field) {
    if (!has(sizeof(T), field)) return {};
    const T value = number_at<T>(rest_, 0);
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  std::string text(std::string_view field) {
    const auto size = number<uint32_t>(field);
    if (!has(size, field)) return {};
    std::string out(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return out;
  }
  uint32_t within(std::string_view field, uint32_t least, uint32_t most) {
    const auto value = number<uint32_t>(field);
    if (!problem_.empty() || (value >= least && value <= most)) return value;
    problem_ = fmt::format("{} is {}, the limits are {} and {}", field, value, least, most);
    return least;
  }
  bool has(size_t bytes, std::string_view field) {
    if (problem_.empty() && rest_.size() < bytes) problem_ = fmt::format("'{}' is cut off", field);
    return problem_.empty();
  }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  const std::string& problem() const { return problem_; }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
  std::string problem_;
};

void read_layout(OrderFields& fields, engine::KvLayout& layout) {
  layout.model = fields.text("model");
  layout.block_size = static_cast<int>(fields.within("block size", 1, kMostBlockSize));
  const uint32_t groups = fields.within("groups", 1, kMostGroups);
  for (uint32_t group = 0; group < groups && fields.problem().empty(); ++group) {
    const auto bytes = fields.number<uint64_t>("bytes of a block");
    if (bytes == 0 || bytes > kMostBlockBytes) fields.fail(fmt::format("a block has {} bytes", bytes));
    layout.block_bytes.push_back(static_cast<int64_t>(bytes));
    layout.windows.push_back(static_cast<int>(fields.within("window", 0, 1 << 30)));
    layout.holds.push_back(static_cast<kv::KvGroup::Holds>(
        fields.within("what a group holds", 0, static_cast<uint32_t>(kv::KvGroup::Holds::State))));
  }
}

}  // namespace

std::string write_order(const PrefillOrder& order) {
  std::string out;
  put_number(out, kOrderMark);
  put_number(out, kKvWireVersion);
  put_text(out, order.layout.model);
  put_number(out, static_cast<uint32_t>(order.layout.block_size));
  put_number(out, static_cast<uint32_t>(order.layout.block_bytes.size()));
  for (size_t group = 0; group < order.layout.block_bytes.size(); ++group) {
    put_number(out, static_cast<uint64_t>(order.layout.block_bytes[group]));
    put_number(out, static_cast<uint32_t>(order.layout.windows[group]));
    put_number(out, static_cast<uint32_t>(order.layout.holds[group]));
  }
  put_text(out, order.salt);
  put_number(out, static_cast<uint32_t>(order.first));
  put_number(out, static_cast<uint32_t>(order.tokens.size()));
  out.append(reinterpret_cast<const char*>(order.tokens.data()), order.tokens.size() * sizeof(Token));
  return out;
}

Result<PrefillOrder> parse_order(std::string_view bytes) {
  OrderFields fields(bytes);
  PrefillOrder order;
  if (fields.number<uint32_t>("mark") != kOrderMark) fields.fail("this is no order for a prefill");
  const auto version = fields.number<uint32_t>("version");
  if (version != kKvWireVersion)
    fields.fail(fmt::format("version {} is asked for, this server has version {}", version, kKvWireVersion));
  read_layout(fields, order.layout);
  order.salt = fields.text("salt");
  const auto first = fields.number<uint32_t>("first block");
  const auto count = fields.number<uint32_t>("tokens");
  if (fields.problem().empty() && fields.left() != uint64_t{count} * sizeof(Token))
    fields.fail(fmt::format("{} tokens are announced, {} bytes follow", count, fields.left()));
  if (!fields.problem().empty()) return wire_error(fields.problem());
  const size_t blocks = count == 0 ? 0 : (count - 1) / static_cast<size_t>(order.layout.block_size);
  if (first >= blocks)
    return wire_error(fmt::format("block {} is asked for, the tokens have {}", first, blocks));
  order.first = static_cast<int>(first);
  order.tokens.resize(count);
  std::memcpy(order.tokens.data(), bytes.data() + bytes.size() - fields.left(), fields.left());
  return order;
}

Status check_layout(const engine::KvLayout& ours, const engine::KvLayout& theirs) {
  const auto differ = [](std::string_view what, const auto& here, const auto& there) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("KV handover: the {} is {} here and {} there", what, here, there)};
  };
  const auto list = [](const auto& values) { return fmt::format("{}", fmt::join(values, "+")); };
  if (ours.model != theirs.model)
    return differ("model (weights/KV form/KV type/block size)", ours.model, theirs.model);
  if (ours.block_size != theirs.block_size) return differ("block size", ours.block_size, theirs.block_size);
  if (ours.windows != theirs.windows)
    return differ("list of windows", list(ours.windows), list(theirs.windows));
  const auto states = [](const engine::KvLayout& layout) {
    return std::count(layout.holds.begin(), layout.holds.end(), kv::KvGroup::Holds::State);
  };
  if (ours.holds != theirs.holds)
    return differ("number of groups that hold states", states(ours), states(theirs));
  if (ours.block_bytes != theirs.block_bytes)
    return differ("number of bytes of a block", list(ours.block_bytes), list(theirs.block_bytes));
  return {};
}

void append_stream_head(std::string& out) {
  put_number(out, kStreamMark);
  put_number(out, kKvWireVersion);
}

void finish_block(std::string& out, size_t begin, int index, int group) {
  const auto where = static_cast<uint32_t>(index), which = static_cast<uint32_t>(group);
  const uint64_t sum = checksum(std::as_bytes(std::span(out).subspan(begin + kBlockHead)));
  std::memcpy(out.data() + begin, &where, sizeof where);
  std::memcpy(out.data() + begin + 4, &which, sizeof which);
  std::memcpy(out.data() + begin + 8, &sum, sizeof sum);
}

void append_stream_end(std::string& out) {
  put_number(out, kEnd);
  put_number(out, uint32_t{0});
  put_number(out, uint64_t{0});
}

size_t BlockReader::wanted() const {
  if (phase_ == Phase::Head) return kStreamHead;
  if (phase_ == Phase::BlockHead) return kBlockHead;
  return static_cast<size_t>(layout_.block_bytes[static_cast<size_t>(block_.group)]);
}

Status BlockReader::feed(std::string_view bytes, std::vector<HandedBlock>& out) {
  while (!bytes.empty()) {
    if (ended()) return wire_error("bytes follow the end");
    const size_t taken = std::min(bytes.size(), wanted() - part_.size());
    part_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (part_.size() < wanted()) break;
    if (Status sound = take(out); !sound) return sound;
  }
  return {};
}

Status BlockReader::take(std::vector<HandedBlock>& out) {
  if (phase_ == Phase::Head) {
    if (number_at<uint32_t>(part_, 0) != kStreamMark) return wire_error("the answer holds no KV blocks");
    const auto version = number_at<uint32_t>(part_, 4);
    if (version != kKvWireVersion)
      return wire_error(fmt::format("the blocks have version {}, not {}", version, kKvWireVersion));
    phase_ = Phase::BlockHead;
  } else if (phase_ == Phase::BlockHead) {
    if (Status sound = read_block_head(); !sound) return sound;
  } else {
    if (checksum(std::as_bytes(std::span(part_))) != checksum_)
      return wire_error(fmt::format("block {} has another checksum", block_.index));
    block_.bytes = std::exchange(part_, {});
    out.push_back(std::move(block_));
    phase_ = Phase::BlockHead;
  }
  part_.clear();
  return {};
}

Status BlockReader::read_block_head() {
  const auto index = number_at<uint32_t>(part_, 0), group = number_at<uint32_t>(part_, 4);
  if (index == kEnd) {
    phase_ = Phase::Ended;
    return {};
  }
  const size_t groups = layout_.block_bytes.size();
  if (group >= groups) return wire_error(fmt::format("group {} is named, there are {}", group, groups));
  const int64_t place = int64_t{index} * static_cast<int64_t>(groups) + group;
  const int first = std::max(first_, layout_.first_needed(group, end_));
  if (index < static_cast<uint32_t>(first) || index >= static_cast<uint32_t>(end_) || place <= last_)
    return wire_error(fmt::format("block {} of group {} was not expected", index, group));
  last_ = place;
  checksum_ = number_at<uint64_t>(part_, 8);
  block_ = {static_cast<int>(index), static_cast<int>(group), {}};
  phase_ = Phase::Bytes;
  part_.reserve(wanted());
  return {};
}

}  // namespace sluice::server
