#include "jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/values/loop.h"
#include "jinja/values/objects.h"

namespace sluice::jinja {

// Makes a fresh scope the current one for as long as it lives.
class Interpreter::ScopeFrame {
 public:
  ScopeFrame(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), previous_(interpreter.scope_), scope_(interpreter.open_scope(parent)) {
    interpreter.scope_ = scope_;
  }
  ~ScopeFrame() {
    interpreter_.scope_ = previous_;
    interpreter_.close_scope(scope_);
  }
  ScopeFrame(const ScopeFrame&) = delete;
  ScopeFrame& operator=(const ScopeFrame&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* previous_;
  Scope* scope_;
};

Interpreter::Interpreter(const SyntaxTree& tree, Runtime& runtime) : tree_(tree), runtime_(runtime) {
  globals_.resize(tree.names.size());
  for (size_t i = 0; i < tree.names.size(); ++i) {
    if (const NamedCall* function = find_global(tree.names[i])) {
      globals_[i] = Value(runtime.heap().object<GlobalFunction>(*function));
    }
  }
}

void Interpreter::define(std::string_view name, Value value) {
  const auto found = tree_.ids.find(name);
  if (found != tree_.ids.end()) globals_[found->second] = std::move(value);
}

Text Interpreter::run(int& line) {
  line_ = &line;
  TextBuilder out(runtime_.budget());
  out_ = &out;
  execute(tree_.body);
  return out.take();
}

// -- scopes

Scope* Interpreter::open_scope(Scope* parent) {
  if (free_scopes_.empty()) {
    runtime_.budget().charge(sizeof(Scope) + 64);
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Interpreter::close_scope(Scope* scope) {
  if (scope->captured) return;
  scope->values.clear();
  free_scopes_.push_back(scope);
}

// A macro made in this scope may outlive it.
void Interpreter::keep_scopes(Scope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

void Interpreter::set_name(NameId name, Value value) {
  if (scope_ == &root_) {
    globals_[name] = std::move(value);
    return;
  }
  for (auto& [known, held] : scope_->values) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  scope_->values.emplace_back(name, std::move(value));
}

Value Interpreter::find_name(NameId name) {
  for (const Scope* scope = scope_; scope != &root_; scope = scope->parent) {
    for (const auto& [known, value] : scope->values) {
      if (known == name) return value;
    }
  }
  if (globals_[name]) return *globals_[name];
  return runtime_.heap().undefined(fmt::format("'{}' is undefined", tree_.names[name]));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (const auto* name = std::get_if<NameTarget>(&target.node)) return set_name(name->name, value);
  if (const auto* attribute = std::get_if<AttributeTarget>(&target.node)) {
    const Value object = find_name(attribute->name);
    auto* space = object.is_object() ? dynamic_cast<Namespace*>(&object.object()) : nullptr;
    if (space == nullptr) raise("cannot assign an attribute of something that is not a namespace");
    return space->set(runtime_, attribute->attribute, value);
  }
  const std::vector<Target>& targets = std::get<TupleTarget>(target.node).items;
  const std::vector<Value> items = items_of(runtime_.heap(), value);
  if (items.size() != targets.size()) {
    raise(fmt::format("cannot unpack {} values into {} names", items.size(), targets.size()));
  }
  for (size_t i = 0; i < targets.size(); ++i) assign(targets[i], items[i]);
}

// -- statements

Interpreter::Flow Interpreter::execute(const Block& block) {
  const DepthGuard guard(runtime_.depth(), runtime_.budget().limits().evaluation_depth, "nested evaluations");
  for (const Statement& statement : block) {
    const Flow flow = execute(statement);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  runtime_.budget().step();
  *line_ = statement.line;
  return std::visit([this](const auto& node) { return run_statement(node); }, statement.node);
}

void Interpreter::write(const Text& text) {
  const size_t limit = runtime_.budget().limits().output_bytes;
  if (captures_ == 0 && text.size() > limit - out_->size()) raise_limit("bytes of output", limit);
  runtime_.budget().step_bytes(text.size());
  out_->add(text);
}

Interpreter::Flow Interpreter::run_statement(const DataStatement& statement) {
  write(statement.text);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const PrintStatement& statement) {
  const Value value = evaluate(*statement.expression);
  if (!value.is_undefined()) write(runtime_.str(value).text());
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const IfStatement& statement) {
  for (const IfStatement::Branch& branch : statement.branches) {
    if (branch.condition == nullptr || is_true(evaluate(*branch.condition))) return execute(*branch.body);
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const SetStatement& statement) {
  assign(statement.target, evaluate(*statement.value));
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const SetBlockStatement& statement) {
  const Value text = capture(*statement.body);
  assign(statement.target, apply_filters(statement.filters, text));
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const FilterBlockStatement& statement) {
  const Value text = capture(*statement.body);
  write(runtime_.str(apply_filters(statement.filters, text)).text());
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const WithStatement& statement) {
  std::vector<Value> values;
  for (const auto& [target, expression] : statement.assignments) values.push_back(evaluate(*expression));
  const ScopeFrame frame(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  return execute(*statement.body);
}

Interpreter::Flow Interpreter::run_statement(const DoStatement& statement) {
  evaluate(*statement.expression);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const MacroStatement& statement) {
  keep_scopes(scope_);
  set_name(statement.name, Value(runtime_.heap().object<Macro>(*this, *statement.macro, scope_)));
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const CallBlockStatement& statement) {
  keep_scopes(scope_);
  const Value caller(runtime_.heap().object<Macro>(*this, *statement.caller, scope_));
  const Value text = call(std::get<CallExpression>(statement.call->node), &caller);
  if (!text.is_undefined()) write(runtime_.str(text).text());
  return Flow::Normal;
}

Value Interpreter::capture(const Block& block) {
  TextBuilder inner(runtime_.budget());
  TextBuilder* outer = std::exchange(out_, &inner);
  ++captures_;
  {
    const ScopeFrame frame(*this, scope_);
    execute(block);
  }
  --captures_;
  out_ = outer;
  return runtime_.heap().string(inner.take());
}

// -- loops

Interpreter::Flow Interpreter::run_statement(const ForStatement& statement) {
  return run_loop(statement, evaluate(*statement.iterable), 1);
}

std::vector<Value> Interpreter::filtered_items(const ForStatement& statement, const Value& iterable) {
  std::vector<Value> items = items_of(runtime_.heap(), iterable);
  if (statement.filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const ScopeFrame frame(*this, scope_);
    assign(statement.target, item);
    if (is_true(evaluate(*statement.filter))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const ForStatement& statement, const Value& iterable, size_t depth) {
  Value items = runtime_.heap().list(filtered_items(statement, iterable));
  const size_t count = items.list().items.size();
  if (count == 0) {
    if (statement.otherwise == nullptr) return Flow::Normal;
    const ScopeFrame frame(*this, scope_);
    return execute(*statement.otherwise);
  }
  if (statement.recursive) keep_scopes(scope_);
  auto* loop = runtime_.heap().object<Loop>(
      std::move(items), LoopOrigin{this, statement.recursive ? &statement : nullptr, scope_, depth});
  for (size_t i = 0; i < count; ++i) {
    runtime_.budget().step();
    loop->set_index(i);
    const ScopeFrame frame(*this, scope_);
    scope_->values.emplace_back(kLoop, Value(loop));
    assign(statement.target, loop->item());
    if (execute(*statement.body) == Flow::Break) break;
  }
  return Flow::Normal;
}

Value Interpreter::run_loop_again(const ForStatement& statement, Scope* outer, const Value& iterable,
                                  size_t depth) {
  const DepthGuard guard(macro_depth_, runtime_.budget().limits().depth, "nested calls");
  TextBuilder inner(runtime_.budget());
  TextBuilder* out = std::exchange(out_, &inner);
  Scope* scope = std::exchange(scope_, outer);
  ++captures_;
  run_loop(statement, iterable, depth);
  --captures_;
  scope_ = scope;
  out_ = out;
  return runtime_.heap().string(inner.take());
}

// -- macros

void Interpreter::bind_extra_arguments(const MacroDefinition& macro, const Arguments& arguments) {
  std::vector<Map::Entry> extra_named;
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const Value& value = argument.second;
    const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                   [&](const auto& parameter) { return parameter.text == name; });
    if (known) continue;
    if (name == "caller" && macro.uses_caller) {
      set_name(kCaller, value);
    } else if (macro.uses_kwargs) {
      extra_named.push_back({runtime_.heap().string(name), value});
    } else {
      raise(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  if (macro.uses_kwargs) set_name(kKwargs, runtime_.heap().map(std::move(extra_named)));
  const size_t wanted = macro.parameters.size();
  const size_t given = arguments.positional.size();
  if (macro.uses_varargs) {
    const auto first = arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, given));
    set_name(kVarargs, runtime_.heap().tuple({first, arguments.positional.end()}));
  } else if (given > wanted) {
    raise(fmt::format("macro '{}' takes not more than {} argument(s), got {}", macro.name, wanted, given));
  }
}

void Interpreter::bind_arguments(const MacroDefinition& macro, const Arguments& arguments) {
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const MacroDefinition::Parameter& parameter = macro.parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == parameter.text; });
    if (i < arguments.positional.size()) {
      if (named != arguments.named.end()) {
        raise(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, parameter.text));
      }
      set_name(parameter.name, arguments.positional[i]);
    } else if (named != arguments.named.end()) {
      set_name(parameter.name, named->second);
    } else if (parameter.fallback != nullptr) {
      set_name(parameter.name, evaluate(*parameter.fallback));
    } else {
      set_name(parameter.name,
               runtime_.heap().undefined(fmt::format("parameter '{}' was not provided", parameter.text)));
    }
  }
}

Value Interpreter::call_macro(const MacroDefinition& macro, Scope* closure, const Arguments& arguments) {
  const DepthGuard guard(macro_depth_, runtime_.budget().limits().depth, "nested calls");
  const ScopeFrame frame(*this, closure);
  bind_extra_arguments(macro, arguments);
  bind_arguments(macro, arguments);
  return capture(*macro.body);
}

}  // namespace sluice::jinja
