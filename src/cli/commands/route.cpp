// sluice route: one address in front of several servers.
#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "chat/chat_template.h"
#include "chat/formats/model_format.h"
#include "cli/command.h"
#include "formats/quote.h"
#include "llm/model_store.h"
#include "models/model.h"
#include "route/router_server.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

// A model's text alone: what makes tokens of a request, without weights.
struct ModelText {
  std::optional<tokenizer::Tokenizer> tokenizer;
  std::optional<chat::ChatTemplate> chat_template;

  Status load(const std::string& reference) {
    Result<std::string> path = llm::resolve_model(reference);
    if (!path) return path.error();
    Result<models::ModelFiles> files = models::open_model(*path, {});
    if (!files) return files.error();
    Result<tokenizer::Tokenizer> loaded = files->is_gguf ? tokenizer::load_tokenizer_gguf(files->metadata)
                                                         : tokenizer::load_tokenizer_hf(*path);
    if (!loaded) return formats::about_file(*path, loaded.error());
    tokenizer.emplace(std::move(*loaded));
    const tokenizer::TemplateSource* source = tokenizer->find_chat_template();
    if (source == nullptr) return {};
    Result<chat::ChatTemplate> parsed = chat::ChatTemplate::parse(source->source);
    if (parsed) chat_template.emplace(std::move(*parsed));
    return {};
  }

  Result<api::ServedModel> served() const {
    api::ServedModel model;
    model.tokenizer = &*tokenizer;
    model.context = std::numeric_limits<int>::max() / 2;
    model.vocab = std::numeric_limits<int>::max() / 2;
    if (!chat_template) return model;
    model.chat_template = &*chat_template;
    Result<chat::ModelFormat> format = chat::make_model_format(*chat_template, *tokenizer, "");
    if (!format) return format.error();
    model.format = std::make_shared<chat::ModelFormat>(std::move(*format));
    return model;
  }
};

class RouteCommand : public Command {
 public:
  std::string_view name() const override { return "route"; }
  std::string_view summary() const override {
    return "pass requests on to several servers, by what they have cached and how busy they are";
  }
  std::string_view examples() const override {
    return "sluice route --replica http://10.0.0.1:8080 --replica http://10.0.0.2:8080 -m model.gguf";
  }

  void declare(OptionSet& options) override {
    options
        .add(model_, "model",
             "the replicas' model, of which only the tokenizer and the chat template are read, to know which "
             "replica has a prompt's beginning; left out: by load alone")
        .short_name('m')
        .shown_as("MODEL");
    options_.declare(options);
  }

  int run() override {
    std::vector<api::ServedModel> models;
    if (!model_.empty()) {
      if (Status loaded = text_.load(model_); !loaded) return report(loaded.error());
      Result<api::ServedModel> served = text_.served();
      if (!served) return report(served.error());
      models.push_back(std::move(*served));
    }
    Result<std::unique_ptr<route::RouterServer>> opened =
        route::RouterServer::open(options_, route::PromptReader(std::move(models)), true);
    if (!opened) return report(opened.error());
    fmt::print("router    {}\nAPI base  {}/v1\n", (*opened)->url(), (*opened)->url());
    for (const std::string& replica : options_.replicas) fmt::print("replica   {}\n", replica);
    fmt::print("state     {}/replicas and {}/metrics\n", (*opened)->url(), (*opened)->url());
    std::fflush(stdout);
    (*opened)->run();
    return kSuccess;
  }

 private:
  std::string model_;
  ModelText text_;  // outlives the router
  route::RouteOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_route() {
  return std::make_unique<RouteCommand>();
}

}  // namespace sluice::cli
