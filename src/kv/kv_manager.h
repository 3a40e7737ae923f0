// Which block of KV memory holds which tokens of which sequence. Ids only: no memory, no device, no clock.
//
// KV memory is cut into blocks of `block_size` positions. Layers with the same attention window form a group;
// each group has its own pool of blocks and each sequence one block table per group. Position p of a sequence
// lies in table(seq, group)[p / block_size], slot p % block_size.
//
// Blocks are shared by forks and by equal prefixes, counted by reference, and copied before a shared one is
// written to. A full block whose content is published can be found again by its content; once nobody refers
// to it, it waits in order of last use to be reused or evicted, where possible to the next tier (device,
// host, disk).
//
// What recurrent layers keep of a sequence is one state, however long the sequence is. Groups of such layers have state
// slots for blocks: entry i of a table is the state behind the last position of block i that ran, and a sequence holds the
// entry that its next position starts from. A step writes its end, the last block border that it reaches, and the borders
// between where a later prompt is likely to part from this one; the other entries stay empty. A state at a border is a
// checkpoint, published and matched like the blocks of that prefix; kv_states.cpp says which ones stay. Sharing,
// copying before a write, promises and tiers are those of blocks. Where a step has drafts, the state behind each of them
// has a slot of its own behind those entries, until truncate() says which drafts stay. No promise covers these slots.
//
// Every change that needs bytes to move is noted as a BlockMove. The mover runs the moves in order, after all
// work submitted before them and before the work submitted with them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kv/block_pool.h"
#include "kv/prefix_key.h"
#include "request/block_move.h"
#include "request/request.h"

namespace sluice::kv {

struct KvGroup {
  enum class Holds : uint8_t {
    Positions,  // a block holds the KV of its positions
    State,      // a block is a state slot
  };
  Holds holds = Holds::Positions;
  int window = 0;  // of positions: a query at p sees keys in (p - window, p]; 0: all of [0, p]
  std::array<int, request::kTiers> blocks{};  // capacity of each tier
};

struct KvManagerOptions {
  int block_size = 16;
  std::vector<KvGroup> groups;
  std::string model;  // identity of everything that decides KV content besides tokens: weights, KV type, ...
  bool prefix_cache = true;  // off: match() finds nothing, publish() does nothing
  // Of groups that hold states: positions from one checkpoint of a long prompt to the next, as far as there are slots.
  int checkpoint_interval = 512;
  std::vector<Token> message_ends;  // tokens that end a message of a chat: a checkpoint is left before each
};

// What a step is about to do with a sequence.
struct Extent {
  int begin = 0;  // first position that runs; windows give back what no position from here on can see
  int end = 0;    // positions [begin, end) become writable
  // Groups without a window get blocks for [0, total) as well, so that a prompt never stalls half way.
  int total = 0;
  int drafts = 0;  // the last positions of them, which truncate() may take back; at most end - begin - 1

  int known_end() const { return end - drafts; }
};

// The most that a family of sequences (a request and its forks) will ever hold at once.
struct Demand {
  int shared = 0;     // positions common to all members
  int total = 0;      // positions of the longest member
  int sequences = 1;  // members
  int chunk = 1;      // most positions of one member in one step
};

struct GroupUsage {
  int blocks = 0;    // capacity of the device tier
  int used = 0;      // referred to by a table
  int cached = 0;    // published, not referred to: can be evicted at any moment
  int promised = 0;  // held back for promises, whether used yet or not
  int host_used = 0, disk_used = 0;
};

// One block of the device.
struct BlockUse {
  int holders = 0;    // sequences that refer to it
  bool kept = false;  // its content can be found again
};

struct KvCounters {
  uint64_t evicted = 0;                      // published blocks lost for good
  uint64_t demoted = 0, promoted = 0;        // published blocks moved down and up the tiers
  uint64_t copied = 0;                       // copies on write
  uint64_t swapped_out = 0, swapped_in = 0;  // blocks of preempted sequences
  uint64_t imported = 0;                     // blocks that another process computed
  uint64_t checkpoints = 0;                  // states left where a later prompt may part from its sequence
};

// What can be matched at one moment, for those who choose where to send a prompt.
struct PublishedKeys {
  uint64_t version = 0;        // differs where the keys do
  std::vector<uint64_t> keys;  // short forms, of the blocks of the first group on any tier
};

class KvManager {
 public:
  explicit KvManager(KvManagerOptions options);

  const KvManagerOptions& options() const { return options_; }
  // Whether any group holds states.
  bool keeps_states() const;
  bool is_state(int group) const;
  int groups() const { return static_cast<int>(options_.groups.size()); }
  // Where the content of a block lies; nothing where no tier has it.
  std::optional<request::Place> find(int group, const PrefixKey& key) const;
  // A device block for content that was computed elsewhere, cached and held by nobody. The caller writes it after the moves
  // noted so far and before the next step. Nothing where the content is there already, or no block can be had without
  // breaking a promise. Of a group of states the key is that of the last block before the state.
  std::optional<BlockId> import(int group, const PrefixKey& key);
  uint64_t published_version() const;
  PublishedKeys published() const;

