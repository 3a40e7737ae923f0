// The schemas of data/schemas.json: values that fit are taken, others are not, and what no grammar holds is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "grammar/schema/schema_validator.h"
#include "tests/grammar/support.h"

namespace sluice::grammar {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

json::array cases() {
  Result<json::value> all = parse_json(read_file(SLUICE_TEST_DATA "/schemas.json"), "schemas.json");
  EXPECT_TRUE(all.ok());
  return all ? all->get_array() : json::array();
}

request::Constraint constraint_of(const json::value& schema, bool strict = false) {
  return {request::JsonSchema{
              .schema = write_json(schema), .strict = strict, .closed_objects = false, .any_order = true},
          ""};
}

TEST(Schemas, FitsIsTakenAndNothingElse) {
  const json::array all = cases();
  EXPECT_GE(all.size(), 150U);
  for (const json::value& one : all) {
    const std::string_view name = one.at("name").get_string();
    const auto grammar = compile(constraint_of(one.at("schema")));
    ASSERT_TRUE(grammar.ok()) << name << ": " << grammar.error().message;
    for (const json::value& value : one.at("valid").get_array())
      EXPECT_TRUE(takes(*grammar, write_json(value))) << name << " refuses " << write_json(value);
    for (const json::value& value : one.at("invalid").get_array())
      EXPECT_FALSE(takes(*grammar, write_json(value))) << name << " takes " << write_json(value);
  }
}

TEST(Schemas, StrictNamesWhatCannotBeHeld) {
  for (const json::value& one : cases()) {
    const std::string_view name = one.at("name").get_string();
    const Result<PreparedConstraint> prepared = prepare(constraint_of(one.at("schema"), true));
    const json::value* refused = one.as_object().if_contains("refused");
    if (refused == nullptr) {
      EXPECT_TRUE(prepared.ok()) << name << ": " << prepared.error().message;
      continue;
    }
    ASSERT_FALSE(prepared.ok()) << name;
    const std::string keyword = "`" + std::string(refused->get_string()) + "` at #";
    EXPECT_NE(prepared.error().message.find(keyword), std::string::npos)
        << name << ": " << prepared.error().message;
    EXPECT_EQ(prepared.error().code, ErrorCode::Unsupported) << name;
  }
}

TEST(Schemas, ValidatorAgrees) {
  for (const json::value& one : cases()) {
    const auto document = SchemaDocument::make(one.at("schema"));
    ASSERT_TRUE(document.ok()) << document.error().message;
    const SchemaValidator validator(*document);
    for (const json::value& value : one.at("valid").get_array()) {
      const auto violation = validator.check(value);
      EXPECT_TRUE(violation.ok() && !violation->has_value()) << one.at("name") << " refuses " << value;
    }
    for (const json::value& value : one.at("invalid").get_array()) {
      const auto violation = validator.check(value);
      EXPECT_TRUE(violation.ok() && violation->has_value()) << one.at("name") << " takes " << value;
    }
  }
}

// The JSON Schema Test Suite, as PyPI's jsonschema carries it: SLUICE_SCHEMA_SUITE names its folder of draft 2020-12.
struct SuiteCounts {
  int valid_taken = 0, valid_refused = 0, invalid_taken = 0, invalid_refused = 0, schemas = 0, refused = 0;
};

void run_suite_case(const json::value& one, const std::string& file, SuiteCounts& counts) {
  ++counts.schemas;
  const auto document = SchemaDocument::make(one.at("schema"));
  const auto grammar = compile(constraint_of(one.at("schema")));
  if (!grammar) ++counts.refused;
  for (const json::value& test : one.at("tests").get_array()) {
    const json::value& value = test.at("data");
    const bool fits = test.at("valid").get_bool();
    // Formats are asserted here; that file has them as notes.
    if (document && file != "format.json") {
      const auto violation = SchemaValidator(*document).check(value);
      EXPECT_TRUE(violation.ok() && violation->has_value() == !fits)
          << file << ": " << one.at("description") << ": " << test.at("description");
    }
    if (!grammar) continue;
    const bool taken = takes(*grammar, write_json(value));
    ++(fits ? (taken ? counts.valid_taken : counts.valid_refused)
            : (taken ? counts.invalid_taken : counts.invalid_refused));
    EXPECT_TRUE(fits || !taken) << file << ": " << one.at("description") << ": " << test.at("description");
  }
}

TEST(Schemas, TestSuite) {
  const char* folder = std::getenv("SLUICE_SCHEMA_SUITE");
  if (folder == nullptr) GTEST_SKIP() << "SLUICE_SCHEMA_SUITE names no folder";
  SuiteCounts counts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    Result<json::value> all = parse_json(read_file(entry.path()), "a file of the suite", {.depth = 128});
    if (!all) continue;  // numbers that no double holds
    for (const json::value& one : all->get_array()) run_suite_case(one, entry.path().filename(), counts);
  }
  EXPECT_GT(counts.schemas, 250);
  EXPECT_EQ(counts.invalid_taken, 0);
  printf("schemas %d, refused %d; valid taken %d, refused %d; invalid taken %d, refused %d\n", counts.schemas,
         counts.refused, counts.valid_taken, counts.valid_refused, counts.invalid_taken,
         counts.invalid_refused);
}

}  // namespace
}  // namespace sluice::grammar
