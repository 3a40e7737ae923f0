// What the server asks of the API: bytes of a request in, submissions for an engine and a writer of the answer out.
// Pure functions and values; no sockets, no threads, no clock but the one given.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/lab/planner.h"
#include "api/prompt/picture_fetcher.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/formats/model_format.h"
#include "compress/compressor.h"
#include "engine/events.h"
#include "engine/picture_prompt.h"
#include "grammar/grammar_store.h"
#include "request/gate.h"
#include "request/sampling_params.h"
#include "tokenizer/tokenizer.h"

namespace sluice::api {

// Whose words an answer and its errors are written in.
enum class Dialect : uint8_t { OpenAi, Anthropic, Ollama, Kserve };

// Everything a client can be told went wrong; written in a dialect by write_error().
struct ApiError {
  int status = 500;        // of HTTP
  std::string type, code;  // OpenAI's names; the other dialects' are derived from status and code
  std::string param;       // the field at fault; empty: none
  std::string message;     // names thing, value and limit
  int retry_after_s = 0;   // 0: no Retry-After
};

std::string write_error(Dialect dialect, const ApiError& error, std::string_view request_id);
// The status to answer with: the dialects differ in that of an overloaded server.
int status_of(Dialect dialect, const ApiError& error);
// What an error of the engine, of the tokenizer or of a template means to a client.
ApiError to_api_error(const Error& error);

// A model as the API sees it. The engine's owner keeps everything alive.
struct ServedModel {
  std::string id;                                     // what /v1/models says
  std::vector<std::string> aliases;                   // other names it answers to
  int64_t created = 0;                                // seconds since 1970
  const tokenizer::Tokenizer* tokenizer = nullptr;    // never null
  const chat::ChatTemplate* chat_template = nullptr;  // null: chat is refused with the reason
  std::shared_ptr<const chat::ModelFormat>
      format;               // of its answers in chats; null where there is no template
  int context = 0;          // positions of prompt and answer together
  int max_output = 0;       // tokens of an answer, longer ones are cut; 0: what fits
  int embedding = 0;        // numbers of an embedding; 0: not known
  int max_sequences = 128;  // choices or beams of one request
  int64_t vocab = 0, parameters = 0, bytes = 0;
  std::string architecture, quantization;            // for people: "llama", "Q4_1"
  request::SamplingDefaults defaults;                // of fields that a request leaves out
  grammar::GrammarStore* grammars = nullptr;         // null: constraints are refused
  compress::PromptCompressor* compressor = nullptr;  // null: `compress` is refused
  const Planner* planner = nullptr;                  // null: the lab's questions are refused
  const engine::PictureReader* pictures = nullptr;   // null: it reads text alone
};

// A model that the server knows and does not serve at the moment.
struct AbsentModel {
  std::string id;
  std::string reason;  // "is not loaded", "could not be loaded: ..."
};

struct RequestContext {
  std::string request_id;  // goes into ids and errors
  std::string client;      // whose share of the machine is used: the key's name, or the address
  std::string cache_salt;  // keeps cached prefixes apart, together with the request's own salt; empty: shared
  int64_t now_s = 0;       // wall clock, for `created`
  // The wall clock, in nanoseconds since 1970, for answers that give the time of each piece; null: now_s holds.
  int64_t (*clock)() = nullptr;
};

// Turns the events of a request's submissions into the bytes of its answer.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string_view content_type() const = 0;
  // Appends what can be sent now; of an answer that is not a stream, nothing before the last event. `index` numbers the
  // submissions.
  virtual void take(size_t index, const engine::Event& event, std::string& out) = 0;
  // The answer is complete: all of it has been appended, or is given by next_piece().
  virtual bool done() const = 0;
  // The rest of a long answer that is no stream, piece by piece, so that it is never held as a whole. False where there is
  // none.
  virtual bool has_more() const { return false; }
  virtual void next_piece(std::string& /*out*/) {}
  // Where the request failed before a byte was sent, why: the server answers with the error's own status.
  virtual const ApiError* error() const = 0;
  // Ends the answer for a reason of the server's: an event of the stream where something was sent, error() otherwise.
  virtual void fail(const ApiError& error, std::string& out) = 0;
  // The head of a stream is out though no event came yet: an error is written into the stream from now on.
  virtual void head_sent() = 0;
  // What keeps a silent stream alive; empty: nothing may be sent.
  virtual std::string_view ping() const { return {}; }
};

// A request that an engine can take.
struct EngineJob {
  const ServedModel* model = nullptr;
  std::vector<engine::Submission>
      submissions;  // `deliver` is left to the server; several for several prompts
  std::unique_ptr<AnswerWriter> writer;
  bool stream = false;
  // What is waited for before the engine is given the job; null: nothing. Then come forget_failed_wish() and the engine.
  std::shared_ptr<const request::Gate> first;
  bool is_wish = false;  // the job goes on without the grammar that `first` is where that fails
};

// An answer that needs no engine.
struct Answer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

using Reply = std::variant<ApiError, Answer, EngineJob>;

// One row per route: the server matches and authorises by it, the OpenAPI document is made from it.
struct Operation {
  std::string_view method;  // "GET" or "POST"
  std::string_view
      path;  // "/v1/chat/completions"; "{model}" takes the rest of the path, up to what follows it
  Dialect dialect = Dialect::OpenAi;
  bool needs_key = true;
  std::string_view summary;
  Reply (*run)(const struct Call& call) = nullptr;  // may take long: templates, tokenizers
  const struct RequestSchema* request = nullptr;    // fields of the body; null: there is none
};

struct Call {
  const Operation* operation = nullptr;
  std::string_view rest;  // what "{model}" took, decoded
  std::string_view body;
  const std::vector<ServedModel>& models;  // the first is the default
  bool any_model_name = false;             // unknown names mean the default model
  RequestContext context;
  Interrupt* interrupt = nullptr;  // may stop the reading of the request; null: nothing does
  std::span<const AbsentModel> absent = {};
  const PictureFetcher* fetcher = nullptr;  // of pictures that are given by address; null: those are refused
};

// Every operation that is a function of the request and the models alone. Health, metrics, the page and the live view
// are the server's own routes.
const std::vector<Operation>& operations();

// The OpenAPI document of these operations, made from the tables that the readers use.
json::object openapi();

}  // namespace sluice::api
