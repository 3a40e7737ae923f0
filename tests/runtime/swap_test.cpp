// Preemption by swap and the tiers under the prefix cache, on the real executor: content moves and gets lost, the
// tokens stay the same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "open_files.h"
#include "rig.h"

namespace sluice::runtime::test {
namespace {

// Requests of every kind that together need far more KV than there is.
std::vector<request::Request> crowd() {
  std::vector<request::Request> all;
  for (uint32_t i = 0; i < 10; ++i) {
    request::Request request = greedy_request(words(6 + 5 * (i % 4), 30 + i % 7), 24);
    if (i % 5 == 1) request.sampling().method = request::Sampling{.temperature = 0.9, .seed = i};
    if (i % 5 == 2) request.sampling().method = request::BeamSearch{.width = 3};
    if (i % 5 == 3)
      request.sampling().n = 2, request.sampling().method = request::Sampling{.temperature = 1, .seed = i};
    if (i % 5 == 4) request.sampling().method = request::ContrastiveSearch{.top_k = 3, .alpha = 0.5};
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<std::vector<Token>> answers(Rig& rig, const std::vector<size_t>& indices) {
  std::vector<std::vector<Token>> out;
  for (const size_t index : indices) {
    EXPECT_FALSE(rig.answer(index).error());
    for (size_t choice = 0; choice < rig.answer(index).choices.size(); ++choice)
      out.push_back(rig.answer(index).tokens(choice));
  }
  return out;
}

std::vector<std::vector<Token>> undisturbed(const std::string& model) {
  Rig rig({.model = model, .blocks = {2000, 0, 0}, .prefix_cache = false});
  std::vector<size_t> indices;
  for (request::Request& request : crowd()) {
    indices.push_back(rig.submit(std::move(request)));
    rig.finish();
  }
  return answers(rig, indices);
}

RigOptions scarce(std::array<int, request::kTiers> blocks) {
  RigOptions options{.blocks = blocks};
  options.scheduler.preemption = sched::Preemption::Swap;
  options.scheduler.max_seqs = 12;
  options.scheduler.max_step_tokens = 40;
  return options;
}

class Swap : public testing::TestWithParam<const char*> {};

TEST_P(Swap, ThroughHostMemoryChangesNothing) {
  RigOptions options = scarce({48, 200, 0});
  options.model = GetParam();
  Rig rig(options);
  std::vector<size_t> indices;
  for (request::Request& request : crowd()) indices.push_back(rig.submit(std::move(request)));
  rig.finish();
  EXPECT_EQ(answers(rig, indices), undisturbed(GetParam()));
  EXPECT_GT(rig.engine->metrics().blocks_swapped_in.value(), 0u);
}

TEST_P(Swap, ThroughADiskThatForgetsIsComputedAgain) {
  const auto expected = undisturbed(GetParam());
  RigOptions options = scarce({48, 0, 200});
  options.model = GetParam();
  Rig rig(options);
  std::vector<size_t> indices;
  for (request::Request& request : crowd()) indices.push_back(rig.submit(std::move(request)));
  const int file = nameless_file(options.disk_folder);
  ASSERT_GE(file, 0);
  struct stat status {};
  ASSERT_EQ(fstat(file, &status), 0);
  const std::vector<char> rubbish(static_cast<size_t>(status.st_size), 'x');
  for (int step = 0; rig.step() && step < 20000; ++step) {
    if (step % 3 != 0) continue;
    ASSERT_EQ(pwrite(file, rubbish.data(), rubbish.size(), 0), static_cast<ssize_t>(rubbish.size()));
  }
  rig.finish();
  EXPECT_EQ(answers(rig, indices), expected);
  EXPECT_GT(rig.engine->metrics().kv_lost.value(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, Swap, testing::Values("expert", "windowed"));

TEST(DiskTier, LosesACachedPrefixWithoutHarm) {
  const request::Request request = greedy_request(words(40, 3), 8);
  Rig rig(scarce({14, 0, 200}));
  const std::vector<Token> expected = rig.run(request).tokens();
  for (uint32_t i = 0; i < 4; ++i)
    rig.run(greedy_request(words(40, 50 + i), 8));  // pushes the prefix to disk
  const int file = nameless_file("/var/tmp");
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 0), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.run(request).tokens(), expected);
  EXPECT_GT(rig.engine->metrics().kv_lost.value(), 0u);
}

// While it lives every write to a file fails, as on a disk without room.
class FullDisk {
 public:
  FullDisk() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit none{0, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*handler_)(int);
};

TEST(DiskTier, WithoutRoomLosesACachedPrefixWithoutHarm) {
  const request::Request request = greedy_request(words(40, 3), 8);
  Rig rig(scarce({14, 0, 200}));
  const std::vector<Token> expected = rig.run(request).tokens();
  std::vector<std::vector<Token>> found;
  {
    const FullDisk full;
    for (uint32_t i = 0; i < 4; ++i) rig.run(greedy_request(words(40, 50 + i), 8));
    for (int i = 0; i < 3; ++i) found.push_back(rig.run(request).tokens());
  }
  EXPECT_EQ(found, std::vector<std::vector<Token>>(3, expected));
  EXPECT_GT(rig.engine->metrics().kv_lost.value(), 0u);
}

TEST(DiskTier, LosesTheAmateursBlocksWithoutHarm) {
  request::Request request = greedy_request(words(40, 3), 8);
  request.sampling().method =
      request::ContrastiveDecoding{.alpha = 0.01, .beta = 1.5, .sampling = {.temperature = 0}};
  RigOptions options = scarce({14, 0, 200});
  options.amateur = "amateur";
  Rig rig(options);
  const std::vector<Token> expected = rig.run(request).tokens();
  for (uint32_t i = 0; i < 4; ++i) rig.run(greedy_request(words(40, 50 + i), 8));
  // The amateur has fewer layers, so its file is the smaller of the two.
  int smaller = -1;
  off_t size = 0;
  for (int file = 3; file < 256; ++file) {
    struct stat status {};
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 0) continue;
    if (smaller < 0 || status.st_size < size) smaller = file, size = status.st_size;
  }
  ASSERT_GE(smaller, 0);
  ASSERT_EQ(ftruncate(smaller, 0), 0);
  EXPECT_EQ(rig.run(request).tokens(), expected);
  EXPECT_GT(rig.engine->metrics().kv_lost.value(), 0u);
}

}  // namespace
}  // namespace sluice::runtime::test
