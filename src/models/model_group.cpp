#include "models/model_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "dist/shared_cores.h"
#include "kernels/async_device.h"
#include "tensor/half.h"

namespace sluice::models {

namespace {

std::span<float> floats_of(TensorView x) {
  SLUICE_CHECK(x.dtype == DType::F32 && x.device == Device::Cpu && x.is_contiguous());
  return {static_cast<float*>(x.data), static_cast<size_t>(x.elements())};
}

}  // namespace

ModelGroup::ModelGroup(std::shared_ptr<dist::Communicator> world, const Cuts& cuts,
                       kernels::Collectives collectives)
    : world_(std::move(world)),
      cuts_(cuts),
      placement_(placement_of(world_->rank(), cuts)),
      wanted_(collectives),
      group_(*world_, world_->rank() / cuts.summed() * cuts.summed(), cuts.summed()),
      context_(*world_, placement_.stage.index * cuts.group() + world_->rank() % cuts.summed(), cuts.context,
               cuts.summed()) {
  SLUICE_CHECK_EQ(world_->size(), cuts.ranks());
}

ModelGroup::~ModelGroup() {
  if (!leads() || abandoned_) return;
  try {
    for (int rank = 1; rank < world_->size(); ++rank) world_->send_message(rank, {});
  } catch (const std::exception& problem) {
    log_error("{}", problem.what());
  }
}

void ModelGroup::cut_by(std::vector<int> stage_layers) {
  cuts_.stage_layers = placement_.stage_layers = std::move(stage_layers);
}

void ModelGroup::abandon() {
  abandoned_ = true;
  for (SharedSums* shared : {shared_.get(), shared_context_.get()})
    if (shared != nullptr) shared->leave();
  world_->abandon();
}

std::vector<std::byte> ModelGroup::gather_bytes(dist::Communicator& ranks, std::span<const std::byte> own) {
  std::vector<std::byte> all(own.size() * static_cast<size_t>(ranks.size()));
  const auto part = [&](int rank) {
    return std::span(all).subspan(own.size() * static_cast<size_t>(rank), own.size());
  };
  std::copy(own.begin(), own.end(), part(ranks.rank()).begin());
  if (ranks.size() == 1) return all;
  for (int rank = 0; rank < ranks.size(); ++rank) ranks.broadcast(rank, part(rank));
  return all;
}

Status ModelGroup::use(std::shared_ptr<kernels::Backend> backend) {
  collective_.reset();
  shared_.reset();
  shared_context_.reset();
  backend_ = std::move(backend);
  if (backend_->async_device() == nullptr) {
    auto* sums = dynamic_cast<kernels::PartSums*>(backend_.get());
    if (sums != nullptr && group_.size() > 1) shared_ = std::make_unique<SharedSums>(group_, *sums);
    if (sums != nullptr && context_.size() > 1)
      shared_context_ = std::make_unique<SharedSums>(context_, *sums);
    stages_at_once_ = find_stages_at_once(sums != nullptr ? sums->threads() : 1);
    if (takes_turns()) world_->take_turns();
    if (wanted_ == kernels::Collectives::Auto) return {};
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--collectives is for GPUs; the device is '{}'", backend_->name()),
                 "collectives"};
  }
  auto* device = dynamic_cast<kernels::GroupDevice*>(backend_.get());
  if (device == nullptr)
    return Error{ErrorCode::Unsupported, fmt::format("'{}' does not join several ranks", backend_->name())};
  if (cuts_.sequence)
    return Error{ErrorCode::Unsupported,
                 fmt::format("--sp on is for ranks on CPUs; the device is '{}'", backend_->name()), "sp"};
  try {
    return join_devices(*device);
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Unavailable, fmt::format("cannot join the ranks: {}", problem.what())};
  }
}

int ModelGroup::find_stages_at_once(int threads) {
  if (cuts_.stages == 1) return 1;
  const dist::RankCores own = dist::own_cores(threads);
  const std::vector<std::byte> bytes = gather_bytes(*world_, std::as_bytes(std::span(&own, 1)));
  std::vector<dist::RankCores> ranks(static_cast<size_t>(world_->size()));
  std::memcpy(ranks.data(), bytes.data(), bytes.size());
  const std::vector<int> sharers = dist::core_sharers(ranks);
  std::set<int> of_stages;
  for (int stage = 0; stage < cuts_.stages; ++stage)
    of_stages.insert(sharers[static_cast<size_t>(stage * cuts_.group())]);
  const auto at_once = static_cast<int>(of_stages.size());
  if (leads() && cuts_.micro_batches == 0 && at_once < cuts_.stages)
    log_info("{} stages take turns: with {} threads each they share their cores", cuts_.stages, threads);
  return at_once;
}

Status ModelGroup::join_devices(kernels::GroupDevice& device) {
  struct Name {
    char text[160];
  } own{};
  device.identity().copy(own.text, sizeof own.text - 1);
  const std::vector<std::byte> names = gather_bytes(*world_, std::as_bytes(std::span(&own, 1)));
  sharing_device_ = 0;
  for (int rank = 0; rank < world_->size(); ++rank)
    if (std::memcmp(names.data() + static_cast<size_t>(rank) * sizeof own, &own, sizeof own) == 0)
      ++sharing_device_;
  const kernels::RankExchange ranks{group_.rank(), group_.size(), [this](std::span<const std::byte> bytes) {
                                      return gather_bytes(group_, bytes);
                                    }};
  Result<std::unique_ptr<kernels::DeviceCollective>> joined = device.join(ranks, wanted_);
  if (!joined) return joined.error();
  collective_ = std::move(*joined);
  log_debug("rank {}: collectives by {}, {} ranks on {}", world_->rank(), collective_->name(),
            sharing_device_, own.text);
  return {};
}

