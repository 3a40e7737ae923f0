// Memory that runs out at any place of a request's way through the server fails that request with 503, at most; others are
// served. The k-th allocation fails on the threads of one kind, for every k that there is.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "tests/server/rig.h"

namespace {

enum class Kind : uint8_t { Unknown, Other, Prepare, Engine, Http };

std::atomic<Kind> scarce{Kind::Unknown};  // threads that count
std::atomic<int64_t> allowed{0};          // allocations until one fails
std::atomic<bool> failed{false};          // it has: memory is there again
std::atomic<bool> helpless{false};        // what fails has no help of a new-handler
std::atomic<size_t> largest{SIZE_MAX};    // allocations over this fail on those threads, whatever helps

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

bool fails(size_t size) {
  if (scarce == Kind::Unknown || kind_of_thread() != scarce) return false;
  return size > largest || (allowed.fetch_sub(1) <= 0 && !failed.exchange(true));
}

void* allocate(size_t size) {
  while (true) {
    void* memory = fails(size) ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory != nullptr) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr || (helpless && scarce == kind_of_thread())) throw std::bad_alloc();
    handler();
  }
}

void* allocate_or_null(size_t size) noexcept {
  try {
    return allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void* operator new(size_t size) {
  return allocate(size);
}
void* operator new[](size_t size) {
  return allocate(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
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

constexpr int64_t kMostTries = 400;

// The k-th allocation from now on fails on the threads of a kind, and the next ones do not.
void starve(Kind kind, int64_t k) {
  failed = false;
  allowed = k;
  scarce = kind;
}

// How many allocations were made since, or were left.
int64_t feed() {
  scarce = Kind::Unknown;
  largest = SIZE_MAX;
  helpless = false;
  return allowed.exchange(0);
}

RigOptions small_queue() {
  RigOptions options;
  options.engine.queue.requests = 4;  // places that are not given back are soon missed
  return options;
}

void expect_nothing_left(Rig& rig) {
  EXPECT_TRUE(eventually([&] {
    return rig.engine_is_empty() && rig.metrics().requests == 0 && rig.metrics().connections == 0;
  })) << "requests "
      << rig.metrics().requests << " connections " << rig.metrics().connections;
  EXPECT_EQ(rig.metrics().body_bytes, 0);
  EXPECT_EQ(rig.metrics().answer_bytes, 0);
  EXPECT_EQ(rig.metrics().jobs, 0);
  EXPECT_EQ(rig.executor.complaint(), "");
}

void expect_service(Rig& rig, int64_t k) {
  const Response next = rig.ask(post(R"({"max_tokens":3})"));
  EXPECT_EQ(next.status, 200) << k;
  EXPECT_EQ(next.body, "{\"tokens\":3}") << k;
}

// How many allocations a request takes on the threads of a kind.
int64_t allocations_of(Kind kind, const std::function<void()>& request) {
  request();  // what is made once
  constexpr int64_t kPlenty = int64_t{1} << 40;
  starve(kind, kPlenty);
  request();
  return kPlenty - feed();
}

// Calls `body` for every number of the first allocations, or for some of many.
void for_each_allocation(int64_t count, const std::function<void(int64_t)>& body) {
  const int64_t stride = std::max<int64_t>(1, count / kMostTries);
  for (int64_t k = 0; k < count && !testing::Test::HasFailure(); k += stride) body(k);
}

TEST(Allocation, FailsARequestInItsReader) {
  Rig rig(small_queue());
  const std::string request = post(R"({"max_tokens":4})");
  int refused = 0;
  for_each_allocation(allocations_of(Kind::Prepare, [&] { rig.ask(request); }), [&](int64_t k) {
    starve(Kind::Prepare, k);
    const Response response = rig.ask(request);
    feed();
    EXPECT_TRUE(response.status == 200 || response.status == 503) << k << ": " << response.status;
    refused += response.status == 503;
    expect_service(rig, k);
  });
  EXPECT_GT(refused, 3);
  expect_nothing_left(rig);
}

struct Two {
  Response first, second;
};

// Two requests at once.
Two ask_both(Rig& rig, const std::string& first, const std::string& second) {
  Client one = rig.connect(), other = rig.connect();
  one.send(first);
  other.send(second);
  Two both;
  both.first = one.read_response();
  both.second = other.read_response();
  return both;
}

// A change of state of the engine is never left halfway: its thread has a reserve.
TEST(Allocation, OnTheEnginesThreadIsMadeFromItsReserve) {
  Rig rig(small_queue());
  const std::string first = stream_of(4, 1), second = stream_of(6, 3);
  const Two right = ask_both(rig, first, second);
  const int64_t count = allocations_of(Kind::Engine, [&] { ask_both(rig, first, second); });
  EXPECT_GT(count, 50);
  int reached = 0;
  for_each_allocation(count, [&](int64_t k) {
    starve(Kind::Engine, k);
    const Two both = ask_both(rig, first, second);
    reached += failed;
    feed();
    EXPECT_EQ(both.first.status, 200) << k;
    EXPECT_EQ(both.first.body, right.first.body) << k;
    EXPECT_EQ(both.second.status, 200) << k;
    EXPECT_EQ(both.second.body, right.second.body) << k;
    expect_service(rig, k);
  });
  EXPECT_GT(reached, 20);
  expect_nothing_left(rig);
}

// The reserve was needed and there is no memory to have it again.
TEST(Allocation, EndsTheYoungestWhileTheEngineHasNoReserve) {
  Rig rig(small_queue());
  const Response right = rig.ask(stream_of(6, 3));
  rig.executor.hold();
  Client older = rig.connect(), younger = rig.connect();
  older.send(stream_of(6, 3));
  EXPECT_TRUE(eventually([&] { return rig.engine().metrics().received.value() == 2; }));
  younger.send(post(R"({"max_tokens":6})"));
  EXPECT_TRUE(eventually([&] { return rig.engine().metrics().received.value() == 3; }));
  largest = size_t{32} << 10;
  starve(Kind::Engine, 0);
  rig.executor.pass();
  EXPECT_EQ(younger.read_response().status, 503);
  EXPECT_EQ(rig.ask(post(R"({"max_tokens":3})")).status, 503);
  feed();
  rig.executor.release();
  const Response response = older.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, right.body);
  older.close();
  younger.close();
  EXPECT_TRUE(eventually([&] { return rig.ask(post(R"({"max_tokens":3})")).status == 200; }));
  expect_service(rig, 0);
  expect_nothing_left(rig);
}

// More than the reserve, and for one request alone.
TEST(Allocation, FailsARequestWhosePromptTheEngineCannotHold) {
  RigOptions options = small_queue();
  options.engine.kv_manager.groups[0].blocks = {8192};
  options.engine.scheduler.max_context = 32768;
  options.engine.scheduler.max_step_tokens = 8192;
  Rig rig(options);
  rig.executor.check_kv = false;
  const Response right = rig.ask(stream_of(6, 3));
  largest = size_t{72} << 10;
  starve(Kind::Engine, int64_t{1} << 40);
  const Two both = ask_both(rig, post(R"({"prompt":20000,"max_tokens":4})"), stream_of(6, 3));
  feed();
  EXPECT_EQ(both.first.status, 503);
  EXPECT_EQ(both.second.status, 200);
  EXPECT_EQ(both.second.body, right.body);
  EXPECT_EQ(rig.ask(post(R"({"prompt":20000,"max_tokens":4})")).status, 200);
  expect_nothing_left(rig);
}

struct Tries {
  int answered = 0, refused = 0, closed = 0;
};

// Each allocation of a request on its connection's thread fails once, with the help of the thread's reserve or without.
Tries try_connection(Rig& rig, const std::string& request, bool with_reserve) {
  Tries tries;
  const Response right = rig.ask(request);
  for_each_allocation(allocations_of(Kind::Http, [&] { rig.ask(request); }), [&](int64_t k) {
    helpless = !with_reserve;
    starve(Kind::Http, k);
    Client client = rig.connect();
    client.send(request);
    const Response response = client.read_response();
    feed();
    EXPECT_TRUE(response.complete || client.at_end(0)) << k;  // nobody waits for what never comes
    if (response.complete && response.status == 200) {
      ++tries.answered;
      EXPECT_EQ(response.body, right.body) << k;
    } else if (response.status == 503) {
      ++tries.refused;
    } else {
      ++tries.closed;
      EXPECT_TRUE(response.status == 0 || response.status == 200) << k << ": " << response.status;
    }
    expect_service(rig, k);
  });
  expect_nothing_left(rig);
  return tries;
}

std::vector<std::string> requests_of_all_kinds() {
  return {post(R"({"max_tokens":4})"), stream_of(4), get("/health")};
}

// Before a byte of the answer is out it is an error with a status; after that the connection is closed.
TEST(Allocation, FailsARequestOnItsConnection) {
  Rig rig(small_queue());
  for (const std::string& request : requests_of_all_kinds()) {
    const Tries tries = try_connection(rig, request, false);
    EXPECT_GT(tries.refused, 3) << request;
    EXPECT_GT(tries.closed, 3) << request;
  }
}

TEST(Allocation, OnAConnectionsThreadIsMadeFromItsReserve) {
  Rig rig(small_queue());
  for (const std::string& request : requests_of_all_kinds()) {
    const Tries tries = try_connection(rig, request, true);
    EXPECT_GT(tries.answered, 10) << request;
    EXPECT_EQ(tries.closed, 0) << request;
  }
}

}  // namespace
}  // namespace sluice::server
