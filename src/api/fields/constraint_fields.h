// Readers of the fields that say what the text of an answer must be, in the words of OpenAI, vLLM, llama.cpp, Anthropic and
// Ollama. A request has one such field at most.
#pragma once

#include "api/core/parsed_request.h"
#include "base/json.h"
#include "base/result.h"

namespace sluice::api {

// {type: text | json_object | json_schema | structural_tag}; the schema in json_schema, as OpenAI has it, or beside the type.
Status read_response_format(const json::value& value, ParsedRequest& parsed);
// OpenAI's of Responses, and Anthropic's: name, schema and strict stand beside the type.
Status read_text_format(const json::value& value, ParsedRequest& parsed);
// vLLM: {json | json_object | regex | choice | grammar | structural_tag}.
Status read_structured_outputs(const json::value& value, ParsedRequest& parsed);
Status read_guided_json(const json::value& value, ParsedRequest& parsed);
Status read_guided_regex(const json::value& value, ParsedRequest& parsed);
Status read_guided_choice(const json::value& value, ParsedRequest& parsed);
// A grammar in EBNF or GBNF; nothing where it is empty.
Status read_grammar(const json::value& value, ParsedRequest& parsed);
// llama.cpp: a schema; nothing where it is empty.
Status read_json_schema(const json::value& value, ParsedRequest& parsed);
// Ollama: "json", or a schema; nothing where it is empty.
Status read_ollama_format(const json::value& value, ParsedRequest& parsed);

}  // namespace sluice::api
