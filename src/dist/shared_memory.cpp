#include "dist/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <string>

namespace sluice::dist {

namespace {

// What the first rank tells the others of the memory that it has made.
struct Offer {
  char name[48] = {};  // "": there is none
  uint64_t token = 0;  // the first word of the memory: another host may have the name, too
};

std::shared_ptr<std::byte> map(int file, size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(at), [bytes](std::byte* mapped) { munmap(mapped, bytes); }};
}

uint64_t& token_of(std::byte* memory) {
  return *reinterpret_cast<uint64_t*>(memory);
}

// Makes memory under a name that nobody has; all of it is there, so that no write fails later.
std::shared_ptr<std::byte> create(Offer& offer, size_t bytes) {
  std::random_device random;
  const auto number = [&] { return uint64_t{random()} << 32 | random(); };
  const std::string name = fmt::format("/sluice-{:016x}{:016x}", number(), number());
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) return nullptr;
  std::shared_ptr<std::byte> memory;
  if (posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) memory = map(file, bytes);
  close(file);
  if (memory == nullptr) {
    shm_unlink(name.c_str());
    return nullptr;
  }
  name.copy(offer.name, sizeof offer.name - 1);
  offer.token = token_of(memory.get()) = number();
  return memory;
}

std::shared_ptr<std::byte> open_offered(const Offer& offer, size_t bytes) {
  if (offer.name[0] == '\0') return nullptr;
  const int file = shm_open(offer.name, O_RDWR, 0600);
  if (file < 0) return nullptr;
  std::shared_ptr<std::byte> memory;
  if (lseek(file, 0, SEEK_END) == static_cast<off_t>(bytes)) memory = map(file, bytes);
  close(file);
  return memory != nullptr && token_of(memory.get()) == offer.token ? memory : nullptr;
}

}  // namespace

std::shared_ptr<std::byte> share_memory(Communicator& ranks, size_t bytes) {
  Offer offer;
  std::shared_ptr<std::byte> memory;
  if (ranks.rank() == 0) memory = create(offer, bytes);
  ranks.broadcast(0, std::as_writable_bytes(std::span(&offer, 1)));
  offer.name[sizeof offer.name - 1] = '\0';
  if (ranks.rank() > 0) memory = open_offered(offer, bytes);
  float have = memory != nullptr ? 1.0f : 0.0f;
  ranks.all_reduce({&have, 1});
  if (ranks.rank() == 0 && memory != nullptr) shm_unlink(offer.name);
  if (have != static_cast<float>(ranks.size())) return nullptr;
  // The token has served: all have seen it.
  if (ranks.rank() == 0) token_of(memory.get()) = 0;
  ranks.barrier();
  return memory;
}

}  // namespace sluice::dist
