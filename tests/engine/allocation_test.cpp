// Memory that is as large as a request's prompt may run out wherever the engine asks for it: that request fails, and no
// other. What the executor asks for is not counted here.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "tests/engine/engine_fixture.h"

namespace {

constexpr size_t kLarge = size_t{12} << 10;

thread_local bool counting = false;
thread_local int64_t allowed = 0;  // large allocations until one fails

void* allocate(size_t size) {
  const bool fails = counting && size >= kLarge && allowed-- == 0;
  void* memory = fails ? nullptr : std::malloc(size == 0 ? 1 : size);
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
// What operator delete below frees must come from malloc, whichever form of new was called.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
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

namespace sluice::sim {
namespace {

class UncountedExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  void submit(const Step& step) override {
    const bool before = std::exchange(counting, false);
    FakeExecutor::submit(step);
    counting = before;
  }
};

constexpr int kPrompt = 4000;

// A long prompt beside a short one; true where the long one failed. The k-th large allocation fails.
bool run_beside(const request::SamplingParams& sampling, int64_t k) {
  engine::EngineOptions options = small_options();
  options.kv_manager = {.block_size = 64, .groups = {{.window = 0, .blocks = {512}}}};
  options.scheduler.max_step_tokens = kPrompt;
  options.scheduler.max_context = 2 * kPrompt;
  UncountedExecutor executor(options.kv_manager);
  executor.check_kv = false;  // is quadratic in the length
  Answer alone, large, small;
  {
    Engine engine(options, executor);
    EXPECT_TRUE(engine.submit(ask(alone, 8, 6)).ok());
    while (engine.step()) {
    }
  }
  Engine engine(options, executor);
  Submission submission = ask(large, kPrompt, 4, 2);
  submission.request.task = sampling;
  EXPECT_TRUE(engine.submit(ask(small, 8, 6)).ok());
  EXPECT_TRUE(engine.submit(std::move(submission)).ok());
  allowed = k;
  counting = true;
  while (engine.step()) {
  }
  counting = false;
  EXPECT_EQ(small.tokens, alone.tokens) << k;
  EXPECT_EQ(large.last.size(), 1u) << k;
  EXPECT_EQ(engine.kv_manager().usage(0).used, 0) << k;
  EXPECT_TRUE(engine.scheduler().idle()) << k;
  EXPECT_EQ(executor.complaint(), "") << k;
  const bool failed = large.last.front().reason == FinishReason::Error;
  if (failed) {
    EXPECT_EQ(large.last.front().error->code, ErrorCode::Unavailable) << k;
  }
  return failed;
}

int failures(const request::SamplingParams& sampling) {
  int failed = 0;
  for (int64_t k = 0; k == 0 || allowed < 0; ++k) failed += run_beside(sampling, k);
  return failed;
}

request::SamplingParams plain() {
  request::SamplingParams sampling;
  sampling.max_tokens = 4;
  sampling.ignore_eos = true;
  return sampling;
}

TEST(Allocation, OfALongPromptFailsItsRequestAlone) {
  EXPECT_GE(failures(plain()), 2);  // a copy, and more room for the first token
}

TEST(Allocation, OfChoicesFailsTheirRequestAlone) {
  request::SamplingParams sampling = plain();
  sampling.n = 3;
  EXPECT_GE(failures(sampling), 5);  // a copy for each further choice
}

TEST(Allocation, OfBeamsFailsTheirRequestAlone) {
  request::SamplingParams sampling = plain();
  sampling.method = request::BeamSearch{.width = 3};
  EXPECT_GE(failures(sampling), 8);  // a copy for each beam in each move
}

}  // namespace
}  // namespace sluice::sim
