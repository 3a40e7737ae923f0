#include <fmt/format.h>

#include <algorithm>

#include "jinja/syntax/parser.h"

namespace sluice::jinja {

namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::Data:
      return "text";
    case TokenKind::PrintBegin:
      return "'{{'";
    case TokenKind::PrintEnd:
      return "'}}'";
    case TokenKind::BlockBegin:
      return "'{%'";
    case TokenKind::BlockEnd:
      return "'%}'";
    case TokenKind::End:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text.substr(0, 40));
  }
}

}  // namespace

SyntaxTree parse_template(std::string_view source, const Limits& limits, int& line) {
  if (source.size() > limits.source_bytes) raise_limit("bytes of source", limits.source_bytes);
  return Parser(tokenize(source, line), limits, line).run();
}

Parser::Parser(std::vector<Token> tokens, const Limits& limits, int& line)
    : tokens_(std::move(tokens)), limits_(limits), line_(line) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
}

SyntaxTree Parser::run() {
  SyntaxTree tree;
  tree.body = parse_block({});
  tree.names = std::move(names_);
  tree.ids = std::move(ids_);
  return tree;
}

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
}

Token Parser::take() {
  line_ = peek().line;
  if (next_ + 1 == tokens_.size()) return tokens_.back();
  return std::move(tokens_[next_++]);
}

bool Parser::take_operator(std::string_view op) {
  if (!peek().is_operator(op)) return false;
  take();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!take_operator(op)) unexpected(fmt::format("'{}'", op));
}

std::string Parser::expect_name() {
  if (peek().kind != TokenKind::Name) unexpected("a name");
  return take().text;
}

void Parser::unexpected(std::string_view wanted) const {
  line_ = peek().line;
  raise(fmt::format("expected {}, found {}", wanted, describe(peek())));
}

NameId Parser::intern(const std::string& name) {
  const auto [found, added] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

void Parser::count_node() {
  if (++nodes_ > limits_.nodes) raise_limit("syntax nodes", limits_.nodes);
}

bool Parser::at_end_of_block(const std::vector<std::string_view>& ends) const {
  if (peek().kind != TokenKind::BlockBegin || peek(1).kind != TokenKind::Name) return false;
  return std::find(ends.begin(), ends.end(), peek(1).text) != ends.end();
}

// Statements up to `{% name` for a name of `ends`, which is taken; the name itself is left.
Block Parser::parse_block(const std::vector<std::string_view>& ends) {
  Block block;
  while (!at_end_of_block(ends)) {
    const int line = peek().line;
    switch (peek().kind) {
      case TokenKind::Data:
        count_node();
        block.push_back({DataStatement{Text(take().text)}, line});
        break;
      case TokenKind::PrintBegin:
        take();
        block.push_back({PrintStatement{parse_tuple()}, line});
        if (peek().kind != TokenKind::PrintEnd) unexpected("'}}'");
        take();
        break;
      case TokenKind::BlockBegin:
        take();
        parse_statement(block);
        break;
      default:
        if (ends.empty()) return block;
        unexpected(fmt::format("'{}'", ends.back()));
    }
  }
  take();
  return block;
}

std::unique_ptr<Block> Parser::parse_body(const std::vector<std::string_view>& ends) {
  const DepthGuard guard(depth_, limits_.depth, "nesting");
  end_tag();
  return std::make_unique<Block>(parse_block(ends));
}

void Parser::end_tag() {
  if (peek().kind != TokenKind::BlockEnd) unexpected("'%}'");
  take();
}

// The end of a block, its `{%` already taken.
void Parser::close_block(std::string_view name) {
  if (!take_name(name)) unexpected(fmt::format("'{}'", name));
  end_tag();
}

void Parser::parse_statement(Block& block) {
  using Parse = Statement (Parser::*)();
  static constexpr std::pair<std::string_view, Parse> kStatements[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"with", &Parser::parse_with},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block}};
  count_node();
  const int line = peek().line;
  const std::string name = expect_name();
  const auto found = std::find_if(std::begin(kStatements), std::end(kStatements),
                                  [&](const auto& row) { return row.first == name; });
  if (found != std::end(kStatements)) {
    block.push_back((this->*found->second)());
  } else if (name == "generation") {
    block.push_back(parse_scoped_block("endgeneration"));
  } else if (name == "block") {
    expect_name();
    block.push_back(parse_scoped_block("endblock"));
  } else if (name == "do") {
    block.push_back({DoStatement{parse_tuple()}});
    end_tag();
  } else if (name == "break" || name == "continue") {
    if (loops_ == 0) raise(fmt::format("'{}' outside of a loop", name));
    end_tag();
    if (name == "break") {
      block.push_back({BreakStatement{}});
    } else {
      block.push_back({ContinueStatement{}});
    }
  } else {
    raise(fmt::format("unknown tag '{}'", name.substr(0, 40)));
  }
  block.back().line = line;
}

Statement Parser::parse_for() {
  ForStatement statement;
  statement.target = parse_target(false);
  if (!take_name("in")) unexpected("'in'");
  statement.iterable = parse_tuple(Condition::Forbidden);
  if (take_name("if")) statement.filter = parse_expression();
  statement.recursive = take_name("recursive");
  ++loops_;
  statement.body = parse_body({"endfor", "else"});
  --loops_;
  if (take_name("else")) statement.otherwise = parse_body({"endfor"});
  close_block("endfor");
  return {std::move(statement)};
}

