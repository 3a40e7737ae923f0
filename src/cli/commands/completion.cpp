// sluice completion: a script for the user's shell, made from the declared options.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"

namespace sluice::cli {

namespace {

struct Verb {
  std::string name, summary;
  std::vector<const Option*> options;
};

std::vector<std::string> flags(const Verb& verb) {
  std::vector<std::string> out;
  for (const Option* option : verb.options) {
    if (option->positional) continue;
    out.push_back("--" + option->name);
    if (option->letter != 0) out.push_back(fmt::format("-{}", option->letter));
  }
  return out;
}

std::vector<std::string> names(const std::vector<Verb>& verbs) {
  std::vector<std::string> out;
  for (const Verb& verb : verbs) out.push_back(verb.name);
  return out;
}

std::string bash(const std::vector<Verb>& verbs) {
  std::string text = "_sluice() {\n  local word=\"${COMP_WORDS[COMP_CWORD]}\" verb=\"${COMP_WORDS[1]}\"\n";
  text += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\")); "
      "return; fi\n",
      fmt::join(names(verbs), " "));
  text += "  case \"$verb\" in\n";
  for (const Verb& verb : verbs)
    text += fmt::format(
        "    {}) [[ \"$word\" == -* ]] && COMPREPLY=($(compgen -W \"{} --help\" -- \"$word\")) && return "
        ";;\n",
        verb.name, fmt::join(flags(verb), " "));
  return text +
         "  esac\n  COMPREPLY=($(compgen -f -- \"$word\"))\n}\ncomplete -o filenames -F _sluice sluice "
         "./sluice\n";
}

std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return text;
}

std::string zsh(const std::vector<Verb>& verbs) {
  std::string text = "#compdef sluice\n_sluice() {\n  local -a verbs\n  verbs=(\n";
  for (const Verb& verb : verbs) text += fmt::format("    '{}:{}'\n", verb.name, quoted(verb.summary));
  text +=
      "  )\n  if (( CURRENT == 2 )); then _describe 'command' verbs; return; fi\n  case \"$words[2]\" in\n";
  for (const Verb& verb : verbs) {
    text += fmt::format("    {}) _arguments", verb.name);
    for (const Option* option : verb.options) {
      if (option->positional) continue;
      std::string help = quoted(option->help);
      std::erase_if(help, [](char c) { return c == '[' || c == ']'; });
      text += fmt::format(" '--{}[{}]'", option->name, help);
    }
    text += " '*:file:_files' ;;\n";
  }
  return text + "  esac\n}\ncompdef _sluice sluice\n";
}

std::string fish(const std::vector<Verb>& verbs) {
  std::string text;
  for (const Verb& verb : verbs) {
    text += fmt::format("complete -c sluice -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                        quoted(verb.summary));
    for (const Option* option : verb.options) {
      if (option->positional) continue;
      text += fmt::format(
          "complete -c sluice -n '__fish_seen_subcommand_from {}' -l {}{} -d '{}'\n", verb.name, option->name,
          option->letter == 0 ? "" : fmt::format(" -s {}", option->letter), quoted(option->help));
    }
  }
  return text;
}

class CompletionCommand : public Command {
 public:
  std::string_view name() const override { return "completion"; }
  std::string_view summary() const override { return "print a completion script: bash, zsh or fish"; }
  std::string_view examples() const override { return "source <(sluice completion bash)"; }
  void declare(OptionSet& options) override {
    options.add(shell_, "SHELL", "bash, zsh or fish").at_position();
  }

  int run() override {
    const CommandList commands = all_commands();
    std::vector<OptionSet> sets(commands.size());
    std::vector<Verb> verbs;
    CommonOptions common;
    for (size_t i = 0; i < commands.size(); ++i) {
      commands[i]->declare(sets[i]);
      common.declare(sets[i]);
      const std::string_view name = commands[i]->name();
      // "bench serve" completes with "bench", which comes before it.
      const auto outer = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& verb) {
        return verb.name == name.substr(0, name.find(' '));
      });
      Verb& verb = outer != verbs.end()
                       ? *outer
                       : verbs.emplace_back(Verb{std::string(name), std::string(commands[i]->summary()), {}});
      for (const Option& option : sets[i].options()) {
        const auto same = [&](const Option* other) { return other->name == option.name; };
        if (std::none_of(verb.options.begin(), verb.options.end(), same)) verb.options.push_back(&option);
      }
    }
    if (shell_ == "bash") {
      fmt::print("{}", bash(verbs));
    } else if (shell_ == "zsh") {
      fmt::print("{}", zsh(verbs));
    } else if (shell_ == "fish") {
      fmt::print("{}", fish(verbs));
    } else {
      return report({ErrorCode::InvalidArgument,
                     fmt::format("'{}' is not a shell; known are: bash, zsh, fish", shell_)});
    }
    return kSuccess;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion() {
  return std::make_unique<CompletionCommand>();
}

}  // namespace sluice::cli
