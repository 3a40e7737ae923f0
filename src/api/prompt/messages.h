// Messages of a conversation, as clients write them, to the form that chat templates read: a role of a closed set,
// content as one string, and the calls and reasoning of earlier answers.
#pragma once

#include "api/fields/field_table.h"

namespace sluice::api {

// OpenAI's: content a string or parts, texts and, of users, pictures. Used as a field's read().
Status read_messages(const json::value& value, ParsedRequest& parsed);
// The same for a list of another name.
Status read_message_list(const json::array& list, std::string_view name, ParsedRequest& parsed);

// The texts of a list of parts {"type": "text" or "input_text" or "output_text" or "refusal", ...}, joined by line
// breaks. `where` names the list in an error.
Result<std::string> join_parts(const json::array& parts, std::string_view where);

// The bytes of "data:TYPE;base64,...", or an http(s) address; other URLs are refused. `where` names the field in an
// error.
Result<PictureSource> read_picture_url(std::string_view url, std::string_view where);

// The text under a name; empty where there is none.
std::string_view text_of(const json::object& object, std::string_view name);

// Template variables that a request may set. Names that the server sets itself are refused.
Status read_template_variables(const json::value& value, ParsedRequest& parsed);

}  // namespace sluice::api
