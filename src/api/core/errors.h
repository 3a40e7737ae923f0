// What can go wrong with a request, in the words of the API.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/core/service.h"
#include "base/result.h"

namespace sluice::api {

// The start of a text that came from outside, at most so many bytes and never part of a character.
std::string_view clipped(std::string_view text, size_t bytes = 40);

// A value as errors show it: lists and objects by their kind, long texts by their start.
std::string shown(const json::value& value);

// InvalidArgument, for what reads a field.
Error wrong(std::string message);

// Problems of the request itself: 400 with the field at fault.
ApiError invalid_value(std::string_view param, std::string message);
ApiError unsupported_parameter(std::string_view param, std::string message);
// 404, with the models that there are.
ApiError model_not_found(const Call& call, std::string_view name);

struct ContextNeed {
  int64_t context = 0;  // of the model
  int64_t prompt = 0, completion = 0;
  bool counted = true;  // else the prompt has at least so many tokens
};
// Clients recognise an overflow by code and by words, which differ between the dialects.
// The error with the field that it names under the name that the client gave it, of those in `sent`: the readers of all
// dialects share checks that know one name.
ApiError in_clients_words(ApiError error, const std::vector<std::string>& sent);
ApiError context_overflow(Dialect dialect, const ContextNeed& need);

}  // namespace sluice::api
