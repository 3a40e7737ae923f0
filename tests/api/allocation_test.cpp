// Memory that runs out at any place of a request's way through the API ends in std::bad_alloc, which the server answers
// with 503, and nothing is left behind: whatever a request costs, it can be asked again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/api/rig.h"

namespace {

thread_local int64_t allocations_left = -1;  // -1: any number

void* allocate(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// From the k-th allocation of this thread on every one fails, as long as it lives.
class Scarcity {
 public:
  explicit Scarcity(int64_t allowed) { allocations_left = allowed; }
  ~Scarcity() { allocations_left = -1; }
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
};

}  // namespace

void* operator new(size_t size) {
  return allocate(size);
}
void* operator new[](size_t size) {
  return allocate(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocations_left == 0 ? nullptr : allocate(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return allocations_left == 0 ? nullptr : allocate(size);
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

namespace sluice::api {
namespace {

struct Case {
  std::string_view path, body;
};
constexpr Case kCases[] = {
    {"/v1/chat/completions",
     R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello there"}],"n":2,
         "stop":["END","STOP"],"bad_words":["never"],"logit_bias":{"65":1.5},"logprobs":true,"top_logprobs":2})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":"Hello"}],"stream":true,"stream_options":{"include_usage":true}})"},
    {"/v1/completions", R"({"prompt":["one","two"],"echo":true,"logprobs":2})"},
    {"/v1/responses", R"({"input":"Hello","stream":true})"},
    {"/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"Hello"}],"stream":true})"},
    {"/api/chat", R"({"messages":[{"role":"user","content":"Hello"}]})"},
    {"/tokenize", R"({"messages":[{"role":"user","content":"Hello"}],"return_token_strs":true})"},
    {"/v1/completions", R"({"prompt":"x","temperature":7})"},
};

// Tries with ever more memory until it is enough; how often it was not.
template <class Attempt>
int64_t until_enough(const Attempt& attempt) {
  for (int64_t allowed = 0;; ++allowed) {
    try {
      attempt(allowed);
      return allowed;
    } catch (const std::bad_alloc&) {
      if (allowed > 100'000) throw;
    }
  }
}

TEST(Allocation, FailsARequestAlone) {
  Rig rig;
  for (const Case& one : kCases) {
    const Operation* operation = nullptr;
    for (const Operation& row : operations())
      if (row.method == "POST" && row.path == one.path) operation = &row;
    ASSERT_NE(operation, nullptr) << one.path;
    const Call call{operation, {}, one.body, rig.models, false, rig.context};
    const int64_t needed = until_enough([&](int64_t allowed) {
      const Scarcity scarcity(allowed);
      const Reply reply = operation->run(call);
      (void)reply;
    });
    EXPECT_GT(needed, 10) << one.path;
  }
}

TEST(Allocation, FailsAnAnswerAlone) {
  Rig rig;
  for (const Case& one : kCases) {
    until_enough([&](int64_t allowed) {
      Reply reply = rig.post(one.path, one.body);
      auto* prepared = std::get_if<EngineJob>(&reply);
      if (prepared == nullptr) return;
      const Events events{{0, delta("ok")}, {0, choice_end()}, {0, finished(5, 0, 2)}};
      std::string out;
      const Scarcity scarcity(allowed);
      for (const auto& [index, event] : events) prepared->writer->take(index, event, out);
    });
  }
  EXPECT_NE(rig.answer("/v1/completions", R"({"prompt":"x"})",
                       {{0, delta("ok")}, {0, choice_end()}, {0, finished(2, 0, 2)}})
                .find("\"ok\""),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::api
