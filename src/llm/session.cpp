#include "llm/session.h"

#include "base/log.h"
#include "formats/quote.h"
#include "llm/model_defaults.h"
#include "llm/model_store.h"

namespace sluice::llm {

namespace {

Result<std::unique_ptr<models::Model>> load(const std::string& path, const SessionOptions& options,
                                            std::shared_ptr<kernels::Backend> backend) {
  Result<models::ModelFiles> files = models::open_model(path, {.serving_context = options.engine.context});
  if (!files) return files.error();
  const auto progress = [&](float share) {
    if (options.progress) options.progress(share);
  };
  return models::load_model(std::move(*files), std::move(backend), progress);
}

// The tokens of a folder or file without a vocabulary end nowhere by themselves.
std::vector<Token> end_tokens(const std::optional<tokenizer::Tokenizer>& tokenizer, int vocab) {
  std::vector<Token> out;
  if (!tokenizer) return out;
  for (Token token : tokenizer->special().end_of_generation)
    if (token < vocab) out.push_back(token);
  return out;
}

}  // namespace

Session::~Session() {
  if (engine_) engine_->stop();
}

Status Session::load_text(const std::string& path) {
  Result<tokenizer::Tokenizer> tokenizer = model_->files.is_gguf
                                               ? tokenizer::load_tokenizer_gguf(model_->files.metadata)
                                               : tokenizer::load_tokenizer_hf(path);
  if (!tokenizer) return formats::about_file(path, tokenizer.error());
  tokenizer_.emplace(std::move(*tokenizer));
  const tokenizer::TemplateSource* source = tokenizer_->find_chat_template();
  if (source == nullptr) return {};
  Result<chat::ChatTemplate> parsed = chat::ChatTemplate::parse(source->source);
  if (parsed) {
    chat_template_.emplace(std::move(*parsed));
  } else {
    log_warning("the model's chat template cannot be used: {}", parsed.error().message);
  }
  return {};
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  auto session = std::unique_ptr<Session>(new Session);
  Result<std::string> path = llm::resolve_model(options.model);
  if (!path) return path.error();
  Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(options.engine.device);
  if (!backend) return backend.error();
  Result<std::unique_ptr<models::Model>> model = load(*path, options, *backend);
  if (!model) return model.error();
  session->model_ = std::move(*model);
  session->defaults_ = model_defaults(session->model_->files);
  if (!options.amateur.empty()) {
    Result<std::string> second = llm::resolve_model(options.amateur);
    if (!second) return second.error();
    Result<std::unique_ptr<models::Model>> amateur = load(*second, options, *backend);
    if (!amateur) return amateur.error();
    session->contrast_ = std::move(*amateur);
  }
  if (Status text = session->load_text(*path); !text && options.needs_tokenizer) return text.error();

  const models::ModelSpec& spec = session->model_->spec();
  if (options.engine.context > spec.context)
    log_warning("--ctx-size is {}, '{}' was made for {} positions: beyond them its answers may be of no use",
                options.engine.context, options.model.empty() ? *path : options.model, spec.context);
  Result<EngineFlags> flags = resolve_defaults(options.engine, *session->model_);
  if (!flags) return flags.error();
  Result<EngineSetup> setup = make_setup(*flags, spec, *path, end_tokens(session->tokenizer_, spec.vocab));
  if (!setup) return setup.error();
  session->setup_ = std::move(*setup);
  Result<std::unique_ptr<runtime::ModelExecutor>> executor =
      runtime::ModelExecutor::make(*session->model_, session->contrast_.get(), session->setup_.executor);
  if (!executor) return executor.error();
  session->executor_ = std::move(*executor);
  engine::EngineOptions engine_options{.scheduler = session->setup_.scheduler,
                                       .ledger = session->setup_.ledger,
                                       .queue = options.queue,
                                       .vocab = spec.vocab};
  session->engine_ = std::make_unique<engine::Engine>(std::move(engine_options), *session->executor_);
  session->engine_->start();
  return session;
}

Result<std::vector<Token>> Session::encode_text(std::string_view text) const {
  return tokenizer_->encode(text, {.parse_special = false, .add_special = true});
}

Result<chat::Rendering> Session::render(chat::ChatPrompt prompt) const {
  if (!chat_template_) return Error{ErrorCode::Unsupported, "the model has no chat template; use --raw"};
  return chat::render_chat(*chat_template_, *tokenizer_, std::move(prompt));
}

Result<std::vector<Token>> Session::encode_chat(chat::ChatPrompt prompt) const {
  Result<chat::Rendering> rendering = render(std::move(prompt));
  if (!rendering) return rendering.error();
  return chat::encode_rendering(*tokenizer_, *rendering);
}

}  // namespace sluice::llm
