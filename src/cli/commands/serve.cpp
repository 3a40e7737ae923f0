// sluice serve: models behind an HTTP API and a page.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/system/memory.h"
#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/commands/serve_models.h"
#include "cli/format.h"
#include "cli/ranks.h"
#include "server/core/model_pool.h"
#include "server/core/server.h"

namespace sluice::cli {

namespace {

class ServeCommand : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override { return "serve models over HTTP: OpenAI's API and a web page"; }
  std::string_view examples() const override {
    return "sluice serve\nsluice serve -m model.gguf --port 8000 --api-key-file keys.txt --host 0.0.0.0\n"
           "sluice serve -m small=1b.gguf -m large=8b.gguf --model-share large=3";
  }

  void declare(OptionSet& options) override {
    server_.declare(options);
    options.add_choice<LogFormat>(log_format_, "log-format",
                                  "lines of text, or JSON objects with the time in UTC",
                                  {{"text", LogFormat::Text}, {"json", LogFormat::Json}});
    ranks_.declare(options);
    models_.declare(options);
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
    if (const std::optional<int> code = join_ranks()) return *code;
    models_.session.engine.prefilled_elsewhere = server_.role == server::Role::Decode;
    Result<std::vector<server::ModelPool::Known>> known = models_.resolve();
    if (!known) return fail(known.error());
    pool_ = std::make_unique<server::ModelPool>(std::move(*known));
    Result<std::unique_ptr<server::Server>> opened = server::Server::open(server_, true);
    if (!opened) return fail(opened.error());
    running_ = std::move(*opened);
    server::Server* const server = running_.get();
    const auto go_on = [&] { return server->state().stage() != server::Stage::Draining; };
    if (Status loaded = pool_->open_all(go_on); !loaded) return fail(loaded.error());
    if (!go_on()) return kSuccess;
    if (Status fit = check_role(pool_->backends()); !fit) return fail(fit.error());
    greet(*server, pool_->backends());
    pool_->serve(*server);
    const server::Server::End end = server->wait();
    in_haste_ = end != server::Server::End::Drained;
    if (!in_haste_) pool_->stop();
    return end == server::Server::End::EngineLost ? kInternal : kSuccess;
  }

  // KV blocks are handed over where nothing but tokens and weights decides them, and one model keeps them.
  Status check_role(const std::vector<server::Backend>& backends) const {
    if (server_.role == server::Role::Both) return {};
    for (const server::Backend& backend : backends) {
      if (!backend.engine->kv_layout().block_bytes.empty()) continue;
      return Error{
          ErrorCode::Unsupported,
          fmt::format("--role {} is not for '{}': its KV blocks cannot be handed over with ranks, a draft "
                      "model, an amateur, rotary frequencies that change with the length, or without a "
                      "prefix cache",
                      server::name(server_.role), backend.model.id)};
    }
    return {};
  }

  // As RankFlags::join_session() does.
  std::optional<int> join_ranks() {
    if (Result<models::Cuts> cuts = ranks_.read_cuts(); !cuts) return fail(cuts.error());
    if (ranks_.cuts.ranks() == 1) return ranks_.join_session(models_.session);
    if (models_.models.size() > 1)
      return fail(
          {ErrorCode::InvalidArgument,
           fmt::format("--tp, --ep, --cp and --pp are for one model, {} are given", models_.models.size())});
    if (!models_.models.empty()) {
      Result<NamedModel> named = parse_named_model(models_.models.front());
      if (!named) return fail(named.error());
      models_.session.model = named->reference;
    }
    return ranks_.join_session(models_.session);
  }

  void greet(const server::Server& server, const std::vector<server::Backend>& backends) const {
    const std::string url = server.url();
    const bool keys = !server_.api_keys.empty() || !server_.api_key_file.empty();
    fmt::print("page      {}/\nAPI base  {}/v1\n", url, url);
    for (const server::Backend& backend : backends)
      fmt::print("model     {} ({} {}, {} parameters, {})\ncontext   {} tokens, KV cache of {} tokens ({})\n",
                 shown_on(STDOUT_FILENO, backend.model.id), backend.model.architecture,
                 backend.model.quantization, count_text(backend.model.parameters), backend.device,
                 backend.model.context, backend.kv_tokens, memory_text(backend.kv_bytes));
    fmt::print(
        "try       curl {}/v1/chat/completions -H 'Content-Type: application/json' {}\\\n"
        "            -d '{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": "
        "\"Hello\"}}]}}'\n",
        url, keys ? "-H \"Authorization: Bearer $KEY\" " : "", shown_on(STDOUT_FILENO, backends[0].model.id));
    std::fflush(stdout);
  }

  LogFormat log_format_ = LogFormat::Text;
  ServeModels models_;
  RankFlags ranks_;
  server::ServerOptions server_;
  std::unique_ptr<server::ModelPool> pool_;  // outlives the server
  std::unique_ptr<server::Server> running_;
  bool in_haste_ = false;  // what still runs, a step or a reader, is not waited for
};

}  // namespace

std::unique_ptr<Command> make_serve() {
  return std::make_unique<ServeCommand>();
}

}  // namespace sluice::cli
