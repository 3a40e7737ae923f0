// Positions that are taken back: KvManager::truncate.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "request/block_tables.h"
#include "tests/kv/kv_fixture.h"

namespace sluice::kv {
namespace {

void write(KvManager& kv, SeqId seq, int begin, int end) {
  ASSERT_TRUE(kv.reserve(seq, {.begin = begin, .end = end, .total = end}));
}

TEST(Truncate, GivesBackBlocksPastTheTokens) {
  KvManager kv(one_group(8));
  kv.open(kA);
  write(kv, kA, 0, 15);
  EXPECT_EQ(kv.usage(0).used, 4);
  kv.truncate(kA, 9);
  kv.check();
  EXPECT_EQ(kv.usage(0).used, 3) << "the partly filled block stays";
  kv.truncate(kA, 8);
  EXPECT_EQ(kv.table(kA, 0).size(), 2u);
  kv.truncate(kA, 8);
  EXPECT_EQ(kv.table(kA, 0).size(), 2u);
  write(kv, kA, 8, 32);
  EXPECT_EQ(kv.table(kA, 0).size(), 8u);
  kv.truncate(kA, 0);
  kv.check();
  EXPECT_EQ(kv.usage(0).used, 0);
}

TEST(Truncate, LeavesForksTheirBlocks) {
  KvManager kv(one_group(8));
  kv.open(kA);
  write(kv, kA, 0, 10);
  kv.fork(kA, kB, 10);
  kv.truncate(kA, 6);
  kv.check();
  EXPECT_EQ(kv.usage(0).used, 3);
  EXPECT_EQ(kv.table(kB, 0).size(), 3u);
  const BlockId shared = kv.table(kB, 0)[1];
  write(kv, kA, 6, 7);  // into a block whose positions 6 and 7 are the fork's
  EXPECT_EQ(kv.table(kB, 0)[1], shared);
  EXPECT_NE(kv.table(kA, 0)[1], shared);
  const std::vector<request::BlockMove> moves = kv.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].from.block, shared);
  kv.check();
}

TEST(Truncate, UnpublishesWhatItTakesBack) {
  KvManager kv(one_group(16));
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(12)), 0);
  write(kv, kA, 0, 12);
  kv.publish(kA, tokens(12));
  kv.truncate(kA, 6);
  kv.check();
  kv.open(kB);
  EXPECT_EQ(kv.match(kB, tokens(20)), 4) << "the block of positions 4 to 7 is half taken back";
  kv.release(kB);
  write(kv, kA, 6, 12);
  std::vector<Token> other = tokens(6);
  for (const Token token : tokens(6, 500)) other.push_back(token);
  kv.publish(kA, other);  // other tokens than the first time
  kv.check();
  kv.release(kA);
  kv.open(kB);
  EXPECT_EQ(kv.match(kB, tokens(20)), 4);
  kv.open(kC);
  other.push_back(1);
  EXPECT_EQ(kv.match(kC, other), 12);
  kv.check();
}

TEST(Truncate, KeepsContentThatAnotherSequenceHasPublished) {
  KvManager kv(one_group(16));
  for (const SeqId seq : {kA, kB}) {
    kv.open(seq);
    const int cached = kv.match(seq, tokens(13));
    write(kv, seq, cached, 13);
    kv.publish(seq, tokens(13));
  }
  kv.truncate(kA, 5);
  kv.check();
  kv.open(kC);
  EXPECT_EQ(kv.match(kC, tokens(13)), 12);
  kv.release(kC);
  kv.truncate(kB, 5);
  kv.open(kC);
  EXPECT_EQ(kv.match(kC, tokens(13)), 4);
  kv.check();
}

TEST(Truncate, TakesBackAnnouncements) {
  KvManager kv(one_group(16));
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(12)), 0);
  kv.truncate(kA, 0);
  kv.check();
  kv.open(kB);
  EXPECT_EQ(kv.match(kB, tokens(12)), 0);
  EXPECT_FALSE(kv.is_being_computed(kB));
}

TEST(Truncate, KeepsWhatWindowsStillSee) {
  KvManagerOptions options = one_group(16);
  options.groups.push_back({.window = 6, .blocks = {8}});
  KvManager kv(options);
  kv.open(kA);
  write(kv, kA, 0, 20);
  write(kv, kA, 20, 29);  // gives back all before position 15
  EXPECT_EQ(kv.table(kA, 1)[2], request::kNoBlock);
  kv.truncate(kA, 21);
  kv.check();
  EXPECT_EQ(kv.table(kA, 0).size(), 6u);
  EXPECT_EQ(kv.table(kA, 1).size(), 6u);
  for (size_t i = 4; i < 6; ++i) EXPECT_NE(kv.table(kA, 1)[i], request::kNoBlock);
  EXPECT_EQ(kv.usage(1).used, 3);
}