  // What decides the KV of a sequence besides its tokens.
  struct Input {
    std::string_view salt;
    int rope_set = 0;
    // For its spans and positions, and for whether the contrast model runs it too; null: plain text.
    std::shared_ptr<const request::Request> request;
  };
  // A new sequence with empty tables. Only sequences opened with equal salts and sets of rotary frequencies, and run by the
  // same models, ever share content.
  void open(SeqId seq, std::string_view salt = {}, int rope_set = 0) {
    open(seq, Input{salt, rope_set, nullptr});
  }
  void open(SeqId seq, const Input& input);
  bool contains(SeqId seq) const { return sequences_.contains(seq); }

  // Attaches the longest cached prefix of whole blocks that leaves at least one of `tokens` to run, and
  // returns its length in tokens. REQUIRES: empty tables.
  int match(SeqId seq, std::span<const Token> tokens);
  // After match(): another sequence is about to compute the next block of these tokens, and waiting for it
  // would save the work.
  bool is_being_computed(SeqId seq) const;

  // Makes room as the extent says: all or nothing over all groups (windows give back in any case). False
  // where the pools cannot give the blocks without breaking a promise.
  bool reserve(SeqId seq, const Extent& extent);
  // Drafts that a sequence may have in its next step: none that would take a state slot that some sequence's next step
  // may need. As many as one likes where no group holds states.
  int most_drafts() const;

  // Holds back blocks so that later reserve(), match() and swap_in() calls of the family within `demand`
  // cannot fail; forks made from here on belong to the family. All or nothing. The promise ends with the
  // family's last release. REQUIRES: no promise yet, and no block on the device.
  bool reserve_capacity(std::span<const SeqId> family, const Demand& demand);

  // The content of every block that these tokens fill is computed, and the tokens stay: the blocks can be matched from now
  // on. A position that may still be rejected is not to be among them.
  void publish(SeqId seq, std::span<const Token> accepted);
  // Takes back the positions from `tokens` on, on whichever tier the sequence lies: blocks beyond them are given back, and
  // what was published of them can be matched no more, unless another sequence has published the same. A last block that
  // stays is copied before the next write where others hold it, as always. REQUIRES: no window has given back what
  // position `tokens` sees, which holds where `tokens` is not before the first position of the last reserve(); and, where a
  // group holds states, `tokens` are not before the drafts of the last reserve().
  void truncate(SeqId seq, int tokens);
  // The content of the sequence is not to be trusted: none of its blocks can be matched any more.
  void invalidate(SeqId seq);

  // Opens `child` with the first `tokens` positions of `parent`, all blocks shared. REQUIRES: where a group holds states,
  // `tokens` are all that the parent has run, and it has no drafts.
  void fork(SeqId parent, SeqId child, int tokens);

  void release(SeqId seq);
  // Gives all blocks back; the sequence starts again from its first position.
  void rewind(SeqId seq);

  // Moves all blocks of a family to the lower tiers, shared ones once, and back. All or nothing; a sequence
  // that is out can only be released or brought back in.
  bool swap_out(std::span<const SeqId> family);
  bool swap_in(std::span<const SeqId> family, int spare = 0);  // leaves `spare` blocks of each group to take

  // Forgets all content, for a device that has lost it. REQUIRES: no sequences.
  void forget_all();

  // The moves noted since the last call, in order.
  std::vector<request::BlockMove> take_moves();

  // Valid until the next change of this sequence. REQUIRES: not swapped out.
  std::span<const BlockId> table(SeqId seq, int group) const;

  int blocks_for(int tokens) const { return (tokens + options_.block_size - 1) / options_.block_size; }
  // Most blocks of the group that the demand can hold at once.
  int peak_blocks(int group, const Demand& demand) const;
  // True where a KV manager without any other sequence could promise this. Reads options only.
  bool could_ever_hold(const Demand& demand) const;

  int capacity(int group) const { return options_.groups[static_cast<size_t>(group)].blocks[0]; }
  // Blocks that a sequence without a promise may still take.
  int available(int group) const { return room(group, Ref::Unreserved); }
  GroupUsage usage(int group) const;
  BlockUse use(int group, BlockId block) const;
  const KvCounters& counters() const { return counters_; }
  size_t sequences() const { return sequences_.size(); }

  // Verifies every invariant; linear in blocks and tables. Aborts with both sides on a broken one.
  void check() const;

