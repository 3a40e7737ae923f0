#include "llm/session.h"

#include <fmt/format.h>

#include "base/log.h"
#include "chat/chat_prompt.h"
#include "chat/chat_template.h"
#include "chat/formats/model_format.h"
#include "formats/quote.h"
#include "grammar/grammar_store.h"
#include "llm/draft_vocabulary.h"
#include "llm/guarded.h"
#include "llm/model_defaults.h"
#include "llm/model_store.h"
#include "llm/picture_reader.h"
#include "llm/session_options.h"
#include "models/fingerprint.h"
#include "models/heads/head.h"
#include "models/model.h"
#include "runtime/model_executor.h"
#include "runtime/parallel/stage_times.h"
#include "tokenizer/tokenizer.h"

namespace sluice::llm {

struct Session::Parts {
  std::unique_ptr<models::Model> model, contrast, draft;
  std::optional<models::Head> head;
  std::optional<tokenizer::Tokenizer> tokenizer;
  std::optional<chat::ChatTemplate> chat_template;
  std::unique_ptr<engine::PictureReader> pictures;
  EngineSetup setup;
  request::SamplingDefaults defaults;
  std::shared_ptr<grammar::GrammarStore> grammars;
  std::unique_ptr<runtime::ModelExecutor> executor;
  std::unique_ptr<engine::Engine> engine;

