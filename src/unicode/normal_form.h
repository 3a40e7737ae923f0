// The four normal forms.
#pragma once

#include <cstdint>

#include "unicode/aligned_text.h"

namespace sluice::unicode {

enum class UnicodeForm : uint8_t { Nfc, Nfd, Nfkc, Nfkd };

// One of the normal forms (Unicode annex 15).
AlignedText to_unicode_form(const AlignedText& text, UnicodeForm form);

}  // namespace sluice::unicode