void ModelGroup::expect_all() const {
  if (collective_ == nullptr) return;
  const std::optional<int> missing = collective_->missing_rank();
  if (!missing) return;
  throw dist::GroupFailure(fmt::format("rank {} has not come to a sum of the GPUs within {:g} s",
                                       placement_.stage.index * cuts_.group() + *missing,
                                       collective_->patience_seconds()));
}

TensorView ModelGroup::part_memory(int64_t rows, int64_t width) {
  return shared_ != nullptr ? shared_->part(rows, width) : TensorView();
}

TensorView ModelGroup::column_memory(int64_t rows, int64_t columns) {
  return shared_ != nullptr ? shared_->column_part(rows, columns) : TensorView();
}

void ModelGroup::add_up(TensorView x, TensorView part) {
  if (collective_ != nullptr) return collective_->add_up(x);
  if (x.dim(0) == 0 || (shared_ != nullptr && shared_->add_up(x, part))) return;
  SLUICE_CHECK(part.data == x.data);
  group_.all_reduce(floats_of(x));
}

bool ModelGroup::add_up_rms_norm(TensorView out, const kernels::Residual& x, const kernels::RmsGain& gain) {
  if (collective_ != nullptr) return collective_->add_up_rms_norm(out, x, gain);
  return shared_ != nullptr && shared_->add_up_rms_norm(out, x, gain);
}

void ModelGroup::clear_rows(TensorView x, std::span<const int32_t> kept) {
  if (collective_ != nullptr) return collective_->clear_rows(x, kept);
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i] == 0) std::fill_n(x.at<float>(static_cast<int64_t>(i)), x.dim(1), 0.0f);
}

void ModelGroup::gather_tokens(TensorView x) {
  if (SharedSums* shared = shared_tokens(); shared != nullptr && shared->gather_tokens(x)) return;
  token_group().all_gather(floats_of(x), x.dim(1));
}

void ModelGroup::add_up_tokens(TensorView x) {
  if (SharedSums* shared = shared_tokens(); shared != nullptr && shared->add_up_tokens(x)) return;
  token_group().reduce_scatter(floats_of(x), x.dim(1));
}

void ModelGroup::exchange_tokens(TensorView parts, TensorView x) {
  if (SharedSums* shared = shared_tokens(); shared != nullptr && shared->exchange_tokens(parts, x)) return;
  token_group().all_to_all(floats_of(x), x.dim(1), floats_of(parts));
}

// Sums of one row and of zeros.
void ModelGroup::collect_rows(TensorView out, TensorView own, Range range, std::span<const int32_t> rows) {
  const std::span<float> values = floats_of(out);
  if (values.empty()) return;
  std::fill(values.begin(), values.end(), 0.0f);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] >= range.begin && rows[i] < range.end)
      std::copy_n(own.at<float>(rows[i] - range.begin), out.dim(1), out.at<float>(static_cast<int64_t>(i)));
  if (SharedSums* shared = shared_tokens(); shared != nullptr && shared->add_up(out, out)) return;
  token_group().all_reduce(values);
}

void ModelGroup::gather_columns(TensorView out, TensorView part) {
  if (collective_ != nullptr) return collective_->gather_columns(out, part);
  if (shared_ != nullptr && shared_->gather_columns(out, part)) return;
  if (group_.rank() > 0) return group_.send(0, std::as_bytes(floats_of(part)));
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Range columns = dist::share_of(out.dim(1), rank, group_.size());
    TensorView from = part;
    if (rank > 0) {
      columns_.resize(static_cast<size_t>(columns.size() * out.dim(0)));
      group_.receive(rank, std::as_writable_bytes(std::span(columns_)));
      from = TensorView::contiguous(columns_.data(), DType::F32, {out.dim(0), columns.size()});
    }
    const TensorView to = out.columns(columns.begin, columns.end);
    if (from.data != to.data) backend_->copy(to, from);
  }
}

// On devices by way of the host, in the type of activations.
void ModelGroup::receive_stream(TensorView x) {
  const int from = world_->rank() - cuts_.group();
  kernels::AsyncDevice* device = collective_ != nullptr ? backend_->async_device() : nullptr;
  if (device == nullptr) return world_->receive(from, std::as_writable_bytes(floats_of(x)));
  SLUICE_CHECK(x.is_contiguous());
  const auto bytes = static_cast<size_t>(x.bytes());
  if (bytes > pinned_bytes_) {
    pinned_ = device->allocate_pinned(bytes);
    pinned_bytes_ = bytes;
  }
  world_->receive(from, {pinned_.get(), bytes});
  const kernels::AsyncDevice::Piece piece{x.data, bytes};
  device->copy_from_host({&piece, 1}, pinned_.get());
  device->synchronize();
}

void ModelGroup::send_stream(TensorView x) {
  const int to = world_->rank() + cuts_.group();
  end_turn();
  if (collective_ == nullptr) return world_->post(to, std::as_bytes(floats_of(x)));
  columns_.resize(static_cast<size_t>(x.elements()));
  backend_->download(TensorView::contiguous(columns_.data(), DType::F32, {x.dim(0), x.dim(1)}), x);
  expect_all();
  if (x.dtype == DType::F32) return world_->send(to, std::as_bytes(std::span(columns_)));
  SLUICE_CHECK(x.dtype == DType::BF16);
  halves_.resize(columns_.size());
  std::transform(columns_.begin(), columns_.end(), halves_.begin(), f32_to_bf16);
  world_->send(to, std::as_bytes(std::span(halves_)));
}

}  // namespace sluice::models
