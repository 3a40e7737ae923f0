// sluice serve: models behind an HTTP API and a page.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "base/system/memory.h"
#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/open_session.h"
#include "cli/served_model.h"
#include "llm/model_store.h"
#include "llm/sampling_flags.h"
#include "server/core/server.h"

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

int64_t kv_bytes(const llm::Session& session) {
  const llm::EngineSetup& setup = session.setup();
  return models::kv_bytes_per_token(session.model().spec(), setup.executor.memory.type) * setup.kv_tokens;
}

class ServeCommand : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override { return "serve models over HTTP: OpenAI's API and a web page"; }
  std::string_view examples() const override {
    return "sluice serve\nsluice serve -m model.gguf --port 8000 --api-key-file keys.txt --host 0.0.0.0";
  }

  void declare(OptionSet& options) override {
    options.add(models_, "model", "file, folder or name; may be repeated; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options
        .add(names_, "served-model-name",
             "what the API calls the models, in their order; more names of a single model are aliases")
        .shown_as("NAME");
    options.add(aliases_, "alias", "further name, as NAME for the first model or MODEL=NAME; may be repeated")
        .shown_as("NAME");
    options
        .add(session_.amateur, "amateur",
             "second, weaker model for requests to the first model that ask for contrastive decoding")
        .shown_as("MODEL");
    server_.declare(options);
    options.add_choice<LogFormat>(log_format_, "log-format",
                                  "lines of text, or JSON objects with the time in UTC",
                                  {{"text", LogFormat::Text}, {"json", LogFormat::Json}});
    options
        .add(tool_format_, "tool-format",
             "how the models write tool calls, as docs/tools.md lists; found by the chat template where left "
             "out")
        .shown_as("NAME");
    options.add(queue_requests_, "queue-requests", "requests that may wait").within(1, 1'000'000);
    options.add(queue_tokens_, "queue-tokens", "prompt tokens that may wait").within(1, 2'000'000'000);
    options
        .add(max_queue_time_, "max-queue-time",
             "seconds a request may wait for its turn before it gets 503; 0: any time")
        .within(0, 86400);
    options.add(max_output_, "max-output-tokens", "tokens of one answer; 0: what fits into the context")
        .within(0, 1 << 24);
    llm::declare_defaults(options, sampling_);
    session_.engine.declare(options);
  }

  int run() override {
    set_log_format(log_format_);
    write_log_in_background();
    const int code = serve();
    if (!flush_log() || in_haste_) std::_Exit(code);
    return code;
  }

 private:
  // As report() does; in the log where that is for machines.
  int fail(const Error& error) const {
    if (log_format_ == LogFormat::Text) return report(error);
    log_error("{}", error.message);
    return exit_code(error);
  }

  int serve() {
    if (!server_.api_keys.empty() && std::getenv("SLUICE_API_KEY") == nullptr)
      log_warning("--api-key shows the key to everybody who lists processes; --api-key-file does not");
    if (models_.empty()) models_.emplace_back();
    for (const std::vector<std::string>* list : {&names_, &aliases_})
      if (std::find(list->begin(), list->end(), "") != list->end())
        return fail({ErrorCode::InvalidArgument, "--served-model-name and --alias must not be empty"});
    Result<std::unique_ptr<server::Server>> opened = server::Server::open(server_, true);
    if (!opened) return fail(opened.error());
    running_ = std::move(*opened);
    server::Server* const server = running_.get();
    std::vector<server::Backend> backends;
    for (size_t i = 0; i < models_.size(); ++i) {
      Result<server::Backend> backend = load(i);
      if (!backend) return fail(backend.error());
      backends.push_back(std::move(*backend));
      if (server->state().stage() == server::Stage::Draining) return kSuccess;
    }
    if (Status named = add_aliases(backends); !named) return fail(named.error());
    greet(*server, backends);
    server->serve(std::move(backends));
    const server::Server::End end = server->wait();
    in_haste_ = end != server::Server::End::Drained;
    return end == server::Server::End::EngineLost ? kInternal : kSuccess;
  }

  Result<server::Backend> load(size_t index) {
    Result<llm::FoundModel> found = llm::find_model(models_[index]);
    if (!found) return found.error();
    llm::SessionOptions options = session_;
    options.model = models_[index];
    if (index > 0) options.amateur.clear();
    options.queue.requests = static_cast<size_t>(queue_requests_);
    options.queue.tokens = static_cast<size_t>(queue_tokens_);
    if (max_queue_time_ > 0) options.queue.wait = Seconds(max_queue_time_);
    Result<std::unique_ptr<llm::Session>> opened = open_session(options);
    if (!opened) return opened.error();
    const llm::Session& session = *sessions_.emplace_back(std::move(*opened));
    const models::Model& model = session.model();
    const llm::EngineSetup& setup = session.setup();
    server::Backend backend;
    backend.engine = &sessions_.back()->engine();
    Result<api::ServedModel> served = served_model(session, tool_format_);
    if (!served) return served.error();
    backend.model = std::move(*served);
    backend.model.id = index < names_.size() ? names_[index] : default_name(models_[index], *found);
    if (index >= names_.size()) backend.model.aliases = {found->name, models_[index]};
    std::erase(backend.model.aliases, "");
    backend.model.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    backend.model.max_output = max_output_;
    backend.model.parameters = models::parameter_count(model.spec());
    backend.model.bytes = model.files.tensors.total_bytes();
    backend.model.architecture = model.spec().family;
    backend.model.quantization = main_type(model);
    backend.model.defaults = request::first_of(sampling_, session.defaults());
    backend.device = model.backend->name();
    if (model.backend->async_device() != nullptr) {
      if (Result<std::shared_ptr<GpuMonitor>> monitor = GpuMonitor::open(0))
        backend.gpu = [gpu = *monitor] { return gpu->read(); };
    }
    backend.scheme = options.engine.scheme;
    backend.layout = setup.scheduler.layout == sched::Layout::Packed ? "packed" : "padded";
    backend.block_size = setup.kv_manager.block_size;
    backend.max_sequences = setup.scheduler.max_seqs;
    backend.max_step_tokens = setup.scheduler.max_step_tokens;
    backend.queue_requests = options.queue.requests;
    return backend;
  }

  Status add_aliases(std::vector<server::Backend>& backends) const {
    for (size_t i = backends.size(); i < names_.size(); ++i) {
      if (backends.size() > 1)
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("{} names for {} models", names_.size(), backends.size())};
      backends[0].model.aliases.push_back(names_[i]);
    }
    for (const std::string& alias : aliases_) {
      const size_t equals = alias.find('=');
      const std::string wanted = equals == std::string::npos ? backends[0].model.id : alias.substr(0, equals);
      const auto found = std::find_if(backends.begin(), backends.end(),
                                      [&](const server::Backend& b) { return b.model.id == wanted; });
      if (found == backends.end())
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("--alias {}: there is no model '{}'", alias, wanted)};
      found->model.aliases.push_back(equals == std::string::npos ? alias : alias.substr(equals + 1));
    }
    for (size_t i = 0; i < backends.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (backends[i].model.id == backends[j].model.id)
          return Error{ErrorCode::InvalidArgument,
                       fmt::format("two models are called '{}'; --served-model-name tells them apart",
                                   backends[i].model.id)};
    return {};
  }

  void greet(const server::Server& server, const std::vector<server::Backend>& backends) const {
    const std::string url = server.url();
    const bool keys = !server_.api_keys.empty() || !server_.api_key_file.empty();
    fmt::print("page      {}/\nAPI base  {}/v1\n", url, url);
    for (size_t i = 0; i < backends.size(); ++i)
      fmt::print("model     {} ({} {}, {} parameters, {})\ncontext   {} tokens, KV cache of {} tokens ({})\n",
                 shown_on(STDOUT_FILENO, backends[i].model.id), backends[i].model.architecture,
                 backends[i].model.quantization, count_text(backends[i].model.parameters), backends[i].device,
                 backends[i].model.context, sessions_[i]->setup().kv_tokens,
                 memory_text(kv_bytes(*sessions_[i])));
    fmt::print(
        "try       curl {}/v1/chat/completions -H 'Content-Type: application/json' {}\\\n"
        "            -d '{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": "
        "\"Hello\"}}]}}'\n",
        url, keys ? "-H \"Authorization: Bearer $KEY\" " : "", shown_on(STDOUT_FILENO, backends[0].model.id));
    std::fflush(stdout);
  }

  std::vector<std::string> models_, names_, aliases_;
  LogFormat log_format_ = LogFormat::Text;
  request::SamplingDefaults sampling_;  // before the models' own
  llm::SessionOptions session_;
  server::ServerOptions server_;
  std::string tool_format_;
  int queue_requests_ = 1024;
  int queue_tokens_ = 4 << 20;
  double max_queue_time_ = 0;
  int max_output_ = 0;
  std::vector<std::unique_ptr<llm::Session>> sessions_;  // outlive the server
  std::unique_ptr<server::Server> running_;
  bool in_haste_ = false;  // what still runs, a step or a reader, is not waited for
};

}  // namespace

std::unique_ptr<Command> make_serve() {
  return std::make_unique<ServeCommand>();
}

}  // namespace sluice::cli
