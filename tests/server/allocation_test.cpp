// Memory that runs out at any place of a request's way through the server fails that request with 503; the next one is
// served. The k-th allocation fails on the threads of one kind, for every k that there is.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include "tests/server/rig.h"

namespace {

enum class Kind : uint8_t { Unknown, Other, Prepare, Engine, Http };

std::atomic<Kind> scarce{Kind::Unknown};  // threads that count
std::atomic<int64_t> allowed{0};          // allocations until one fails

// A name is given to a thread after its first allocations.
Kind kind_of_thread() {
  static thread_local Kind known = Kind::Unknown;
  static thread_local int looks = 0;
  if (known != Kind::Unknown || looks > 1000) return known;
  ++looks;
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  const std::string_view text(name.data());
  known = text == "prepare"  ? Kind::Prepare
          : text == "engine" ? Kind::Engine
          : text == "http"   ? Kind::Http
                             : Kind::Unknown;
  return known;
}

bool fails() {
  return scarce != Kind::Unknown && kind_of_thread() == scarce && allowed.fetch_sub(1) == 0;
}

void* allocate(size_t size) {
  if (fails()) throw std::bad_alloc();
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) {
  return allocate(size);
}
void* operator new[](size_t size) {
  return allocate(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace sluice::server {
namespace {

constexpr int64_t kMostAllocations = 2000;

// How many requests failed before one had memory enough.
int starve(Rig& rig, Kind kind, const std::string& request) {
  int failed = 0;
  for (int64_t k = 0; k < kMostAllocations; ++k) {
    allowed = k;
    scarce = kind;
    const Response response = rig.ask(request);
    const bool ran_out = allowed < 0;
    scarce = Kind::Unknown;
    // A connection that cannot even be begun is closed.
    const bool closed = kind == Kind::Http && response.status == 0;
    EXPECT_TRUE(response.status == 200 || response.status == 503 || closed) << k << ": " << response.status;
    failed += response.status != 200;
    const Response next = rig.ask(post(R"({"max_tokens":3})"));
    EXPECT_EQ(next.status, 200) << k;
    EXPECT_EQ(next.body, "{\"tokens\":3}") << k;
    if (!ran_out || testing::Test::HasFailure()) break;
  }
  EXPECT_TRUE(eventually([&] {
    return rig.engine_is_empty() && rig.metrics().requests == 0 && rig.metrics().connections == 0;
  }));
  EXPECT_EQ(rig.metrics().body_bytes, 0);
  EXPECT_EQ(rig.metrics().answer_bytes, 0);
  EXPECT_EQ(rig.metrics().jobs, 0);
  return failed;
}

TEST(Allocation, FailsARequestInItsReader) {
  Rig rig;
  EXPECT_GT(starve(rig, Kind::Prepare, post(R"({"max_tokens":4})")), 3);
}

}  // namespace
}  // namespace sluice::server
