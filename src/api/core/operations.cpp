#include "api/anthropic/anthropic.h"
#include "api/core/service.h"
#include "api/kserve/kserve.h"
#include "api/lab/lab.h"
#include "api/llama_cpp/llama_server.h"
#include "api/llama_cpp/tokenize.h"
#include "api/ollama/ollama.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"
#include "api/openai/embeddings.h"
#include "api/openai/models.h"
#include "api/openai/responses.h"

namespace sluice::api {

const std::vector<Operation>& operations() {
  using enum Dialect;
  static const std::vector<Operation> rows = {
      {"POST", "/v1/chat/completions", OpenAi, true, "Answer a conversation", chat_completion,
       &chat_schema()},
      {"POST", "/v1/completions", OpenAi, true, "Continue texts", completion, &completion_schema()},
      {"POST", "/v1/embeddings", OpenAi, true, "Texts as vectors", embeddings, &embedding_schema()},
      {"POST", "/v1/responses", OpenAi, true, "Answer a conversation, in OpenAI's newer form",
       create_response, &response_schema()},
      {"POST", "/v1/responses/input_tokens", OpenAi, true, "Count the tokens of such a conversation",
       count_input_tokens, &input_tokens_schema()},
      {"GET", "/v1/models", OpenAi, true, "The models that are served", list_models},
      {"GET", "/v1/models/{model}", OpenAi, true, "One model", retrieve_model},
      {"POST", "/v1/messages", Anthropic, true, "Answer a conversation, in Anthropic's form", create_message,
       &message_schema()},
      {"POST", "/v1/messages/count_tokens", Anthropic, true, "Count the tokens of such a conversation",
       count_tokens, &count_schema()},
      {"POST", "/tokenize", OpenAi, true, "Tokens of a text or a conversation", tokenize, &tokenize_schema()},
      {"POST", "/detokenize", OpenAi, true, "Text of tokens", detokenize, &detokenize_schema()},
      {"POST", "/apply-template", OpenAi, true, "A conversation as the model sees it", apply_template,
       &template_schema()},
      {"POST", "/completion", OpenAi, true, "Continue a text, in llama.cpp's form", llama_completion,
       &llama_completion_schema()},
      {"POST", "/completions", OpenAi, true, "The same", llama_completion, &llama_completion_schema()},
      {"GET", "/props", OpenAi, true, "The first model, in llama.cpp's form", llama_properties},
      {"GET", "/api/version", Ollama, true, "The version of Ollama's API", ollama_version},
      {"GET", "/api/tags", Ollama, true, "The models, in Ollama's form", ollama_tags},
      {"GET", "/api/ps", Ollama, true, "The loaded models, in Ollama's form", ollama_processes},
      {"POST", "/api/show", Ollama, true, "One model, in Ollama's form", ollama_show, &ollama_show_schema()},
      {"POST", "/api/chat", Ollama, true, "Answer a conversation, in Ollama's form", ollama_chat,
       &ollama_chat_schema()},
      {"POST", "/api/generate", Ollama, true, "Answer a prompt, in Ollama's form", ollama_generate,
       &ollama_generate_schema()},
      {"POST", "/api/embed", Ollama, true, "Texts as vectors, in Ollama's form", ollama_embed,
       &ollama_embed_schema()},
      {"POST", "/api/embeddings", Ollama, true, "One text as a vector, in Ollama's older form",
       ollama_embedding, &ollama_embedding_schema()},
      {"GET", "/v2", Kserve, true, "The server, in the form of KServe and Triton", kserve_server},
      {"GET", "/v2/models/{model}", Kserve, true, "One model, in the form of KServe and Triton",
       kserve_model},
      {"POST", "/v2/models/{model}/generate", Kserve, true,
       "Continue a text, in the form of KServe and Triton", kserve_generate, &kserve_generate_schema()},
      {"POST", "/v2/models/{model}/generate_stream", Kserve, true, "The same, as a stream of events",
       kserve_generate_stream, &kserve_generate_schema()},
      {"POST", "/api/lab/plan", OpenAi, true, "What a model would do, by the planner", lab_plan,
       &lab_plan_schema()},
      {"POST", "/api/lab/schemes", OpenAi, true, "A recorded load under several scheduling schemes",
       lab_schemes, &lab_schemes_schema()},
  };
  return rows;
}

}  // namespace sluice::api