TEST(Truncate, ReachesSequencesThatAreSwappedOut) {
  KvManager kv(one_group(8, 3, 8));
  kv.open(kA);
  write(kv, kA, 0, 8);
  kv.fork(kA, kB, 8);
  write(kv, kA, 8, 16);
  kv.publish(kA, tokens(16));
  const std::vector<SeqId> family{kA, kB};
  ASSERT_TRUE(kv.swap_out(family));
  kv.truncate(kA, 5);
  kv.check();
  EXPECT_EQ(kv.usage(0).host_used + kv.usage(0).disk_used, 2) << "both are the fork's as well";
  ASSERT_TRUE(kv.swap_in(family));
  kv.check();
  EXPECT_EQ(kv.table(kA, 0).size(), 2u);
  kv.open(kC);
  EXPECT_EQ(kv.match(kC, tokens(16)), 4) << "its blocks stayed on the device for their content";
}

// Random sequences that share a few prefixes, are forked, truncated, swapped and released. Memory is imitated: a slot holds
// the hash of all tokens up to it, and so does a state, and what a sequence would read is compared after each operation.
class Hammer {
 public:
  explicit Hammer(uint64_t seed) : random_(seed), kv_(options(seed)) {
    for (const KvGroup& group : kv_.options().groups) {
      auto& tiers = memory_.emplace_back();
      for (size_t tier = 0; tier < tiers.size(); ++tier)
        tiers[tier].resize(static_cast<size_t>(group.blocks[tier] * kv_.options().block_size));
    }
  }

  void run() {
    for (int i = 0; i < 120; ++i) {
      step();
      move();
      kv_.check();
      for (const auto& [seq, text] : texts_) verify(seq, text);
    }
    while (!texts_.empty()) drop(texts_.begin()->first);
    kv_.check();
    for (int group = 0; group < kv_.groups(); ++group) {
      const GroupUsage usage = kv_.usage(group);
      RC_ASSERT(usage.used + usage.host_used + usage.disk_used == 0);
    }
  }

 private:
  struct Text {
    std::vector<Token> tokens;
    int accepted = 0;  // computed and never to be taken back by speculation
    bool out = false;
    bool promised = false;  // up to kPromised tokens
  };
  static constexpr int kPromised = 60;

  static KvManagerOptions options(uint64_t seed) {
    KvManagerOptions options{.block_size = 1 + static_cast<int>(seed % 4),
                             .groups = {{.window = 0, .blocks = {24, 6, 6}}},
                             .model = "test",
                             .checkpoint_interval = 8};
    if (seed % 3 == 0) options.groups.push_back({.window = 5, .blocks = {16, 6, 6}});
    if (seed % 5 < 2)
      options.groups.push_back({.holds = KvGroup::Holds::State, .blocks = {seed % 5 == 0 ? 12 : 40, 12, 12}});
    return options;
  }
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  SeqId any() { return std::next(texts_.begin(), pick(static_cast<int>(texts_.size())))->first; }
  static uint64_t hash(const std::vector<Token>& tokens, int end) {
    uint64_t sum = 1;
    for (int i = 0; i < end; ++i) sum = sum * 31 + static_cast<uint64_t>(tokens[static_cast<size_t>(i)]);
    return sum;
  }

  void step() {
    const int what = pick(10);
    if (texts_.empty() || (what == 0 && texts_.size() < 6)) return add();
    const SeqId seq = any();
    Text& text = texts_.at(seq);
    if (what == 1) return drop(seq);
    if (what == 2 && !text.promised) return swap(seq, text);
    if (text.out) return;
    if (what == 3 && texts_.size() < 6 && !text.promised) return fork(seq);
    speculate(seq, text);
  }

  void add() {
    const SeqId seq{next_++};
    Text text;
    for (int size = 1 + pick(20); size > 0; --size) text.tokens.push_back(pick(8) == 0);
    kv_.open(seq);
    text.promised =
        pick(6) == 0 && kv_.reserve_capacity(std::span(&seq, 1), {.total = kPromised, .chunk = 24});
    const int cached = kv_.match(seq, text.tokens), size = static_cast<int>(text.tokens.size());
    if (!kv_.reserve(seq, {.begin = cached, .end = size, .total = size})) return kv_.release(seq);
    text.accepted = size;
    move();
    write(seq, text, cached);
    kv_.publish(seq, text.tokens);
    texts_[seq] = text;
  }

  void drop(SeqId seq) {
    kv_.release(seq);
    texts_.erase(seq);
  }

