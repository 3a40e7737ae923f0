#include "api/service.h"
#include "base/version.h"

namespace sluice::api {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

}  // namespace

json::object openapi() {
  json::object paths;
  for (const Operation& operation : operations()) {
    json::object& path = paths.emplace(operation.path, json::object()).first->value().as_object();
    path[lower(operation.method)] = {{"summary", json::string(operation.summary)}};
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "sluice"}, {"version", json::string(build_info().version)}}},
          {"paths", paths}};
}

}  // namespace sluice::api
