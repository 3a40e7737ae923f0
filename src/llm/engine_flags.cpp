#include "llm/engine_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system/memory.h"

namespace sluice::llm {

namespace {

// The KV cache takes one part in this many of the memory that the process can still have unless told otherwise, ...
constexpr int64_t kShareForKv = 4;
// ... and up to one in this many where a full context needs it. The rest is for steps, answers and threads.
constexpr int64_t kLargestShareForKv = 2;
// A KV cache by default has room for no less than this, or for a full context.
constexpr int kLeastKvTokens = 512;

// Blocks that a group needs for `tokens` positions in all. Layers with a window give old blocks back, so that each
// sequence holds no more than its window and the step's own tokens.
int group_blocks(const EngineFlags& flags, int window, int tokens) {
  const int all = (tokens + flags.block_size - 1) / flags.block_size;
  if (window == 0 || flags.prefix_cache) return all;
  const int64_t each = (window + flags.max_step_tokens) / flags.block_size + 2;
  return static_cast<int>(std::min<int64_t>(all, each * flags.max_seqs));
}

// A sequence holds at most so many states: what it starts from, the checkpoint before that, a border and its end.
constexpr int kSlotsPerSequence = 4;
// States take at most one part in this many of the memory that the process can still have.
constexpr int64_t kShareForStates = 8;

bool guesses(const EngineFlags& flags) {
  return flags.speculate != "off";
}

// Slots of states: as many as there is memory for, at least for one sequence, at most for all that run at once with a state
// behind each of their drafts and a checkpoint for each block of the KV cache. 0 where the model keeps none. REQUIRES: the
// KV cache has its size.
int default_state_slots(const EngineFlags& flags, const models::ModelSpec& spec, int64_t bytes) {
  const int64_t each = models::state_bytes(models::layer_states(spec));
  if (each == 0) return 0;
  const int64_t checkpoints = flags.prefix_cache ? flags.kv_tokens / flags.block_size : 0;
  const int64_t most = kSlotsPerSequence + (guesses(flags) ? flags.speculate_tokens : 0);
  return static_cast<int>(std::clamp<int64_t>(bytes / kShareForStates / each, kSlotsPerSequence,
                                              most * flags.max_seqs + checkpoints));
}

// Slots of a lower tier: in the proportion of its positions to those of the device.
int tier_slots(const EngineFlags& flags, int tokens) {
  const int64_t share = int64_t{flags.state_slots} * tokens / std::max(1, flags.kv_tokens);
  return tokens == 0 ? 0 : static_cast<int>(std::max<int64_t>(kSlotsPerSequence, share));
}

// Of a position, with what a draft model keeps of it, on a rank of those that share the KV cache.
int64_t kv_bytes_per_position(const EngineFlags& flags, const models::Model& model,
                              const models::ModelSpec* draft) {
  const models::Share context = model.group ? model.group->placement().context : models::Share();
  const int64_t own = models::kv_bytes_per_token(model.spec(), *flags.kv_type, context);
  const int64_t beside = draft != nullptr ? models::kv_bytes_per_token(*draft, *flags.kv_type) : 0;
  return std::max<int64_t>(1, own + beside);
}

// As many positions as fit, at least one full context, at most one per sequence.
int default_kv_tokens(const EngineFlags& flags, const models::ModelSpec& spec, int64_t per_token,
                      int64_t free_bytes) {
  const int context = flags.context > 0 ? flags.context : spec.context;
  const int64_t most = int64_t{context} * flags.max_seqs;
  return static_cast<int>(std::clamp<int64_t>(free_bytes / per_token, context,
                                              std::max<int64_t>(context, std::min<int64_t>(most, 1 << 24))));
}

// Positions for which the process can still have memory. Weights that lie in the mapped file are to stay in memory.
Result<int> host_kv_tokens(const EngineFlags& flags, const models::Model& model,
                           const models::ModelSpec* draft) {
  MemoryRoom room = memory_room(model.files.tensors.total_bytes());
  room.bytes = static_cast<int64_t>(static_cast<double>(room.bytes) * flags.memory_part);
  if (model.group) room.bytes /= model.group->world().size();  // which may all be on this machine
  const int64_t per_token = kv_bytes_per_position(flags, model, draft);
  const auto positions = [&](int64_t share) { return room.bytes / share / per_token; };
  const int context = flags.context > 0 ? flags.context : model.spec().context;
  if (flags.kv_tokens > 0) {
    // Layers with a window may need less where nothing is kept for later requests.
    if (!flags.prefix_cache || flags.kv_tokens * per_token <= room.bytes) return flags.kv_tokens;
    return Error{ErrorCode::Unavailable,
                 fmt::format("--kv-tokens {} takes {}, this process can have {} more: {}", flags.kv_tokens,
                             memory_text(flags.kv_tokens * per_token), memory_text(room.bytes), room.limit)};
  }
  const int64_t least = std::min(context, kLeastKvTokens);
  if (positions(kLargestShareForKv) < least)
    return Error{
        ErrorCode::Unavailable,
        fmt::format(
            "a KV cache of {} tokens takes {}, and as much again is left for the rest; this process can "
            "have {} more: {}",
            least, memory_text(least * per_token), memory_text(room.bytes), room.limit)};
  return static_cast<int>(
      std::min<int64_t>(default_kv_tokens(flags, model.spec(), per_token, room.bytes / kShareForKv),
                        positions(kLargestShareForKv)));
}

// The largest step of a GPU. Drafts add rows to those of the sequences; steps of more are rare.
runtime::StepSize largest_step(const EngineFlags& flags) {
  constexpr int kMostVerified = 512;
  const bool drafts = guesses(flags);
  const int each = drafts ? 1 + flags.speculate_tokens : 1;
  const int rows = drafts ? std::min(kMostVerified, flags.max_seqs * each) : 0;
  return {flags.max_step_tokens, flags.max_seqs, rows, each};
}

// Positions that fit into a GPU.
Result<int> gpu_kv_tokens(const EngineFlags& flags, const models::Model& model,
                          const models::ModelSpec* draft) {
  const runtime::KvMemoryOptions kv{.block_size = flags.block_size, .type = *flags.kv_type, .blocks = {}};
  Result<int64_t> room = runtime::room_for_kv(model, kv, largest_step(flags), flags.gpu_memory);
  if (!room) return room.error();
  if (flags.memory_part < 1) {
    const auto total = static_cast<double>(model.backend->async_device()->room().total_bytes);
    const auto part = static_cast<int64_t>(total * flags.gpu_memory * flags.memory_part);
    *room = std::min(*room, part - model.files.tensors.total_bytes());
  }
  const int64_t per_token = kv_bytes_per_position(flags, model, draft);
  const int64_t state = models::state_bytes(models::layer_states(model.spec()));
  *room -= flags.state_slots > 0 ? flags.state_slots * state : state > 0 ? *room / kShareForStates : 0;
  const int64_t fitting =
      std::min<int64_t>(*room / per_token, default_kv_tokens(flags, model.spec(), per_token, *room));
  if (fitting >= flags.block_size) return static_cast<int>(fitting);
  return Error{ErrorCode::Unavailable,
               fmt::format("a KV block of {} positions takes {} bytes, the GPU has {} left for KV",
                           flags.block_size, flags.block_size * per_token, *room)};
}

}  // namespace

int default_step_tokens(bool gpu, int64_t active_parameters) {
  constexpr int64_t kSmall = 4'000'000'000;
  if (!gpu) return 512;
  return active_parameters < kSmall ? 16384 : 8192;
}

Status check_kv_type(DType type, const kernels::Backend& backend) {
  if (backend.supports_kv(type)) return {};
  return Error{ErrorCode::Unsupported,
               fmt::format("--kv-type fp8 is for GPUs; '{}' has f16, bf16, f32 and int8", backend.name())};
}

void declare_kv_type(OptionSet& options, std::optional<DType>& type, const char* help) {
  options.add_choice<std::optional<DType>>(type, "kv-type", help,
                                           {{"auto", std::nullopt},
                                            {"f16", DType::F16},
                                            {"bf16", DType::BF16},
                                            {"f32", DType::F32},
                                            {"int8", DType::I8},
                                            {"fp8", DType::F8_E4M3}});
}

Result<EngineFlags> resolve_defaults(EngineFlags flags, const models::Model& model,
                                     const models::ModelSpec* draft) {
  const bool gpu = model.backend->async_device() != nullptr;
  if (flags.max_seqs == 0) flags.max_seqs = gpu ? 256 : 32;
  if (flags.max_step_tokens == 0)
    flags.max_step_tokens = default_step_tokens(gpu, models::active_parameter_count(model.spec()));
  if (flags.block_size == 0) flags.block_size = gpu ? 64 : 16;
  if (!flags.kv_type) flags.kv_type = gpu ? DType::BF16 : DType::F16;
  if (Status status = check_kv_type(*flags.kv_type, *model.backend); !status) return status.error();
  if (!gpu || flags.kv_tokens == 0) {
    Result<int> tokens = gpu ? gpu_kv_tokens(flags, model, draft) : host_kv_tokens(flags, model, draft);
    if (!tokens) return tokens.error();
    flags.kv_tokens = *tokens;
  }
  if (flags.state_slots > 0) return flags;
  const int64_t bytes =
      gpu ? static_cast<int64_t>(flags.gpu_memory *
                                 static_cast<double>(model.backend->async_device()->room().free_bytes))
          : memory_room(model.files.tensors.total_bytes()).bytes;
  flags.state_slots = default_state_slots(flags, model.spec(), bytes);
  return flags;
}

void EngineFlags::declare(OptionSet& options) {
  options.add(scheme, "scheme", "static, dynamic, iteration or continuous batching").shown_as("NAME");
  options.add_choice<LayoutChoice>(
      layout, "layout", "whether a step pads its rows to the longest",
      {{"auto", LayoutChoice::Auto}, {"packed", LayoutChoice::Packed}, {"padded", LayoutChoice::Padded}});
  options.add_choice<sched::Prefill>(
      prefill, "prefill", "prompts and single tokens in one step, or in steps of their own",
      {{"mixed", sched::Prefill::Mixed}, {"separate", sched::Prefill::Separate}});
  options.add_choice<sched::KvPolicy>(
      kv_policy, "kv-policy", "when a request gets its KV blocks",
      {{"on-demand", sched::KvPolicy::OnDemand}, {"preallocate", sched::KvPolicy::Preallocate}});
  options.add_choice<sched::Preemption>(
      preemption, "preempt", "what happens to the blocks of a preempted request",
      {{"recompute", sched::Preemption::Recompute}, {"swap", sched::Preemption::Swap}});
  options.add(max_seqs, "max-seqs", "sequences that run at once; 0: 32, on a GPU 256").within(0, 65536);
  options
      .add(max_step_tokens, "max-step-tokens",
           "tokens of one step; 0: 512, on a GPU 8192, of models with less than 4e9 active parameters 16384")
      .within(0, 1 << 20);
  options
      .add(target_tbt, "target-tbt",
           "milliseconds that prompts may make running answers wait for a token; 0: any; default: by the "
           "running batch")
      .shown_as("MS")
      .within(0, 60'000);
  options.add(block_size, "block-size", "tokens per KV block; 0: 16, on a GPU 64").within(0, 4096);
  options.add(context, "ctx-size", "positions of one sequence; 0: what the model was made for")
      .short_name('c')
      .within(0, 1 << 24);
  options
      .add(kv_tokens, "kv-tokens", "positions of the KV cache in all; 0: by the memory this process may have")
      .within(0, 1 << 28);
  options
      .add(state_slots, "state-slots",
           "states that the KV cache holds, of layers that keep one per sequence; 0: by the memory")
      .within(0, 1 << 20);
  options
      .add(state_interval, "state-interval",
           "positions from one kept state of a long prompt to the next, as far as there are slots")
      .within(1, 1 << 24);
  declare_kv_type(options, kv_type,
                  "type of the KV cache; auto: f16, on a GPU bf16; fp8 (e4m3): on a GPU only");
  options.add(gpu_memory, "gpu-memory", "share of a GPU's memory to use in all").within(0.05, 1);
  options.add(swap_tokens, "swap-tokens", "positions of the KV tier in host memory").within(0, 1 << 28);
  options.add(disk_tokens, "disk-tokens", "positions of the KV tier on disk").within(0, 1 << 28);
  options.add(disk_folder, "disk-folder", "where the KV tier on disk lies").shown_as("DIR");
  options.add_choice<bool>(prefix_cache, "prefix-cache", "reuse the KV of equal prompt beginnings",
                           {{"on", true}, {"off", false}});
  options.add_choice<bool>(kv_cache, "kv-cache", "off: every token computes its whole sequence again",
                           {{"on", true}, {"off", false}});
  options
      .add(batch_wait, "batch-wait", "dynamic scheme: seconds the oldest request waits for a batch to fill")
      .within(0, 3600);
  options
      .add(
          speculate, "speculate",
          "who guesses the next tokens, of which several are verified in one step: off, auto, ngram, suffix, "
          "lookahead, draft:MODEL, mtp (the model's own head), eagle3:FOLDER, or auto: with MODEL, mtp or "
          "eagle3:FOLDER")
      .shown_as("PROPOSER");
  options
      .add(mmproj, "mmproj",
           "GGUF file of the model's vision tower; without it, the one file mmproj*.gguf beside the model's")
      .shown_as("FILE");
  options.add(speculate_tokens, "speculate-tokens", "most tokens that are guessed at once").within(1, 64);
  device.declare(options);
}

Result<SpeculateFlag> parse_speculate(const std::string& text) {
  using request::Speculation;
  const auto split = [](const std::string& whole) {
    const size_t colon = whole.find(':');
    return std::pair(whole.substr(0, colon), colon == std::string::npos ? "" : whole.substr(colon + 1));
  };
  const auto [first, rest] = split(text);
  const std::optional<Speculation> with = request::speculation_named(first);
  const auto [inner, path] = split(rest);
  const std::optional<Speculation> named = request::speculation_named(inner);
  SpeculateFlag flag{with.value_or(Speculation::Off), Speculation::Off, rest};
  if (with == Speculation::Auto && !rest.empty()) {
    const bool head = named == Speculation::Mtp || named == Speculation::Eagle3;
    flag.model = head ? *named : Speculation::Draft;
    if (head) flag.path = path;
  } else if (with && request::drafts_by_model(*with)) {
    flag.model = *with;
  }
  const bool needs_path = flag.model == Speculation::Draft || flag.model == Speculation::Eagle3;
  if (with && needs_path == !flag.path.empty() && text.find(':') != text.size() - 1) return flag;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("--speculate is '{}'; it must be {}, where draft is draft:MODEL, eagle3 is "
                           "eagle3:FOLDER, and auto may be auto:MODEL, auto:mtp or auto:eagle3:FOLDER",
                           text, request::speculation_names()),
               "speculate"};
}

Result<EngineSetup> make_setup(const EngineFlags& flags, const models::ModelSpec& spec,
                               const std::string& identity, std::vector<Token> end_tokens) {
  Result<sched::NamedScheme> scheme = sched::scheme_named(flags.scheme);
  if (!scheme) return scheme.error();
  EngineSetup setup;
  setup.context = flags.context > 0 ? flags.context : spec.context;
  if (spec.positions != models::Positions::None && setup.context > spec.context)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--ctx-size is {}, the model has {} positions", setup.context, spec.context)};
  if (spec.context_limit > 0 && setup.context > spec.context_limit)
    return Error{ErrorCode::Unsupported,
                 fmt::format("--ctx-size is {}: beyond {} positions the model's layers choose what they "
                             "attend to, which is not computed on this device",
                             setup.context, spec.context_limit)};
  setup.kv_tokens = flags.kv_tokens;
  // A sequence that fills the whole cache is the longest there can be.
  if (flags.kv_cache) setup.context = std::min(setup.context, std::max(setup.kv_tokens, flags.block_size));

  sched::SchedulerOptions& s = setup.scheduler;
  s.scheme = scheme->scheme;
  if (flags.scheme == "dynamic") s.scheme.max_batch_wait = Seconds(flags.batch_wait);
  s.layout = flags.layout == EngineFlags::LayoutChoice::Auto     ? scheme->layout
             : flags.layout == EngineFlags::LayoutChoice::Packed ? sched::Layout::Packed
                                                                 : sched::Layout::Padded;
  s.prefill = flags.prefill;
  s.kv_policy = flags.kv_policy;
  s.preemption = flags.preemption;
  s.max_seqs = flags.max_seqs;
  s.max_step_tokens = flags.max_step_tokens;
  if (flags.prefilled_elsewhere)
    s.target_tbt = sched::TbtOfBatch{.stretch = 1.25, .least_prompt_tokens = 4, .bursts = false};
  if (flags.target_tbt && *flags.target_tbt > 0) s.target_tbt = Seconds(*flags.target_tbt / 1e3);
  if (flags.target_tbt && *flags.target_tbt == 0) s.target_tbt = sched::TbtAny{};
  s.max_context = setup.context;
  s.rope = runtime::rope_sets(spec);
  s.kv_cache = flags.kv_cache;
  s.end_tokens = end_tokens;
  if (Status status = sched::validate(s); !status) return status.error();

  const runtime::KvGroups groups = runtime::kv_groups(spec);
  setup.kv_manager.block_size = flags.block_size;
  setup.kv_manager.checkpoint_interval = flags.state_interval;
  setup.kv_manager.prefix_cache = flags.prefix_cache && flags.kv_cache;
  setup.kv_manager.model = fmt::format("{}/{}/{}", identity, name(*flags.kv_type), flags.block_size);
  setup.executor.memory = {.block_size = flags.block_size, .type = *flags.kv_type, .blocks = {}};
  setup.executor.tiers.disk_folder = flags.disk_folder;
  for (int window : groups.windows) {
    kv::KvGroup group{.window = window, .blocks = {}};
    group.blocks = {group_blocks(flags, window, setup.kv_tokens),
                    group_blocks(flags, window, flags.swap_tokens),
                    group_blocks(flags, window, flags.disk_tokens)};
    setup.kv_manager.groups.push_back(group);
  }
  if (groups.states)
    setup.kv_manager.groups.push_back(
        {.holds = kv::KvGroup::Holds::State,
         .blocks = {std::max(flags.state_slots, kSlotsPerSequence), tier_slots(flags, flags.swap_tokens),
                    tier_slots(flags, flags.disk_tokens)}});
  for (const kv::KvGroup& group : setup.kv_manager.groups) {
    setup.executor.memory.blocks.push_back(group.blocks[0]);
    setup.executor.tiers.host_blocks.push_back(group.blocks[1]);
    setup.executor.tiers.disk_blocks.push_back(group.blocks[2]);
  }
  setup.executor.eos_tokens = std::move(end_tokens);
  setup.executor.warm_up = largest_step(flags);
  Result<SpeculateFlag> speculate = parse_speculate(flags.speculate);
  if (!speculate) return speculate.error();
  setup.executor.speculation = {.with = speculate->with, .control = {.most = flags.speculate_tokens}};
  if (flags.forced_acceptance >= 0) setup.executor.speculation.forced_acceptance = flags.forced_acceptance;
  setup.executor.padding = s.layout == sched::Layout::Padded;
  return setup;
}

}  // namespace sluice::llm