  void swap(SeqId seq, Text& text) {
    if (text.out ? kv_.swap_in(std::span(&seq, 1)) : kv_.swap_out(std::span(&seq, 1))) text.out = !text.out;
  }

  void fork(SeqId parent) {
    const SeqId child{next_++};
    kv_.fork(parent, child, texts_.at(parent).accepted);
    texts_[child] = texts_.at(parent);
  }

  // Some drafts are run, some of them stay, and only these are published; now and then while the sequence is swapped out.
  void speculate(SeqId seq, Text& text) {
    const int begin = text.accepted, known = kv_.keeps_states() ? 1 + pick(3) : 0, drafts = 1 + pick(9);
    const int end = begin + known + drafts;
    if (text.promised && end > kPromised) return;
    if (!kv_.reserve(seq, {.begin = begin, .end = end, .total = end, .drafts = drafts})) return;
    for (int i = begin; i < end; ++i) text.tokens.push_back(pick(8) == 0);
    move();
    write(seq, text, begin, drafts);
    kv_.check();
    if (pick(8) == 0) kv_.publish(seq, std::span(text.tokens).first(static_cast<size_t>(begin + known)));
    text.accepted += known + pick(drafts + 1);
    text.tokens.resize(static_cast<size_t>(text.accepted));
    if (pick(4) == 0 && !text.promised) swap(seq, text);
    kv_.truncate(seq, text.accepted);
    if (!text.out) kv_.publish(seq, text.tokens);
    if (!text.out && pick(10) == 0 && kv_.groups() == 1) {  // further back than what is published
      text.accepted = pick(text.accepted + 1);
      text.tokens.resize(static_cast<size_t>(text.accepted));
      kv_.truncate(seq, text.accepted);
    }
  }

  uint64_t& slot(int group, request::Place place, int offset) {
    return memory_[static_cast<size_t>(group)][static_cast<size_t>(place.tier)]
                  [static_cast<size_t>(place.block.value * kv_.options().block_size + offset)];
  }
  void move() {
    for (const request::BlockMove& move : kv_.take_moves()) {
      for (int i = 0; i < kv_.options().block_size; ++i)
        slot(move.group, move.to, i) = slot(move.group, move.from, i);
    }
  }
  uint64_t& at(SeqId seq, int group, int position) {
    const int size = kv_.options().block_size;
    const BlockId block = kv_.table(seq, group)[static_cast<size_t>(position / size)];
    RC_ASSERT(block.value >= 0);
    return slot(group, {request::Tier::Device, block}, position % size);
  }
  uint64_t& state(int group, BlockId slot_id) { return slot(group, {request::Tier::Device, slot_id}, 0); }
  void run_state(SeqId seq, int group, const Text& text, int begin, int drafts) {
    const auto slots = request::StateSlots::of(
        kv_.table(seq, group), begin, static_cast<int>(text.tokens.size()), kv_.options().block_size, drafts);
    RC_ASSERT((slots.from == request::kNoBlock) == (begin == 0));
    if (begin > 0) RC_ASSERT(state(group, slots.from) == hash(text.tokens, begin));
    for (const request::StateSlots::Save& save : slots.saves)
      state(group, save.slot) = hash(text.tokens, save.position);
  }
  void write(SeqId seq, const Text& text, int begin, int drafts = 0) {
    for (int group = 0; group < kv_.groups(); ++group) {
      if (kv_.is_state(group)) {
        run_state(seq, group, text, begin, drafts);
        continue;
      }
      for (int p = begin; p < static_cast<int>(text.tokens.size()); ++p)
        at(seq, group, p) = hash(text.tokens, p + 1);
    }
  }
  void verify(SeqId seq, const Text& text) {
    for (int group = 0; !text.out && group < kv_.groups(); ++group) {
      if (kv_.is_state(group)) {
        RC_ASSERT(state(group, kv_.table(seq, group).back()) == hash(text.tokens, text.accepted));
        continue;
      }
      const int window = kv_.options().groups[static_cast<size_t>(group)].window;
      for (int p = window == 0 ? 0 : std::max(0, text.accepted - window + 1); p < text.accepted; ++p)
        RC_ASSERT(at(seq, group, p) == hash(text.tokens, p + 1));
    }
  }

  std::mt19937_64 random_;
  KvManager kv_;
  std::map<SeqId, Text> texts_;
  std::vector<std::array<std::vector<uint64_t>, request::kTiers>> memory_;  // [group][tier][block * slot]
  uint64_t next_ = 1;
};

TEST(Truncate, HoldsUnderRandomUse) {
  EXPECT_TRUE(rc::check("every sequence reads what it wrote", [](uint64_t seed) { Hammer(seed).run(); }));
}

}  // namespace
}  // namespace sluice::kv
