// sluice list: models found on this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/format.h"
#include "llm/model_store.h"

namespace sluice::cli {

namespace {

class ListCommand : public Command {
 public:
  std::string_view name() const override { return "list"; }
  std::string_view summary() const override { return "list the models found on this machine"; }
  void declare(OptionSet&) override {}

  int run() override {
    std::vector<llm::FoundModel> found = llm::find_models();
    for (llm::FoundModel& model : found) model.name = shown_on(STDOUT_FILENO, model.name);
    if (found.empty()) {
      fmt::print("no models found; './sluice run' in the repository fetches the default one\n");
      return kSuccess;
    }
    size_t width = 4;
    for (const llm::FoundModel& model : found) width = std::max(width, model.name.size());
    fmt::print("{:<{}}  {:>9}  SOURCE\n", "NAME", width, "SIZE");
    for (const llm::FoundModel& model : found)
      fmt::print("{:<{}}  {:>9}  {}\n", model.name, width, bytes_text(model.bytes), model.source);
    return kSuccess;
  }
};

}  // namespace

std::unique_ptr<Command> make_list() {
  return std::make_unique<ListCommand>();
}

}  // namespace sluice::cli
