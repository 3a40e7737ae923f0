// The functions of sluice.h over Session: null pointers are refused, errors become codes, no exception leaves.
#include <sluice.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "base/log.h"
#include "base/version.h"
#include "llm/guarded.h"
#include "llm/session.h"

struct sluice_session {
  std::unique_ptr<sluice::llm::Session> held;
};

namespace sluice::llm {

namespace {

thread_local std::string last_message;

sluice_status code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return SLUICE_INVALID_ARGUMENT;
    case ErrorCode::NotFound:
      return SLUICE_NOT_FOUND;
    case ErrorCode::Corrupt:
      return SLUICE_CORRUPT;
    case ErrorCode::Unsupported:
      return SLUICE_UNSUPPORTED;
    case ErrorCode::LimitExceeded:
      return SLUICE_LIMIT_EXCEEDED;
    case ErrorCode::Io:
      return SLUICE_IO;
    case ErrorCode::Unavailable:
      return SLUICE_UNAVAILABLE;
    case ErrorCode::Numerical:
      return SLUICE_NUMERICAL;
    case ErrorCode::Internal:
      break;
  }
  return SLUICE_INTERNAL;
}

sluice_status reported(const Error& error) noexcept {
  try {
    last_message = error.message;
  } catch (...) {
    last_message.clear();
  }
  return code_of(error.code);
}

template <class Function>
sluice_status call(Function function) noexcept {
  const Status status = guarded(function);
  return status ? SLUICE_OK : reported(status.error());
}

struct Argument {
  const void* pointer;
  const char* name;
};

Status need(std::initializer_list<Argument> arguments) {
  for (const auto& [pointer, name] : arguments)
    if (pointer == nullptr)
      return Error{ErrorCode::InvalidArgument, std::string("argument '") + name + "' is null"};
  return {};
}

Settings settings_of(const char* const* options) {
  Settings out;
  for (; options != nullptr && *options != nullptr; ++options) out.emplace_back(*options);
  return out;
}

OnText text_of(const sluice_output* output) {
  if (output == nullptr || output->on_text == nullptr) return {};
  return [output](std::string_view piece) {
    return output->on_text(output->user, piece.empty() ? "" : piece.data(), piece.size()) == 0;
  };
}

Status store(const Result<Answer>& answer, sluice_answer* out) {
  if (!answer) return answer.error();
  if (out == nullptr) return {};
  *out = {};
  switch (answer->end) {
    case Answer::End::Stop:
      out->end = SLUICE_END_STOP;
      break;
    case Answer::End::Length:
      out->end = SLUICE_END_LENGTH;
      break;
    case Answer::End::Cancelled:
      out->end = SLUICE_END_CANCELLED;
      break;
  }
  out->prompt_tokens = answer->prompt_tokens;
  out->cached_tokens = answer->cached_tokens;
  out->generated_tokens = answer->generated_tokens;
  out->first_token_seconds = answer->first_token_s;
  out->total_seconds = answer->total_s;
  return {};
}

// A copy that free() takes, with a zero behind it.
template <class T>
T* copied(const T* data, size_t count) {
  T* const out = static_cast<T*>(std::calloc(count + 1, sizeof(T)));
  if (out == nullptr) throw std::bad_alloc();
  if (count > 0) std::memcpy(out, data, count * sizeof(T));
  return out;
}

// Gives the values of a result to the caller.
template <class T>
Status hand_over(const Result<std::vector<T>>& result, T** values, size_t* count) {
  if (!result) return result.error();
  *values = copied(result->data(), result->size());
  *count = result->size();
  return {};
}

}  // namespace

extern "C" {

const char* sluice_version(void) {
  return build_info().version.data();  // a literal
}

const char* sluice_error_message(void) {
  return last_message.c_str();
}

void sluice_set_log_level(sluice_log_level level) {
  constexpr LogLevel kLevels[] = {LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Error,
                                  LogLevel::Off};
  if (level >= SLUICE_LOG_DEBUG && level <= SLUICE_LOG_OFF) set_log_level(kLevels[level]);
}

sluice_status sluice_load(const char* model, const char* const* options, sluice_session** session) {
  return call([&]() -> Status {
    if (Status given = need({{session, "session"}}); !given) return given;
    *session = nullptr;
    Result<std::unique_ptr<Session>> opened =
        Session::open(std::string(model == nullptr ? "" : model), settings_of(options));
    if (!opened) return opened.error();
    *session = new sluice_session{std::move(*opened)};
    return {};
  });
}

void sluice_unload(sluice_session* session) {
  delete session;
}

sluice_status sluice_generate(sluice_session* session, const char* prompt, const char* const* options,
                              const sluice_output* output, sluice_answer* answer) {
  return call([&]() -> Status {
    if (Status given = need({{session, "session"}, {prompt, "prompt"}}); !given) return given;
    return store(session->held->generate(prompt, settings_of(options), text_of(output)), answer);
  });
}

sluice_status sluice_chat(sluice_session* session, const sluice_conversation* conversation,
                          const char* const* options, const sluice_output* output, sluice_answer* answer) {
  return call([&]() -> Status {
    if (Status given = need({{session, "session"}, {conversation, "conversation"}}); !given) return given;
    std::vector<Message> messages;
    for (size_t i = 0; i < conversation->count; ++i) {
      if (Status given = need({{conversation->messages, "messages"}}); !given) return given;
      const sluice_message& message = conversation->messages[i];
      if (Status given = need({{message.role, "role"}, {message.content, "content"}}); !given) return given;
      messages.push_back({message.role, message.content});
    }
    return store(session->held->chat(messages, settings_of(options), text_of(output)), answer);
  });
}

sluice_status sluice_embed(sluice_session* session, const char* text, const char* const* options,
                           float** values, size_t* count) {
  return call([&]() -> Status {
    if (Status given = need({{session, "session"}, {text, "text"}, {values, "values"}, {count, "count"}});
        !given)
      return given;
    return hand_over(session->held->embed(text, settings_of(options)), values, count);
  });
}

sluice_status sluice_tokenize(sluice_session* session, const char* text, const char* const* options,
                              int32_t** tokens, size_t* count) {
  return call([&]() -> Status {
    if (Status given = need({{session, "session"}, {text, "text"}, {tokens, "tokens"}, {count, "count"}});
        !given)
      return given;
    return hand_over(session->held->tokenize(text, settings_of(options)), tokens, count);
  });
}

sluice_status sluice_detokenize(sluice_session* session, const int32_t* tokens, size_t count,
                                const char* const* options, char** text) {
  return call([&]() -> Status {
    const void* const first =
        count == 0 ? static_cast<const void*>(text) : tokens;  // of none there may be no array
    if (Status given = need({{session, "session"}, {text, "text"}, {first, "tokens"}}); !given) return given;
    const std::vector<Token> list(tokens, tokens + count);
    const Result<std::string> decoded = session->held->detokenize(list, settings_of(options));
    if (!decoded) return decoded.error();
    *text = copied(decoded->data(), decoded->size());
    return {};
  });
}

void sluice_free(void* pointer) {
  std::free(pointer);
}

}  // extern "C"

}  // namespace sluice::llm
