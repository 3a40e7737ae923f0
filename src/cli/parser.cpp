#include "cli/parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "cli/commands/version.h"
#include "cli/foreign_flags.h"

namespace sluice::cli {

namespace {

std::string flag_names(const Option& option) {
  if (option.positional) return option.name;
  std::string names = "--" + option.name;
  for (const std::string& alias : option.aliases) names += ",--" + alias;
  if (option.letter != 0) names = fmt::format("-{},{}", option.letter, names);
  if (std::holds_alternative<bool*>(option.target)) names += ",!--no-" + option.name;
  return names;
}

struct AddToApp {
  CLI::App& app;
  const Option& option;

  CLI::Option* operator()(bool* target) const {
    return app.add_flag(flag_names(option), *target, option.help);
  }
  CLI::Option* operator()(std::string* target) const {
    return app.add_option(flag_names(option), *target, option.help)->type_name(placeholder("TEXT"));
  }
  CLI::Option* operator()(std::vector<std::string>* target) const {
    if (option.positional) return app.add_option(option.name, *target, option.help);
    return app.add_option(flag_names(option), *target, option.help)
        ->type_name(placeholder("TEXT"))
        ->expected(1)
        ->take_all()
        ->allow_extra_args(false);
  }
  CLI::Option* operator()(const Choice& choice) const {
    std::map<std::string, size_t> values;
    for (size_t i = 0; i < choice.names.size(); ++i) values[choice.names[i]] = i;
    const auto set = choice.set;
    CLI::Option* added = app.add_option_function<std::string>(
        flag_names(option), [set, values](const std::string& text) { set(values.at(text)); }, option.help);
    return added->check(CLI::IsMember(choice.names))
        ->type_name(fmt::format("{}", fmt::join(choice.names, "|")));
  }
  template <class Number>
  CLI::Option* operator()(std::optional<Number>* target) const {
    const auto set = [target](const Number& value) { *target = value; };
    CLI::Option* added = app.add_option_function<Number>(flag_names(option), set, option.help);
    added->type_name(placeholder("N"));
    if (option.least < option.most) added->check(within<Number>(option.least, option.most));
    return added;
  }
  template <class Number>
  CLI::Option* operator()(Number* target) const {
    CLI::Option* added =
        app.add_option(flag_names(option), *target, option.help)->type_name(placeholder("N"));
    if (option.least < option.most) added->check(within<Number>(option.least, option.most));
    return added;
  }
  // Both ends allowed; shown by the help and said by the error.
  template <class Number>
  static CLI::Validator within(double least, double most) {
    const std::string range = fmt::format("{} to {}", least, most);
    const auto check = [least, most, range](std::string& text) {
      double value = 0;
      Number number{};
      const bool good = CLI::detail::lexical_cast(text, value) && value >= least && value <= most &&
                        CLI::detail::lexical_cast(text, number);
      if (good) return std::string();
      return fmt::format("'{}' is not a {}number from {}", text, std::is_integral_v<Number> ? "whole " : "",
                         range);
    };
    return CLI::Validator(check, range);
  }
  std::string placeholder(const char* fallback) const {
    return option.placeholder.empty() ? fallback : option.placeholder;
  }
};

void add_option(CLI::App& app, const Option& option) {
  CLI::Option* added = std::visit(AddToApp{app, option}, option.target);
  if (!option.positional) added->envname(option.environment());
  if (option.required) added->required();
  const std::string text = option.default_text();
  if (!text.empty() && text != "off") added->default_str(text);
}

// Explains the first word that is neither a verb nor a flag nor an argument of the app.
int explain_unknown(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const CLI::App* sub : app.get_subcommands(nullptr)) known.push_back(sub->get_name());
  const std::string& word = words.front();
  const std::string near = nearest_word(word.substr(0, word.find('=')), known);
  const bool is_outermost = app.get_parent() == nullptr;
  std::string command = "sluice";
  if (!is_outermost && app.get_parent()->get_parent() != nullptr)
    command += " " + app.get_parent()->get_name();
  if (!is_outermost) command += " " + app.get_name();
  const char* kind = word.starts_with("-") ? "flag" : is_outermost ? "verb" : "argument";
  fmt::print(stderr, "sluice: unknown {} '{}'{}\n", kind, word,
             near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
  fmt::print(stderr, "try '{} --help'\n", command);
  return kUsage;
}

// " (from SLUICE_X)" where a message is about a value that the environment gave, not a word.
std::string environment_note(std::string_view message, const std::deque<OptionSet>& sets,
                             const std::vector<std::string>& words) {
  for (const OptionSet& set : sets) {
    for (const Option& option : set.options()) {
      const char* value = std::getenv(option.environment().c_str());
      if (value == nullptr || !message.starts_with(fmt::format("--{}:", option.name))) continue;
      const auto gives = [&](const std::string& word) { return word.ends_with(value); };
      const bool is_word = std::any_of(words.begin(), words.end(), gives);
      if (!is_word && message.find(value) != message.npos)
        return fmt::format(" (from {})", option.environment());
    }
  }
  return "";
}

// The words behind the program's name. In the names of flags, underscores count as dashes.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (std::string& word : words) {
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    std::replace(word.begin(), word.begin() + static_cast<long>(std::min(word.find('='), word.size())), '_',
                 '-');
  }
  return words;
}

