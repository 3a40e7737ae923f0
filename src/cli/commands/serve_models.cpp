#include "cli/commands/serve_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "base/system/cores.h"
#include "cli/lab/served_planner.h"
#include "cli/open_session.h"
#include "cli/served_model.h"
#include "llm/model_store.h"
#include "llm/sampling_flags.h"
#include "models/model.h"

namespace sluice::cli {

namespace {

// What a model is called where nobody gave it a name: "org/name" as it was asked for, "name:tag" as Ollama has it, else
// its file's or folder's name.
std::string default_name(const std::string& reference, const llm::FoundModel& model) {
  constexpr std::string_view kOllama = "ollama:", kHub = "hf:";
  if (model.name.starts_with(kOllama)) return model.name.substr(kOllama.size());
  if (reference.find('/') != std::string::npos && !std::filesystem::exists(reference))
    return reference.starts_with(kHub) ? reference.substr(kHub.size()) : reference;
  const std::filesystem::path file(model.path);
  return file.extension() == ".gguf" ? file.stem().string()
                                     : std::filesystem::absolute(file).filename().string();
}

// The type that most of the weights' bytes have.
std::string main_type(const models::Model& model) {
  std::map<DType, int64_t> bytes;
  for (const std::string& name : model.files.tensors.names()) {
    const Result<TensorView> view = model.files.tensors.find(name);
    if (view) bytes[view->dtype] += view->bytes();
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(name(most->first));
}

// All that one model is loaded with.
struct ModelPlan {
  std::string id;
  std::vector<std::string> aliases;
  llm::SessionOptions session;
  std::string compressor;  // model; empty: the served one
  std::string tool_format;
  request::SamplingDefaults sampling;
  int max_output = 0;
};

// What a backend needs to live; destroyed from the last to the first.
struct Loaded {
  std::unique_ptr<llm::Session> session, scorer;  // no scorer: the session is its own
  std::unique_ptr<compress::ModelCompressor> compressor;
  std::unique_ptr<api::Planner> planner;  // of the session
};

void add_facts(const ModelPlan& plan, const llm::Session& session, server::Backend& backend) {
  const models::Model& model = session.model();
  const llm::EngineSetup& setup = session.setup();
  api::ServedModel& served = backend.model;
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  served.max_output = plan.max_output;
  served.parameters = models::parameter_count(model.files.spec);
  served.bytes = model.files.tensors.total_bytes();
  served.architecture = model.spec().family;
  served.quantization = main_type(model);
  served.defaults = request::first_of(plan.sampling, session.defaults());
  backend.device = model.backend->name();
  if (model.backend->async_device() != nullptr) {
    if (Result<std::shared_ptr<GpuMonitor>> monitor = GpuMonitor::open(0))
      backend.gpu = [gpu = *monitor] { return gpu->read(); };
  }
  backend.scheme = plan.session.engine.scheme;
  backend.layout = setup.scheduler.layout == sched::Layout::Packed ? "packed" : "padded";
  backend.block_size = setup.kv_manager.block_size;
  backend.max_sequences = setup.scheduler.max_seqs;
  backend.max_step_tokens = setup.scheduler.max_step_tokens;
  backend.kv_tokens = setup.kv_tokens;
  const models::Share context = model.group ? model.group->placement().context : models::Share();
  backend.kv_bytes =
      models::kv_bytes_per_token(model.spec(), setup.executor.memory.type, context) * setup.kv_tokens;
  backend.queue_requests = plan.session.queue.requests;
}

Result<server::Backend> open_backend(const ModelPlan& plan) {
  Result<std::unique_ptr<llm::Session>> opened = open_session(plan.session);
  if (!opened) return opened.error();
  const auto loaded = std::make_shared<Loaded>();
  loaded->session = std::move(*opened);
  llm::Session* const session = loaded->session.get();
  if (!plan.compressor.empty()) {
    Result<std::unique_ptr<llm::Session>> scorer = open_compressor(plan.compressor, plan.session);
    if (!scorer) return scorer.error();
    loaded->scorer = std::move(*scorer);
  }
  loaded->compressor = std::make_unique<compress::ModelCompressor>(
      compress_model(*session), compress_model(loaded->scorer ? *loaded->scorer : *session));
  loaded->planner = make_served_planner(*session, plan.session.engine);
  Result<api::ServedModel> served = served_model(*session, plan.tool_format);
  if (!served) return served.error();
  server::Backend backend;
  backend.model = std::move(*served);
  backend.model.id = plan.id;
  backend.model.aliases = plan.aliases;
  backend.model.compressor = loaded->compressor.get();
  backend.model.planner = loaded->planner.get();
  backend.engine = &session->engine();
  add_facts(plan, *session, backend);
  backend.owner = loaded;
  return backend;
}

Error wrong_option(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

Status check_texts(const ServeModels& options) {
  for (const std::vector<std::string>* list : {&options.names, &options.aliases})
    if (std::find(list->begin(), list->end(), "") != list->end())
      return wrong_option("--served-model-name and --alias must not be empty");
  if (options.names.size() > options.models.size() && options.models.size() > 1)
    return wrong_option(fmt::format("{} names for {} models", options.names.size(), options.models.size()));
  return {};
}

ModelPlan* plan_named(std::vector<ModelPlan>& plans, const std::string& name) {
  const auto found =
      std::find_if(plans.begin(), plans.end(), [&](const ModelPlan& plan) { return plan.id == name; });
  return found == plans.end() ? nullptr : &*found;
}

Status add_aliases(const ServeModels& options, std::vector<ModelPlan>& plans) {
  for (size_t i = plans.size(); i < options.names.size(); ++i) plans[0].aliases.push_back(options.names[i]);
  for (const std::string& alias : options.aliases) {
    const size_t equals = alias.find('=');
    const std::string wanted = equals == std::string::npos ? plans[0].id : alias.substr(0, equals);
    ModelPlan* plan = plan_named(plans, wanted);
    if (plan == nullptr)
      return wrong_option(fmt::format("--alias {}: there is no model '{}'", alias, wanted));
    plan->aliases.push_back(equals == std::string::npos ? alias : alias.substr(equals + 1));
  }
  for (size_t i = 0; i < plans.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (plans[i].id == plans[j].id)
        return wrong_option(
            fmt::format("two models are called '{}'; -m NAME=MODEL or --served-model-name tells them apart",
                        plans[i].id));
  return {};
}

// Memory and cores by weight, equal ones unless stated; every model has at least one core.
Status share_out(const ServeModels& options, std::vector<ModelPlan>& plans) {
  const Result<std::map<std::string, double>> weights =
      server::parse_weights("--model-share", options.shares);
  if (!weights) return weights.error();
  for (const auto& [name, weight] : *weights)
    if (plan_named(plans, name) == nullptr)
      return wrong_option(fmt::format("--model-share {}={:g}: there is no model '{}'", name, weight, name));
  if (plans.size() == 1) return {};
  const auto weight_of = [&](const ModelPlan& plan) {
    const auto found = weights->find(plan.id);
    return found == weights->end() ? 1.0 : found->second;
  };
  double all = 0;
  for (const ModelPlan& plan : plans) all += weight_of(plan);
  for (ModelPlan& plan : plans) {
    llm::EngineFlags& engine = plan.session.engine;
    const double part = weight_of(plan) / all;
    const int cores = engine.device.threads > 0 ? engine.device.threads : compute_cores().threads;
    engine.memory_part = part;
    engine.device.threads = std::max(1, static_cast<int>(part * cores));
  }
  return {};
}

}  // namespace

Result<NamedModel> parse_named_model(const std::string& text) {
  const size_t equals = text.find('=');
  const bool named = equals != std::string::npos && text.substr(0, equals).find('/') == std::string::npos &&
                     !std::filesystem::exists(text);
  if (!named) return NamedModel{"", text};
  if (equals == 0 || equals + 1 == text.size())
    return wrong_option(fmt::format("--model '{}' must be NAME=MODEL or MODEL", text));
  return NamedModel{text.substr(0, equals), text.substr(equals + 1)};
}

void ServeModels::declare(OptionSet& options) {
  options
      .add(models, "model",
           "file, folder or name of a model, also as NAME=MODEL with the name that the API gives it; may be "
           "repeated; the default model where left out")
      .short_name('m')
      .shown_as("MODEL");
  options
      .add(names, "served-model-name",
           "what the API calls the models, in their order; more names of a single model are aliases")
      .shown_as("NAME");
  options.add(aliases, "alias", "further name, as NAME for the first model or MODEL=NAME; may be repeated")
      .shown_as("NAME");
  options
      .add(shares, "model-share",
           "part of memory and CPU threads of a model beside those of weight 1; may be repeated")
      .shown_as("NAME=W");
  options
      .add(session.amateur, "amateur",
           "second, weaker model for requests to the first model that ask for contrastive decoding")
      .shown_as("MODEL");
  options
      .add(compressor, "compressor",
           "small model that scores texts for requests with `compress`; the served one where left out")
      .shown_as("MODEL");
  options
      .add(tool_format, "tool-format",
           "how the models write tool calls, as docs/tools.md lists; found by the chat template where left "
           "out")
      .shown_as("NAME");
  options.add(queue_requests, "queue-requests", "requests that may wait").within(1, 1'000'000);
  options.add(queue_tokens, "queue-tokens", "prompt tokens that may wait").within(1, 2'000'000'000);
  options
      .add(max_queue_time, "max-queue-time",
           "seconds a request may wait for its turn before it gets 503; 0: any time")
      .within(0, 86400);
  options.add(max_output, "max-output-tokens", "tokens of one answer; 0: what fits into the context")
      .within(0, 1 << 24);
  llm::declare_defaults(options, sampling);
  session.engine.declare(options);
}

Result<std::vector<server::ModelPool::Known>> ServeModels::resolve() const {
  ServeModels given = *this;
  if (given.models.empty()) given.models.emplace_back();
  if (Status sound = check_texts(given); !sound) return sound.error();
  std::vector<ModelPlan> plans;
  for (size_t i = 0; i < given.models.size(); ++i) {
    Result<NamedModel> named = parse_named_model(given.models[i]);
    if (!named) return named.error();
    ModelPlan plan{.id = i < names.size() ? names[i] : named->name,
                   .aliases = {},
                   .session = session,
                   .compressor = compressor,
                   .tool_format = tool_format,
                   .sampling = sampling,
                   .max_output = max_output};
    const Result<llm::FoundModel> found = llm::find_model(named->reference);
    if (!found && given.models.size() == 1) return found.error();
    if (plan.id.empty()) {
      plan.id = found ? default_name(named->reference, *found) : named->reference;
      plan.aliases = {named->reference};
      if (found) plan.aliases.insert(plan.aliases.begin(), found->name);
      std::erase(plan.aliases, "");
    }
    plan.session.model = named->reference;
    if (i > 0) plan.session.amateur.clear();
    plan.session.queue.requests = static_cast<size_t>(queue_requests);
    plan.session.queue.tokens = static_cast<size_t>(queue_tokens);
    if (max_queue_time > 0) plan.session.queue.wait = Seconds(max_queue_time);
    plans.push_back(std::move(plan));
  }
  if (Status named = add_aliases(given, plans); !named) return named.error();
  if (Status shared = share_out(given, plans); !shared) return shared.error();
  std::vector<server::ModelPool::Known> known;
  known.reserve(plans.size());
  for (ModelPlan& plan : plans) known.push_back({plan.id, [plan] { return open_backend(plan); }});
  return known;
}

}  // namespace sluice::cli
