#include "dist/communicator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace sluice::dist {

namespace {

// Sums of no more bytes than this are made by every rank for itself: one exchange instead of two.
constexpr size_t kOneShotBytes = size_t{32} << 10;
// A longer message is none of ours.
constexpr uint64_t kLongestMessage = uint64_t{1} << 32;

std::span<const std::byte> bytes_of(std::span<const float> values) {
  return std::as_bytes(values);
}

void add_to(std::span<float> sum, std::span<const float> other) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
}

std::span<float> part(std::span<float> values, Range range) {
  return values.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
}

}  // namespace

void Communicator::check_peer(int peer) const {
  SLUICE_CHECK(peer >= 0 && peer < size() && peer != rank());
}

Range Communicator::values_of(int rank, size_t count, int64_t width) const {
  const auto values = static_cast<int64_t>(count);
  SLUICE_CHECK(width > 0 && values % width == 0);
  const Range rows = share_of(values / width, rank, size());
  return {rows.begin * width, rows.end * width};
}

void Communicator::send(int to, std::span<const std::byte> bytes) {
  check_peer(to);
  const Outgoing out{to, bytes};
  exchange({&out, 1}, {});
}

void Communicator::receive(int from, std::span<std::byte> bytes) {
  check_peer(from);
  const Incoming in{from, bytes};
  exchange({}, {&in, 1});
}

void Communicator::send_message(int to, std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  send(to, std::as_bytes(std::span(&length, 1)));
  if (length > 0) send(to, bytes);
}

void Communicator::post_message(int to, std::span<const std::byte> bytes) {
  check_peer(to);
  const uint64_t length = bytes.size();
  post(to, std::as_bytes(std::span(&length, 1)));
  if (length > 0) post(to, bytes);
}

std::vector<std::byte> Communicator::receive_message(int from) {
  uint64_t length = 0;
  receive(from, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kLongestMessage)
    throw GroupFailure(fmt::format("rank {} announces {} bytes, limit {}", from, length, kLongestMessage));
  std::vector<std::byte> bytes(length);
  if (length > 0) receive(from, bytes);
  return bytes;
}

void Communicator::barrier() {
  std::vector<float> nothing(static_cast<size_t>(size()));
  all_gather(nothing);
}

void Communicator::broadcast(int root, std::span<std::byte> bytes) {
  if (rank() != root) return receive(root, bytes);
  out_.clear();
  for (int peer = 0; peer < size(); ++peer)
    if (peer != root) out_.push_back({peer, bytes});
  exchange(out_, {});
}

void Communicator::all_gather(std::span<float> all, int64_t width) {
  out_.clear();
  in_.clear();
  const std::span<float> own = part(all, values_of(rank(), all.size(), width));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const std::span<float> theirs = part(all, values_of(peer, all.size(), width));
    if (!own.empty()) out_.push_back({peer, bytes_of(own)});
    if (!theirs.empty()) in_.push_back({peer, std::as_writable_bytes(theirs)});
  }
  exchange(out_, in_);
}

void Communicator::all_to_all(std::span<const float> values, int64_t width, std::span<float> parts) {
  const auto rows_of = [&](int peer) {
    const Range range = values_of(peer, values.size(), width);
    return values.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
  };
  const std::span<const float> own = rows_of(rank());
  SLUICE_CHECK_EQ(parts.size(), own.size() * static_cast<size_t>(size()));
  out_.clear();
  in_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const std::span<float> to = parts.subspan(own.size() * static_cast<size_t>(peer), own.size());
    if (peer == rank()) {
      std::copy(own.begin(), own.end(), to.begin());
      continue;
    }
    if (!rows_of(peer).empty()) out_.push_back({peer, bytes_of(rows_of(peer))});
    if (!to.empty()) in_.push_back({peer, std::as_writable_bytes(to)});
  }
  exchange(out_, in_);
}

Range Communicator::reduce_scatter(std::span<float> values, int64_t width) {
  const Range mine = values_of(rank(), values.size(), width);
  const std::span<float> own = part(values, mine);
  parts_.resize(own.size() * static_cast<size_t>(size()));
  all_to_all(values, width, parts_);
  const std::span<const float> parts(parts_);
  std::copy_n(parts.begin(), own.size(), own.begin());
  for (size_t peer = 1; peer < static_cast<size_t>(size()); ++peer)
    add_to(own, parts.subspan(peer * own.size(), own.size()));
  return mine;
}

void Communicator::all_reduce_at_once(std::span<float> values) {
  const auto ranks = static_cast<size_t>(size());
  parts_.resize(values.size() * ranks);
  std::copy(values.begin(), values.end(),
            parts_.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank());
  all_gather(parts_);
  const std::span<const float> all(parts_);
  std::copy_n(all.begin(), values.size(), values.begin());
  for (size_t peer = 1; peer < ranks; ++peer)
    add_to(values, all.subspan(peer * values.size(), values.size()));
}

void Communicator::all_reduce(std::span<float> values) {
  if (size() == 1 || values.empty()) return;
  if (values.size_bytes() <= kOneShotBytes) return all_reduce_at_once(values);
  reduce_scatter(values);
  all_gather(values);
}

void Solo::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  SLUICE_CHECK(out.empty() && in.empty());
}

void Solo::post(int to, std::span<const std::byte>) {
  SLUICE_CHECK_EQ(to, -1);  // there is nobody
}

Subgroup::Subgroup(Communicator& world, int first, int count, int stride)
    : world_(world), first_(first), count_(count), stride_(stride) {
  SLUICE_CHECK(first >= 0 && count > 0 && stride > 0 && of_world(count - 1) < world.size());
  SLUICE_CHECK(rank() >= 0 && rank() < count && of_world(rank()) == world.rank());
}

void Subgroup::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  world_out_.assign(out.begin(), out.end());
  world_in_.assign(in.begin(), in.end());
  for (Outgoing& item : world_out_) item.to = of_world(item.to);
  for (Incoming& item : world_in_) item.from = of_world(item.from);
  world_.exchange(world_out_, world_in_);
}

}  // namespace sluice::dist