  Status load_text(const std::string& path);
  // REQUIRES: the model is loaded, and its text where it has one.
  Status load_draft(const SessionOptions& options);
  // REQUIRES: the model is loaded, and its text where it has one.
  Status start_engine(const SessionOptions& options, const std::string& path);
};

namespace {

Result<std::unique_ptr<models::Model>> load(const std::string& path, const SessionOptions& options,
                                            std::shared_ptr<kernels::Backend> backend,
                                            std::shared_ptr<models::ModelGroup> group = nullptr) {
  Result<models::ModelFiles> files =
      models::open_model(path, {.serving_context = options.engine.context, .mmproj = options.engine.mmproj});
  if (!files) return files.error();
  const auto progress = [&](float share) {
    if (options.progress) options.progress(share);
  };
  return models::load_model(std::move(*files), std::move(backend), progress, std::move(group));
}

// As load(); stages have the layers that were measured to be best.
Result<std::unique_ptr<models::Model>> load_measured(const std::string& path, const SessionOptions& options,
                                                     const std::shared_ptr<kernels::Backend>& backend) {
  Result<std::unique_ptr<models::Model>> model = load(path, options, backend, options.group);
  if (!model) return model;
  Result<std::vector<int>> stage_layers = runtime::measure_stages(**model);
  if (!stage_layers) return stage_layers.error();
  if (stage_layers->empty()) return model;
  model->reset();  // its memory goes before the new one's comes
  options.group->cut_by(std::move(*stage_layers));
  return load(path, options, backend, options.group);
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

Status Session::Parts::load_text(const std::string& path) {
  Result<tokenizer::Tokenizer> loaded = model->files.is_gguf
                                            ? tokenizer::load_tokenizer_gguf(model->files.metadata)
                                            : tokenizer::load_tokenizer_hf(path);
  if (!loaded) return formats::about_file(path, loaded.error());
  tokenizer.emplace(std::move(*loaded));
  const tokenizer::TemplateSource* source = tokenizer->find_chat_template();
  if (source == nullptr) return {};
  Result<chat::ChatTemplate> parsed = chat::ChatTemplate::parse(source->source);
  if (parsed) {
    chat_template.emplace(std::move(*parsed));
  } else {
    log_warning("the model's chat template cannot be used: {}", parsed.error().message);
  }
  return {};
}

Status Session::Parts::load_draft(const SessionOptions& options) {
  Result<SpeculateFlag> flag = parse_speculate(options.engine.speculate);
  if (!flag) return flag.error();
  using request::Speculation;
  const models::Placement placement = options.group ? options.group->placement() : models::Placement();
  if (flag->model == Speculation::Eagle3 && !(placement.stage.whole() && placement.tokens.whole()))
    return Error{ErrorCode::Unsupported,
                 fmt::format("--speculate is '{}', which reads what enters layers: rank 0 has not all of it "
                             "with --pp, --cp or --sp on",
                             options.engine.speculate),
                 "speculate"};
  if (flag->model == Speculation::Mtp || flag->model == Speculation::Eagle3) {
    Result<models::Head> found = flag->model == Speculation::Mtp
                                     ? models::load_mtp_head(*model)
                                     : models::load_eagle3_head(flag->path, *model);
    if (!found) return found.error();
    head.emplace(std::move(*found));
  }
  if (flag->model != Speculation::Draft) return {};
  Result<std::string> path = resolve_model(flag->path);
  if (!path) return path.error();
  Result<std::unique_ptr<models::Model>> loaded = load(*path, options, model->backend);
  if (!loaded) return loaded.error();
  draft = std::move(*loaded);
  Result<tokenizer::Tokenizer> text = draft->files.is_gguf
                                          ? tokenizer::load_tokenizer_gguf(draft->files.metadata)
                                          : tokenizer::load_tokenizer_hf(*path);
  if (tokenizer && text) return check_same_tokens(*text, *tokenizer);
  if (draft->spec().vocab == model->spec().vocab) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the draft model has a vocabulary of {}, the model of {}", draft->spec().vocab,
                           model->spec().vocab),
               "speculate"};
}

Status Session::Parts::start_engine(const SessionOptions& options, const std::string& path) {
  const models::ModelSpec& spec = model->spec();
  if (options.engine.context > spec.context)
    log_warning("--ctx-size is {}, '{}' was made for {} positions: beyond them its answers may be of no use",
                options.engine.context, options.model.empty() ? path : options.model, spec.context);
  if (options.group && options.engine.disk_tokens > 0)
    return Error{
        ErrorCode::Unsupported,
        fmt::format("--disk-tokens is {}: the KV tier on disk is for one rank", options.engine.disk_tokens)};
  const models::Model* guesses = head ? head->model.get() : draft.get();
  Result<EngineFlags> flags =
      resolve_defaults(options.engine, *model, guesses != nullptr ? &guesses->spec() : nullptr);
  if (!flags) return flags.error();
  const std::string identity =
      fmt::format("{}/{}", models::fingerprint(model->files), model->backend->kv_form(*flags->kv_type));
  Result<EngineSetup> made = make_setup(*flags, spec, identity, end_tokens(tokenizer, spec.vocab));
  if (!made) return made.error();
  setup = std::move(*made);
  setup.executor.draft = draft.get();
  setup.executor.head = head ? &*head : nullptr;
  setup.kv_manager.message_ends = setup.scheduler.end_tokens;
  if (tokenizer && chat_template)
    for (const Token token : chat::message_end_tokens(*chat_template, *tokenizer))
      setup.kv_manager.message_ends.push_back(token);
  if (tokenizer) {
    grammars = std::make_shared<grammar::GrammarStore>(std::make_shared<const grammar::Vocabulary>(
        *tokenizer, spec.vocab, setup.executor.eos_tokens,
        chat::all_mark_tokens(chat_template ? &*chat_template : nullptr, *tokenizer)));
    setup.executor.grammars = grammars;
  }
  Result<std::unique_ptr<runtime::ModelExecutor>> ready =
      runtime::ModelExecutor::make(*model, contrast.get(), setup.executor);
  if (!ready) return ready.error();
  executor = std::move(*ready);
  setup.scheduler.parts_towers = executor->parts_towers();
  setup.scheduler.stages = executor->stages();
  setup.scheduler.even_step_tokens = executor->even_step_tokens();
  engine::EngineOptions engine_options{.scheduler = setup.scheduler,
                                       .kv_manager = setup.kv_manager,
                                       .queue = options.queue,
                                       .vocab = spec.vocab};
  engine = std::make_unique<engine::Engine>(std::move(engine_options), *executor);
  engine->start();
  return {};
}

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Session::~Session() {
  if (parts_->engine) parts_->engine->stop();
}

Result<std::unique_ptr<Session>> Session::open(const std::string& model, const Settings& settings) {
  SessionOptions options;
  OptionSet known;
  options.engine.declare(known);
  if (Status status = set_values(known, settings); !status) return status.error();
  options.model = model;
  return open(options);
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  return guarded([&]() -> Result<std::unique_ptr<Session>> {
    auto session = std::unique_ptr<Session>(new Session(std::make_unique<Parts>()));
    Parts& parts = *session->parts_;
    Result<std::string> path = resolve_model(options.model);
    if (!path) return path.error();
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(options.engine.device);
    if (!backend) return backend.error();
    Result<std::unique_ptr<models::Model>> model = load_measured(*path, options, *backend);
    if (!model) return model.error();
    parts.model = std::move(*model);
    parts.defaults = model_defaults(parts.model->files);
    parts.pictures = make_picture_reader(*parts.model);
    if (!options.amateur.empty()) {
      Result<std::string> second = resolve_model(options.amateur);
      if (!second) return second.error();
      Result<std::unique_ptr<models::Model>> amateur = load(*second, options, *backend);
      if (!amateur) return amateur.error();
      parts.contrast = std::move(*amateur);
    }
    if (Status text = parts.load_text(*path); !text && options.needs_tokenizer) return text.error();
    if (Status status = parts.load_draft(options); !status) return status.error();
    if (Status status = parts.start_engine(options, *path); !status) return status.error();
    return session;
  });
}

engine::Engine& Session::engine() {
  return *parts_->engine;
}
const models::Model& Session::model() const {
  return *parts_->model;
}
bool Session::has_tokenizer() const {
  return parts_->tokenizer.has_value();
}
const tokenizer::Tokenizer& Session::tokenizer() const {
  SLUICE_CHECK(has_tokenizer());
  return *parts_->tokenizer;
}
bool Session::has_chat_template() const {
  return parts_->chat_template.has_value();
}
const chat::ChatTemplate& Session::chat_template() const {
  SLUICE_CHECK(has_chat_template());
  return *parts_->chat_template;
}
grammar::GrammarStore* Session::grammars() const {
  return parts_->grammars.get();
}
Result<std::shared_ptr<const void>> Session::compile(const request::Constraint& constraint) const {
  if (parts_->grammars == nullptr)
    return Error{ErrorCode::Unsupported, "a constraint needs a tokenizer, which this model does not have"};
  Result<grammar::GrammarStore::Grammar> grammar = parts_->grammars->get(constraint);
  if (!grammar) return grammar.error();
  return std::shared_ptr<const void>(std::move(*grammar));
}
const engine::PictureReader* Session::pictures() const {
  return parts_->pictures.get();
}
const EngineSetup& Session::setup() const {
  return parts_->setup;
}
const request::SamplingDefaults& Session::defaults() const {
  return parts_->defaults;
}
int Session::room_after(size_t prompt_tokens) const {
  return parts_->setup.context - static_cast<int>(prompt_tokens);
}

Result<std::vector<Token>> Session::encode_text(std::string_view text) const {
  return tokenizer().encode(text, {.parse_special = false, .add_special = true});
}

Result<std::vector<Token>> Session::encode_chat(chat::ChatPrompt prompt) const {
  if (!has_chat_template()) return Error{ErrorCode::Unsupported, "the model has no chat template; use --raw"};
  Result<chat::Rendering> rendering = chat::render_chat(chat_template(), tokenizer(), std::move(prompt));
  if (!rendering) return rendering.error();
  return chat::encode_rendering(tokenizer(), *rendering);
}

}  // namespace sluice::llm
