// The filters, in groups.
#pragma once

#include <span>

#include "jinja/runtime.h"

namespace sluice::jinja {

std::span<const NamedCall> text_filters();
std::span<const NamedCall> number_filters();
std::span<const NamedCall> sequence_filters();
std::span<const NamedCall> select_filters();

// item.a.b.0 for the path "a.b.0"; an integer or none is also a path. `fallback` stands in for what is
// undefined.
Value follow_path(Runtime& runtime, const Value& item, const Value& path, const Value* fallback = nullptr);
// Lower case where it is a string; other values as they are.
Value ignore_case(Runtime& runtime, const Value& value);

}  // namespace sluice::jinja