Statement Parser::parse_if() {
  IfStatement statement;
  ExpressionPtr condition = parse_tuple(Condition::Forbidden);
  while (true) {
    const bool last = condition == nullptr;
    std::unique_ptr<Block> body = last ? parse_body({"endif"}) : parse_body({"elif", "else", "endif"});
    statement.branches.push_back({std::move(condition), std::move(body)});
    if (last || peek().is_name("endif")) break;
    condition = take().text == "elif" ? parse_tuple(Condition::Forbidden) : nullptr;
  }
  close_block("endif");
  return {std::move(statement)};
}

Statement Parser::parse_set() {
  Target target = parse_target(true);
  if (take_operator("=")) {
    SetStatement statement{std::move(target), parse_tuple()};
    end_tag();
    return {std::move(statement)};
  }
  SetBlockStatement statement{std::move(target), nullptr, nullptr};
  if (take_operator("|")) statement.filters = parse_filter_chain(nullptr);
  statement.body = parse_body({"endset"});
  close_block("endset");
  return {std::move(statement)};
}

std::vector<MacroDefinition::Parameter> Parser::parse_parameters() {
  std::vector<MacroDefinition::Parameter> parameters;
  expect_operator("(");
  while (!take_operator(")")) {
    if (!parameters.empty()) {
      expect_operator(",");
      if (take_operator(")")) break;
    }
    count_node();
    MacroDefinition::Parameter parameter;
    parameter.text = expect_name();
    parameter.name = intern(parameter.text);
    if (take_operator("=")) {
      parameter.fallback = parse_expression();
    } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
      raise(fmt::format("parameter '{}' without a default follows one with a default", parameter.text));
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::shared_ptr<const MacroDefinition> Parser::parse_macro_body(
    std::string name, std::vector<MacroDefinition::Parameter> parameters, std::string_view end) {
  auto macro = std::make_shared<MacroDefinition>();
  macro->name = std::move(name);
  macro->parameters = std::move(parameters);
  const size_t open_loops = std::exchange(loops_, 0);
  const size_t first = next_;
  // Names are looked at before the body is parsed, because parsing moves the tokens away.
  for (size_t i = first;
       i < tokens_.size() && !(tokens_[i].kind == TokenKind::Name && tokens_[i].text == end); ++i) {
    macro->uses_varargs |= tokens_[i].is_name("varargs");
    macro->uses_kwargs |= tokens_[i].is_name("kwargs");
    macro->uses_caller |= tokens_[i].is_name("caller");
  }
  macro->body = parse_body({end});
  loops_ = open_loops;
  close_block(end);
  return macro;
}

Statement Parser::parse_macro() {
  std::string name = expect_name();
  const NameId id = intern(name);
  auto parameters = parse_parameters();
  return {MacroStatement{id, parse_macro_body(std::move(name), std::move(parameters), "endmacro")}};
}

Statement Parser::parse_call_block() {
  std::vector<MacroDefinition::Parameter> parameters;
  if (peek().is_operator("(")) parameters = parse_parameters();
  CallBlockStatement statement;
  statement.call = parse_expression();
  if (!std::holds_alternative<CallExpression>(statement.call->node)) raise("a call block needs a call");
  statement.caller = parse_macro_body("caller", std::move(parameters), "endcall");
  return {std::move(statement)};
}

Statement Parser::parse_filter_block() {
  FilterBlockStatement statement;
  statement.filters = parse_filter_chain(nullptr);
  statement.body = parse_body({"endfilter"});
  close_block("endfilter");
  return {std::move(statement)};
}

Statement Parser::parse_with() {
  WithStatement statement;
  while (peek().kind != TokenKind::BlockEnd) {
    if (!statement.assignments.empty()) expect_operator(",");
    Target target = parse_single_target(false);
    expect_operator("=");
    statement.assignments.emplace_back(std::move(target), parse_expression());
  }
  statement.body = parse_body({"endwith"});
  close_block("endwith");
  return {std::move(statement)};
}

// A block that prints its body and keeps what is set in it to itself.
Statement Parser::parse_scoped_block(std::string_view end) {
  WithStatement statement;
  statement.body = parse_body({end});
  take();
  if (peek().kind == TokenKind::Name) take();  // {% endblock name %}
  end_tag();
  return {std::move(statement)};
}

Target Parser::parse_target(bool with_attributes) {
  const DepthGuard guard(depth_, limits_.depth, "nesting");
  TupleTarget tuple;
  bool is_tuple = false;
  while (peek().kind == TokenKind::Name || peek().is_operator("(")) {
    if (peek().is_name("in")) break;
    tuple.items.push_back(parse_single_target(with_attributes));
    if (!take_operator(",")) break;
    is_tuple = true;
  }
  if (tuple.items.empty()) unexpected("a name to assign to");
  if (!is_tuple) return std::move(tuple.items[0]);
  return {std::move(tuple)};
}

Target Parser::parse_single_target(bool with_attributes) {
  count_node();
  if (take_operator("(")) {
    Target inner = parse_target(with_attributes);
    expect_operator(")");
    return inner;
  }
  const std::string name = expect_name();
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) raise(fmt::format("cannot assign to '{}'", name));
  }
  const NameId id = intern(name);
  if (with_attributes && take_operator(".")) return {AttributeTarget{id, expect_name()}};
  return {NameTarget{id}};
}

}  // namespace sluice::jinja
