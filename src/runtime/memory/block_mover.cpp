#include "runtime/memory/block_mover.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"

namespace sluice::runtime {

namespace {

bool transfer(ssize_t (*call)(int, void*, size_t, off_t), int file, std::byte* bytes, size_t size,
              off_t offset) {
  while (size > 0) {
    const ssize_t done = call(file, bytes, size, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes += done;
    size -= static_cast<size_t>(done);
    offset += done;
  }
  return true;
}

ssize_t write_call(int file, void* bytes, size_t size, off_t offset) {
  return pwrite(file, bytes, size, offset);
}

// A file without a name: gone with the process, and nobody else can open it.
Result<int> open_nameless(const std::string& folder, int64_t bytes) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0)
    return Error{ErrorCode::Io,
                 fmt::format("cannot make the KV file in '{}': {}", folder, std::strerror(errno))};
  if (const int problem = posix_fallocate(file, 0, bytes); problem != 0) {
    close(file);
    return Error{ErrorCode::Io, fmt::format("cannot reserve {} bytes for KV in '{}': {}", bytes, folder,
                                            std::strerror(problem))};
  }
  return file;
}

}  // namespace

Result<std::unique_ptr<BlockMover>> BlockMover::make(KvMemory& memory, const TierOptions& options) {
  auto mover = std::unique_ptr<BlockMover>(new BlockMover(memory));
  int64_t disk_bytes = 0;
  for (size_t group = 0; group < options.host_blocks.size(); ++group) {
    const int64_t bytes = memory.block_bytes(static_cast<int>(group));
    const int disk_blocks = group < options.disk_blocks.size() ? options.disk_blocks[group] : 0;
    Group& added = mover->groups_.emplace_back();
    if (options.host_blocks[group] > 0)
      added.host = memory.allocate_host(static_cast<size_t>(bytes * options.host_blocks[group]));
    added.host_lost.resize(static_cast<size_t>(options.host_blocks[group]));
    added.disk_offset = disk_bytes;
    added.checksums.resize(static_cast<size_t>(disk_blocks));
    disk_bytes += bytes * disk_blocks;
    mover->largest_ = std::max(mover->largest_, bytes);
  }
  if (disk_bytes > 0) {
    Result<int> file = open_nameless(options.disk_folder, disk_bytes);
    if (!file) return file.error();
    mover->file_ = *file;
  }
  return mover;
}

BlockMover::~BlockMover() {
  if (file_ >= 0) close(file_);
}

std::byte* BlockMover::host_block(int group, BlockId block) const {
  return groups_[static_cast<size_t>(group)].host.get() +
         static_cast<size_t>(block.value) * static_cast<size_t>(memory_.block_bytes(group));
}

void BlockMover::read(int group, request::Place place, std::byte* out, bool& lost) {
  Group& tier = groups_[static_cast<size_t>(group)];
  const auto bytes = static_cast<size_t>(memory_.block_bytes(group));
  const auto index = static_cast<size_t>(place.block.value);
  switch (place.tier) {
    case request::Tier::Device:
      memory_.read_block(group, place.block, out);
      lost = is_lost(group, place.block);
      break;
    case request::Tier::Host:
      std::memcpy(out, host_block(group, place.block), bytes);
      lost = tier.host_lost[index];
      break;
    case request::Tier::Disk:
      lost = !transfer(pread, file_, out, bytes, tier.disk_offset + static_cast<off_t>(index * bytes)) ||
             checksum({out, bytes}) != tier.checksums[index];
      break;
  }
}

void BlockMover::write(int group, request::Place place, const std::byte* in, bool lost) {
  Group& tier = groups_[static_cast<size_t>(group)];
  const auto bytes = static_cast<size_t>(memory_.block_bytes(group));
  const auto index = static_cast<size_t>(place.block.value);
  switch (place.tier) {
    case request::Tier::Device:
      memory_.write_block(group, place.block, in);
      clear_lost(group, place.block);
      if (lost) lost_.insert({group, place.block.value});
      break;
    case request::Tier::Host:
      std::memcpy(host_block(group, place.block), in, bytes);
      tier.host_lost[index] = lost;
      break;
    case request::Tier::Disk: {
      const bool written = transfer(write_call, file_, const_cast<std::byte*>(in), bytes,
                                    tier.disk_offset + static_cast<off_t>(index * bytes));
      // A block that could not be written, or was lost before, must not pass its check later.
      tier.checksums[index] = checksum({in, bytes}) ^ (written && !lost ? 0 : 1);
      break;
    }
  }
}

// Moves that need no look at the bytes. Those of a device are done in the order of its work.
bool BlockMover::move_directly(const request::BlockMove& move) {
  const request::Place &from = move.from, &to = move.to;
  if (from.tier == request::Tier::Device && to.tier == request::Tier::Device) {
    if (any_lost()) {
      clear_lost(move.group, to.block);
      if (is_lost(move.group, from.block)) lost_.insert({move.group, to.block.value});
    }
    memory_.copy_block(move.group, from.block, to.block);
    return true;
  }
  if (from.tier == request::Tier::Device && to.tier == request::Tier::Host) {
    memory_.read_block(move.group, from.block, host_block(move.group, to.block));
    groups_[static_cast<size_t>(move.group)].host_lost[static_cast<size_t>(to.block.value)] =
        is_lost(move.group, from.block);
    return true;
  }
  if (from.tier == request::Tier::Host && to.tier == request::Tier::Device) {
    memory_.write_block(move.group, to.block, host_block(move.group, from.block));
    clear_lost(move.group, to.block);
    if (groups_[static_cast<size_t>(move.group)].host_lost[static_cast<size_t>(from.block.value)])
      lost_.insert({move.group, to.block.value});
    return true;
  }
  return false;
}

void BlockMover::run(std::span<const request::BlockMove> moves) {
  for (const request::BlockMove& move : moves) {
    if (move_directly(move)) continue;
    bool lost = false;
    memory_.synchronize();
    read(move.group, move.from, passing_block(), lost);
    memory_.synchronize();
    write(move.group, move.to, passing_block(), lost);
  }
}

// What was last written from it may still be on its way to the device: synchronize() before it is used.
std::byte* BlockMover::passing_block() {
  if (block_ == nullptr) block_ = memory_.allocate_host(static_cast<size_t>(largest_));
  return block_.get();
}

bool BlockMover::read_block(int group, request::Place place, std::span<std::byte> out) {
  bool lost = false;
  if (memory_.on_host()) {
    read(group, place, out.data(), lost);
    return !lost;
  }
  memory_.synchronize();
  read(group, place, passing_block(), lost);
  memory_.synchronize();
  std::memcpy(out.data(), passing_block(), out.size());
  return !lost;
}

void BlockMover::write_block(int group, BlockId block, std::span<const std::byte> in) {
  if (memory_.on_host()) return write(group, {request::Tier::Device, block}, in.data(), false);
  memory_.synchronize();
  std::memcpy(passing_block(), in.data(), in.size());
  write(group, {request::Tier::Device, block}, passing_block(), false);
}

}  // namespace sluice::runtime
