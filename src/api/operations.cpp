#include "api/chat.h"
#include "api/completions.h"
#include "api/models.h"
#include "api/service.h"

namespace sluice::api {

const std::vector<Operation>& operations() {
  using enum Dialect;
  static const std::vector<Operation> rows = {
      {"POST", "/v1/chat/completions", OpenAi, true, "Answer a conversation", chat_completion,
       &chat_schema()},
      {"POST", "/v1/completions", OpenAi, true, "Continue texts", completion, &completion_schema()},
      {"GET", "/v1/models", OpenAi, true, "The models that are served", list_models},
      {"GET", "/v1/models/{model}", OpenAi, true, "One model", retrieve_model},
  };
  return rows;
}

}  // namespace sluice::api
