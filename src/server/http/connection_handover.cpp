// KV blocks between servers: how a connection has a prompt prefilled elsewhere, and prefills for others.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "base/log.h"
#include "kv/prefix_key.h"
#include "server/handover/kv_export.h"
#include "server/handover/kv_import.h"
#include "server/handover/kv_wire.h"
#include "server/handover/prefill_fetch.h"
#include "server/handover/wake_up.h"
#include "server/http/connection.h"

namespace sluice::server {

namespace {

// Fewer tokens than this are computed in a step or two, sooner than they are asked for.
constexpr int kLeastPrefill = 64;
// Bytes of blocks that wait for the engine before no more are read: where it runs steps on the same core, what is read
// at once makes one of them wait.
constexpr size_t kMostBrought = size_t{1} << 20;

// Whether its KV is decided by tokens and salt alone, and looked for in the cache.
bool is_plain(const request::Request& request) {
  return request.pooling() == nullptr && request.spans.empty() && request.positions.values.empty() &&
         !request::uses_contrast_model(request) && !request.sampling().prompt_logprobs;
}

// What a task of the engine finds in the cache.
struct Look {
  engine::KvAccess::Known known;
  std::atomic<bool> over = false;  // known is said
};

// Ends what runs beside the connection, however the connection's own work ends.
template <class Function>
class AtEnd {
 public:
  explicit AtEnd(Function function) : function_(std::move(function)) {}
  ~AtEnd() { function_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Function function_;
};

engine::Submission prefill_of(const PrefillOrder& order, const std::string& client) {
  engine::Submission submission;
  request::Request& request = submission.request;
  // The token behind the last whole block is the other side's.
  const auto size = static_cast<size_t>(order.layout.block_size);
  const size_t kept = (order.tokens.size() - 1) / size * size;
  request.prompt.assign(order.tokens.begin(), order.tokens.begin() + static_cast<ptrdiff_t>(kept));
  request.cache_salt = order.salt;
  request.client = client;
  request::SamplingParams sampling;
  sampling.max_tokens = 1;
  request.task = std::move(sampling);
  return submission;
}

}  // namespace

// False: the client has gone, or the server has no more time for it.
asio::awaitable<bool> Connection::fetch_prefixes(api::EngineJob& prepared, const Backend& backend) {
  if (state_.options().role != Role::Decode) co_return true;
  const TimePoint start = Clock::now();
  for (engine::Submission& submission : prepared.submissions) {
    if (!is_plain(submission.request)) continue;
    const bool there = co_await fetch_prefix(submission.request, *backend.engine);
    if (!there) co_return false;
  }
  for (engine::Submission& submission : prepared.submissions)
    if (submission.first_token_within) *submission.first_token_within -= Seconds(seconds_since(start));
  co_return true;
}

// Waits until `over` says so, or the request is of no more use.
template <class Over>
asio::awaitable<bool> Connection::wait_for(Over over) {
  while (!over()) {
    if (lost_ || closed_) co_return false;
    if (aborting_) {
      put(error_reply(current_.route->dialect, overloaded("the server is shutting down"), current_.id));
      co_return false;
    }
    co_await wait_until(after(kLookAgain));
  }
  co_return true;
}

asio::awaitable<bool> Connection::fetch_prefix(const request::Request& request, engine::Engine& engine) {
  PrefillOrder order{engine.kv_layout(), request.cache_salt, 0, {}};
  const engine::KvLayout& layout = order.layout;
  const std::vector<kv::PrefixKey> keys =
      kv::prefix_keys(kv::root_key(layout.model, request.cache_salt), request.prompt, layout.block_size);
  const auto waken = std::make_shared<WakeUp>(waker());
  const AtEnd silenced([&] { waken->close(); });
  const std::function<void()> wake = [waken] { (*waken)(); };
  const auto look = std::make_shared<Look>();
  engine.post([look, keys, wake](engine::KvAccess& access) {
    look->known = access.known(keys);
    look->over = true;
    wake();
    return false;
  });
  const bool looked = co_await wait_for([&] { return look->over.load(); });
  if (!looked) co_return false;
  const int missing = static_cast<int>(keys.size()) - look->known.usable;
  PrefillPeers::Peer* const peer = missing * layout.block_size < kLeastPrefill
                                       ? nullptr
                                       : state_.prefill_peers().choose(parser_.head().find(kPrefillField));
  if (peer == nullptr) co_return true;
  order.tokens = request.prompt;
  // Where a state alone is missing, one block comes beside it.
  order.first = std::min(look->known.blocks, static_cast<int>(keys.size()) - 1);

  const auto import = std::make_shared<KvImport>(layout.block_bytes.size(), keys, wake);
  engine.post([import, &engine](engine::KvAccess& access) {
    return import->run(access, [&engine] { engine.wake_kv_tasks(); });
  });
  const auto fetch = std::make_shared<PrefillFetch>(
      socket_.get_executor(),
      PrefillFetch::Target{peer->address, state_.prefill_peers().key(), state_.options().prefill_timeout},
      BlockReader(layout, order.first, static_cast<int>(keys.size())),
      PrefillFetch::Taker{[import, &engine](std::vector<HandedBlock> blocks) {
                            import->add(std::move(blocks));
                            engine.wake_kv_tasks();
                          },
                          [import] { return import->waiting() < kMostBrought; }, wake});
  ++peer->running;
  const AtEnd ended([&] {
    --peer->running;
    fetch->cancel();
    import->close();
    engine.wake_kv_tasks();
  });
  fetch->start(write_order(order));
  const bool fetched = co_await wait_for([&] { return fetch->over(); });
  if (!fetched) co_return false;
  note_fetch(*peer, fetch->status());
  import->close();
  engine.wake_kv_tasks();
  const bool written = co_await wait_for([&] { return import->done(); });
  co_return written;
}

// Without the other server, the engine computes the prompt itself.
void Connection::note_fetch(PrefillPeers::Peer& peer, const Status& status) {
  (status ? state_.metrics().prefills_fetched : state_.metrics().prefills_failed).add();
  if (status) return;
  PrefillPeers::note_failure(peer);
  log_warning("prefilling here: {} {}", peer.url, status.error().message);
}

// Prefills for another server, and sends the blocks of each chunk while the next one is computed.
Connection::Awaitable Connection::hand_over(const Admission& admission) {
  const auto refuse = [&](int status, std::string code, std::string message) {
    put(error_reply(current_.route->dialect,
                    {status, status < 500 ? "invalid_request_error" : "server_error", std::move(code), "",
                     std::move(message), 0},
                    current_.id));
  };
  if (!state_.loaded() || state_.refusing()) {
    put(error_reply(current_.route->dialect,
                    overloaded(state_.loaded() ? "the server is shutting down" : "the model is being loaded"),
                    current_.id));
    co_return;
  }
  Result<PrefillOrder> order = parse_order(parser_.body());
  release_body();
  if (!order) {
    refuse(400, "bad_request", order.error().message);
    co_return;
  }
  const std::shared_ptr<const ModelSet> models = state_.models();  // until the answer is over
  engine::Engine* engine = nullptr;
  Status same = Error{ErrorCode::NotFound, "no model is loaded"};
  for (const Backend& backend : models->backends) {
    const Status sound = check_layout(backend.engine->kv_layout(), order->layout);
    if (sound) engine = backend.engine;
    if (&backend == models->backends.data()) same = sound;
  }
  if (engine == nullptr) {
    refuse(409, "kv_mismatch", same.error().message);
    co_return;
  }
  co_await stream_blocks(*order, *engine, admission.client);
}

Connection::Awaitable Connection::stream_blocks(const PrefillOrder& order, engine::Engine& engine,
                                                const std::string& client) {
  const auto waken = std::make_shared<WakeUp>(waker());
  const auto blocks = std::make_shared<KvExport>(
      order.layout,
      kv::prefix_keys(kv::root_key(order.layout.model, order.salt), order.tokens, order.layout.block_size),
      order.first, [waken] { (*waken)(); });
  engine.post([blocks](engine::KvAccess& access) { return blocks->run(access); });
  const AtEnd ended([&] {
    waken->close();
    blocks->cancel();
    engine.wake_kv_tasks();
  });
  engine::Submission submission = prefill_of(order, client);
  submission.deliver = [blocks](const engine::Event& event) {
    if (std::holds_alternative<engine::Finished>(event)) blocks->prefill_ended();
  };
  const Result<engine::RequestId> id = engine.submit(std::move(submission));
  if (!id) {
    put(error_reply(current_.route->dialect, api::to_api_error(id.error()), current_.id));
    co_return;
  }
  const AtEnd cancelled([&] { engine.cancel(*id); });  // of what has ended nothing comes
  state_.metrics().prefills_served.add();
  closing_ = true;  // its end is the connection's
  ResponseHead head = make_head(200, kKvContentType);
  current_.status = 200;
  head_sent_ = true;
  const bool chunked = head.minor_version == 1;
  std::string bytes = write_head(head), part;
  append_stream_head(part);
  for (bool over = false; !over || !part.empty();) {
    if (chunked) {
      append_chunk(bytes, part);
    } else {
      bytes += part;
    }
    const bool sent = co_await send(bytes);
    if (!sent || aborting_) co_return;
    bytes.clear();
    KvExport::Taken taken = blocks->take();
    over = taken.over;
    part = std::move(taken.bytes);
    if (!part.empty()) engine.wake_kv_tasks();
    if (part.empty() && !over) co_await wait_until(after(kLookAgain));
    if (lost_ || closed_) co_return;
  }
  if (chunked) co_await send(kLastChunk);
}

}  // namespace sluice::server
