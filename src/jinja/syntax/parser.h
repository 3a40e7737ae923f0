// Tokens to syntax tree, by recursive descent with the precedence of Jinja2.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/syntax/ast.h"
#include "jinja/syntax/lexer.h"

namespace sluice::jinja {

// Throws TemplateError; `line` is where the parse stands.
SyntaxTree parse_template(std::string_view source, const Limits& limits, int& line);

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits, int& line);

  SyntaxTree run();

 private:
  // tokens
  const Token& peek(size_t ahead = 0) const;
  Token take();
  bool take_operator(std::string_view op);
  bool take_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  NameId intern(const std::string& name);
  void count_node();

  // statements
  Block parse_block(const std::vector<std::string_view>& ends);
  std::unique_ptr<Block> parse_body(const std::vector<std::string_view>& ends);
  bool at_end_of_block(const std::vector<std::string_view>& ends) const;
  void end_tag();
  void close_block(std::string_view name);
  void parse_statement(Block& block);
  Statement parse_for();
  Statement parse_if();
  Statement parse_set();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_filter_block();
  Statement parse_with();
  Statement parse_scoped_block(std::string_view end);
  std::vector<MacroDefinition::Parameter> parse_parameters();
  std::shared_ptr<const MacroDefinition> parse_macro_body(std::string name,
                                                          std::vector<MacroDefinition::Parameter> parameters,
                                                          std::string_view end);
  Target parse_target(bool with_attributes);
  Target parse_single_target(bool with_attributes);

  // expressions, loosest first
  enum class Condition : uint8_t { Allowed, Forbidden };
  ExpressionPtr parse_tuple(Condition condition = Condition::Allowed);
  ExpressionPtr parse_expression(Condition condition = Condition::Allowed);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_logic(LogicOperator op);
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary();
  ExpressionPtr parse_primary();
  ExpressionPtr parse_bracketed();
  ExpressionPtr parse_name_or_constant();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr expression);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr expression);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_filter_chain(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  CallArguments parse_call_arguments();
  bool at_expression_end() const;

  ExpressionPtr make(ExpressionNode node, int line);

  std::vector<Token> tokens_;
  size_t next_ = 0;
  const Limits& limits_;
  int& line_;
  size_t depth_ = 0;
  size_t nodes_ = 0;
  size_t loops_ = 0;  // loops open here: break and continue need one
  std::vector<std::string> names_;
  std::map<std::string, NameId, std::less<>> ids_;
};

}  // namespace sluice::jinja