 private:
  struct Promise {
    std::vector<int> blocks;  // per group
    int members = 0;
  };
  // Positions [begin, begin + count) hold drafts that are not settled. The last `count` entries of a table of states are
  // the states behind them.
  struct Drafts {
    int begin = 0, count = 0;
  };
  struct Sequence {
    std::vector<std::vector<BlockId>> tables;       // per group, by position
    std::vector<std::vector<request::Tier>> tiers;  // of the same entries, where swapped out; otherwise empty
    std::vector<int> given_back;                    // per group: leading entries already given back
    std::vector<PrefixKey> keys;                    // of the leading full blocks of known tokens
    PrefixKey root;
    std::shared_ptr<const request::Request>
        request;        // whose spans and positions the keys cover; null: plain text
    int published = 0;  // leading blocks whose keys were offered to the pools
    int announced = 0;  // keys [published, announced) are announced as coming
    std::shared_ptr<Promise> promise;
    std::vector<int> marks;  // blocks of the prompt whose last border is worth a checkpoint, ascending
    int interval = 0;        // blocks from one checkpoint to the next; 0: not known yet
    int attached = 0;        // leading blocks that match() found
    Drafts drafts;           // where a group holds states

    bool out() const { return !tiers.empty(); }
    Ref holder() const { return promise ? Ref::Reserved : Ref::Unreserved; }
  };
  struct Group {
    std::array<BlockPool, request::kTiers> pools;
    int promised = 0;  // sum over promises
  };

  Sequence& resident(SeqId seq);
  const Sequence& resident(SeqId seq) const;
  BlockPool& pool(int group, request::Tier tier);
  const BlockPool& pool(int group, request::Tier tier) const;
  // First block of the group that a query at `position` or later can see.
  int first_visible(int group, int position) const;
  // First block that a sequence which runs from `position` on keeps. A checkpoint is kept until it is published: that is
  // when its step is committed, and by then the next one may have been planned.
  int first_kept(int group, const Sequence& sequence, int position) const;
  // Blocks that a holder of this kind may still take on the device.
  int room(int group, Ref holder) const;

  // REQUIRES: the pool can give one. Content evicted from it goes down a tier where it can.
  BlockId take(int group, request::Tier tier, Ref holder);
  void demote(int group, request::Place from, const PrefixKey& key);
  // The entries before `first`.
  void give_back(int group, Sequence& sequence, int first);
  // Who refers to the block of an entry.
  Ref holder_of(int group, const Sequence& sequence, size_t entry) const;
  void unref_entry(int group, const Sequence& sequence, size_t entry);
  void unref_all(Sequence& sequence);
  int missing_blocks(int group, const Sequence& sequence, const Extent& extent) const;
  void grow(int group, Sequence& sequence, const Extent& extent);
  bool shared(int group, BlockId block) const;

  // kv_states.cpp
  std::vector<int> state_entries(const Extent& extent) const;
  int spare_slots(int group) const;
  std::vector<int> extra_entries(int group, const Sequence& sequence, const Extent& extent,
                                 int missing) const;
  void mark_checkpoints(Sequence& sequence, std::span<const Token> tokens, int branch) const;
  bool is_checkpoint(const Sequence& sequence, int block) const;
  void drop_if_passed(int group, const Sequence& sequence, int block);
  int missing_slots(int group, const Sequence& sequence, const Extent& extent) const;
  void grow_states(int group, Sequence& sequence, const Extent& extent);
  // Forgets drafts that were never settled.
  void drop_drafts(Sequence& sequence);
  void settle_states(int group, Sequence& sequence, int tokens);
  // Makes the content of block `index` unfindable, unless another sequence has published the same.
  void retire_content(const Sequence& sequence, size_t index);

  void announce(Sequence& sequence);
  void retract(const Sequence& sequence, int begin, int end);
  void extend_keys(Sequence& sequence, std::span<const Token> tokens) const;
  // Leading blocks that can be used, and those that could be if every state were kept.
  struct Found {
    int usable = 0, without_states = 0;
  };
  Found longest_match(const Sequence& sequence, int limit) const;
  bool attach(int group, Sequence& sequence, int blocks);
  BlockId promote(int group, request::Place from, const PrefixKey& key, Ref holder);

  using PlaceMap = std::unordered_map<int64_t, request::Place>;  // by tier and block of the old place
  void relocate(int group, std::span<const SeqId> family, const PlaceMap& targets);

  void check_sequence(const Sequence& sequence) const;
  void check_holders(int group) const;
  void check_promises() const;

  KvManagerOptions options_;
  std::vector<Group> groups_;
  std::unordered_map<SeqId, Sequence> sequences_;
  std::unordered_map<PrefixKey, int, PrefixKeyHash> coming_;  // announcements of each key
  std::vector<request::BlockMove> moves_;
  KvCounters counters_;
};

}  // namespace sluice::kv