// The words with what other programs call our flags in our spelling; `sets` belong to the commands.
Result<std::vector<std::string>> translate(std::vector<std::string> words, const CommandList& commands,
                                           const std::deque<OptionSet>& sets) {
  for (const std::ptrdiff_t count : {2, 1}) {
    if (std::ssize(words) < count) continue;
    const auto behind = words.begin() + count;
    const std::string verb = fmt::format("{}", fmt::join(words.begin(), behind, " "));
    for (size_t i = 0; i < commands.size(); ++i) {
      if (commands[i]->name() != verb) continue;
      Result<std::vector<std::string>> rest = translate_flags(std::vector(behind, words.end()), sets[i]);
      if (!rest) return rest.error();
      rest->insert(rest->begin(), words.begin(), behind);
      return rest;
    }
  }
  return words;
}

// "bench serve" is a verb of the verb "bench", which comes before it.
CLI::App* add_verb(CLI::App& app, const Command& command) {
  const std::string name(command.name()), summary(command.summary());
  const size_t blank = name.find(' ');
  if (blank == name.npos) return app.add_subcommand(name, summary);
  return app.get_subcommand(name.substr(0, blank))->add_subcommand(name.substr(blank + 1), summary);
}

}  // namespace

int parse_and_run(int argc, char** argv, CommandList& commands) {
  CLI::App app("sluice: runs and serves decoder-only language models", "sluice");
  app.set_version_flag("--version,-V", version_text);
  std::map<const CLI::App*, Command*> by_app;
  std::deque<OptionSet> sets;
  CommonOptions common;
  for (const std::unique_ptr<Command>& command : commands) {
    CLI::App* sub = add_verb(app, *command);
    sub->allow_extras();
    if (!command->examples().empty()) sub->footer(std::string(command->examples()));
    OptionSet& set = sets.emplace_back();
    command->declare(set);
    common.declare(set);
    for (const Option& option : set.options()) add_option(*sub, option);
    by_app[sub] = command.get();
  }
  app.allow_extras();
  app.require_subcommand(0, 1);  // a further verb is a word that the first must take or refuse
  const Result<std::vector<std::string>> translated = translate(words_of(argc, argv), commands, sets);
  if (!translated) return report(translated.error());
  const std::vector<std::string>& words = *translated;
  try {
    app.parse(std::vector(words.rbegin(), words.rend()));  // the parser takes them from the end
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& problem) {
    fmt::print(stderr, "sluice: {}{}\n", problem.what(), environment_note(problem.what(), sets, words));
    return kUsage;
  }
  std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!chosen.empty() && !chosen.front()->get_subcommands().empty())
    chosen = chosen.front()->get_subcommands();
  const CLI::App& last = chosen.empty() ? app : *chosen.front();
  if (const auto extras = last.remaining(); !extras.empty()) return explain_unknown(last, extras);
  if (chosen.empty()) {
    fmt::print("{}", app.help());
    return argc > 1 ? kUsage : kSuccess;
  }
  common.apply();
  return by_app.at(chosen.front())->run();
}

}  // namespace sluice::cli
