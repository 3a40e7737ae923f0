#include "grammar/schema/formats.h"

#include <algorithm>
#include <iterator>

namespace sluice::grammar {

namespace {

// Days that the calendar has.
constexpr std::string_view kDate =
    R"~(^(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|)~"
    R"~(30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[1)~"
    R"~(3579][26])00)-02-29)$)~";
constexpr std::string_view kDateTime =
    R"~(^(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|)~"
    R"~(30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[1)~"
    R"~(3579][26])00)-02-29)T(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:Z|[+-](?:[)~"
    R"~(01][0-9]|2[0-3]):[0-5][0-9])$)~";

constexpr std::string_view kTime =
    R"~(^(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$)~";
constexpr std::string_view kDuration =
    R"~(^P(?:(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|)~"
    R"~([0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?))?|T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?)|)~"
    R"~([0-9]+W)$)~";
// Behind a scheme anything, else no colon in the first segment.
constexpr std::string_view kUriReference =
    R"~(^(?:[A-Za-z][A-Za-z0-9+.\-]*:[!#-;=?@A-Z\[\]_a-z~]*|[!$-.0-9;=@A-Z\[\]_a-z~]*(?:[/?#][!#-;=?@A-Z\[\]_a-z~]*)?)$)~";
constexpr std::string_view kIri =
    R"~(^[A-Za-z][A-Za-z0-9+.\-]*:[!#-;=?@A-Z\[\]_a-z~\u00A1-\uD7FF\uE000-\uFFFD]*$)~";
constexpr std::string_view kIriReference =
    R"~(^(?:[A-Za-z][A-Za-z0-9+.\-]*:[!#-;=?@A-Z\[\]_a-z~\u00A1-\uD7FF\uE000-\uFFFD]*|)~"
    R"~([!$-.0-9;=@A-Z\[\]_a-z~\u00A1-\uD7FF\uE000-\uFFFD]*)~"
    R"~((?:[/?#][!#-;=?@A-Z\[\]_a-z~\u00A1-\uD7FF\uE000-\uFFFD]*)?)$)~";

constexpr StringFormat kFormats[] = {
    {.name = "date", .check = kDate, .held_by_check = true},
    {.name = "date-time", .check = kDateTime, .held_by_check = true},
    {.name = "duration", .check = kDuration},
    {.name = "email", .check = R"(^[^@\s]+@[^@\s]+$)"},
    {.name = "hostname", .check = R"(^[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?$)"},
    {.name = "ipv4", .check = R"(^(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.(?!$)|$)){4}$)"},
    {.name = "ipv6", .check = R"(^(?=.*:.*:)[0-9A-Fa-f:.]+$)"},
    {.name = "iri", .check = kIri, .held_by_check = true},
    {.name = "iri-reference", .check = kIriReference, .held_by_check = true},
    {.name = "json-pointer", .check = R"(^(?:/(?:[^~/]|~[01])*)*$)"},
    {.name = "relative-json-pointer", .check = R"(^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$)"},
    {.name = "time", .check = kTime},
    {.name = "uri", .check = R"(^[A-Za-z][A-Za-z0-9+.\-]*:[^\s<>"{}|\\^`]*$)"},
    {.name = "uri-reference", .check = kUriReference, .held_by_check = true},
    {.name = "uri-template", .check = R"(^(?:[^\s{}"<>\\^`|]|\{[^{}\s]+\})*$)"},
    {.name = "uuid", .check = R"(^[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$)"},
};

}  // namespace

const StringFormat* find_format(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const StringFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace sluice::grammar
