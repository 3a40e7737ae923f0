// KV blocks of one engine in the cache of another.
#include "engine/kv_access.h"

#include "kv/prefix_key.h"
#include "tests/engine/engine_fixture.h"

namespace sluice::sim {
namespace {

using engine::KvAccess;

class KvAccessTest : public EngineTest {};

std::vector<kv::PrefixKey> keys_of(const Engine& engine, const std::vector<Token>& tokens) {
  return kv::prefix_keys(kv::root_key(engine.kv_options().model, ""), tokens, engine.kv_options().block_size);
}

TEST_F(KvAccessTest, BlocksOfAnotherEngineAreFoundByPrompts) {
  const engine::EngineOptions options = small_options();
  FakeExecutor other_executor(options.kv_manager);
  Engine other(options, other_executor, [this] { return now_; });
  Answer source, answer;
  const int size = 3 * options.kv_manager.block_size + 2;
  const std::vector<Token> prompt = ask(source, size, 1).request.prompt;
  const std::vector<kv::PrefixKey> keys = keys_of(other, prompt);
  ASSERT_EQ(keys.size(), 3u);

  std::vector<std::string> bytes;
  int calls = 0;
  other.post([&](KvAccess& access) {
    ++calls;
    while (bytes.size() < keys.size()) {
      std::string block;
      if (!access.read(0, keys[bytes.size()], block)) return true;
      bytes.push_back(std::move(block));
    }
    return false;
  });
  ASSERT_TRUE(other.submit(ask(source, size, 1)).ok());
  while (other.step()) now_ += std::chrono::milliseconds(10);
  ASSERT_EQ(bytes.size(), 3u) << "after " << calls << " calls";
  EXPECT_EQ(static_cast<int64_t>(bytes[0].size()), other.kv_layout().block_bytes[0]);

  engine_->post([&](KvAccess& access) {
    EXPECT_EQ(access.known(keys).usable, 0);
    for (size_t i = 0; i < keys.size(); ++i)
      EXPECT_TRUE(access.write(0, keys[i], std::as_bytes(std::span(bytes[i]))));
    EXPECT_EQ(access.known(keys).usable, 3);
    EXPECT_TRUE(access.write(0, keys[0], std::as_bytes(std::span(bytes[0])))) << "it is there already";
    return false;
  });
  run();
  const int64_t before = executor_->tokens_run();
  ASSERT_TRUE(engine_->submit(ask(answer, size, 4)).ok());
  run();
  EXPECT_EQ(executor_->complaint(), "");
  EXPECT_EQ(answer.last.at(0).usage.cached_tokens, 3 * options.kv_manager.block_size);
  EXPECT_EQ(executor_->tokens_run() - before, 2 + 3);
  EXPECT_EQ(engine_->metrics().blocks_imported.value(), 3u);
  engine_->kv_manager().check();
}

// Of states the one behind the last block is enough, and without it the blocks are of no use.
TEST_F(KvAccessTest, AStateBehindTheBlocksOfAnotherEngineIsGoneOnFrom) {
  engine::EngineOptions options = small_options();
  kv::KvGroup states = options.kv_manager.groups[0];
  states.holds = kv::KvGroup::Holds::State;
  states.window = 0;
  options.kv_manager.groups = {options.kv_manager.groups[0], states};
  const int size = 3 * options.kv_manager.block_size + 2;
  Answer source, answer;
  const std::vector<Token> prompt = ask(source, size, 1).request.prompt;
  const auto run_all = [this](Engine& engine) {
    while (engine.step()) now_ += std::chrono::milliseconds(10);
  };

  FakeExecutor first_executor(options.kv_manager), second_executor(options.kv_manager);
  Engine first(options, first_executor, [this] { return now_; });
  Engine second(options, second_executor, [this] { return now_; });
  EXPECT_EQ(first.kv_layout().first_needed(1, 3), 2);
  const std::vector<kv::PrefixKey> keys = keys_of(first, prompt);
  engine::Submission prefill = ask(source, size, 1);
  prefill.request.prompt.resize(static_cast<size_t>(size - 2));
  ASSERT_TRUE(first.submit(std::move(prefill)).ok());
  run_all(first);

  std::vector<std::string> blocks(3);
  std::string state;
  first.post([&](KvAccess& access) {
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(access.read(0, keys[i], blocks[i]));
    EXPECT_TRUE(access.read(1, keys[2], state));
    return false;
  });
  run_all(first);
  second.post([&](KvAccess& access) {
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(access.write(0, keys[i], std::as_bytes(std::span(blocks[i]))));
    EXPECT_EQ(access.known(keys).blocks, 3);
    EXPECT_EQ(access.known(keys).usable, 0);
    EXPECT_TRUE(access.write(1, keys[2], std::as_bytes(std::span(state))));
    EXPECT_EQ(access.known(keys).usable, 3);
    return false;
  });
  run_all(second);
  ASSERT_TRUE(second.submit(ask(answer, size, 4)).ok());
  run_all(second);
  EXPECT_EQ(second_executor.complaint(), "");
  EXPECT_EQ(answer.last.at(0).usage.cached_tokens, 3 * options.kv_manager.block_size);
  EXPECT_EQ(second_executor.tokens_run(), 2 + 3);
  second.kv_manager().check();
}

TEST_F(KvAccessTest, ThereIsRoomForWhatNobodyHolds) {
  const int blocks = small_options().kv_manager.groups[0].blocks[0];
  Answer unused;
  const std::vector<Token> prompt =
      ask(unused, (blocks + 4) * small_options().kv_manager.block_size + 1, 1).request.prompt;
  const std::vector<kv::PrefixKey> keys = keys_of(*engine_, prompt);
  engine_->post([&](KvAccess& access) {
    EXPECT_EQ(access.room(0), blocks);
    const std::string bytes(static_cast<size_t>(engine_->kv_layout().block_bytes[0]), 'x');
    for (const kv::PrefixKey& key : keys) EXPECT_TRUE(access.write(0, key, std::as_bytes(std::span(bytes))));
    EXPECT_EQ(access.known(keys).blocks, 0) << "the last ones have taken the place of the first";
    return false;
  });
  run();
  engine_->kv_manager().check();
}

}  // namespace
}  // namespace sluice::sim
