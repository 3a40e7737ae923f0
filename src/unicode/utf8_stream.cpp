#include "unicode/utf8_stream.h"

#include "unicode/unicode.h"

namespace sluice::unicode {

namespace {

// What is known of a sequence from its first bytes (Unicode 15, table 3-7).
enum class Prefix { Complete, Unfinished, Invalid };

struct Classified {
  Prefix prefix;
  size_t size;  // bytes of the character, of the maximal subpart, or all there are
};

struct LeadByte {
  size_t size;              // 0: no character starts with this byte
  unsigned char low, high;  // range of the second byte
};

LeadByte lead_byte(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// REQUIRES: !bytes.empty()
Classified classify(std::string_view bytes) {
  const LeadByte lead = lead_byte(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {Prefix::Invalid, 1};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Prefix::Unfinished, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) return {Prefix::Invalid, i};
  }
  return {Prefix::Complete, lead.size};
}

// The bytes from `begin` on that are valid as they stand.
size_t valid_run(std::string_view bytes, size_t begin) {
  size_t end = begin;
  while (end < bytes.size()) {
    if (static_cast<unsigned char>(bytes[end]) < 0x80) {
      ++end;
      continue;
    }
    const Classified next = classify(bytes.substr(end));
    if (next.prefix != Prefix::Complete) break;
    end += next.size;
  }
  return end - begin;
}

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  size_t position = 0;
  while (size_ > 0 && position < bytes.size()) {
    bytes_[size_++] = bytes[position++];
    const Classified held = classify({bytes_, size_});
    if (held.prefix == Prefix::Unfinished) continue;
    if (held.prefix == Prefix::Complete) {
      out.append(bytes_, size_);
    } else {
      // The new byte is not part of the character: the held ones are a maximal subpart, it starts anew.
      out += replacement_bytes;
      --position;
    }
    size_ = 0;
  }
  while (position < bytes.size()) {
    const size_t run = valid_run(bytes, position);
    out += bytes.substr(position, run);
    position += run;
    if (position == bytes.size()) return;
    const Classified next = classify(bytes.substr(position));
    if (next.prefix == Prefix::Unfinished) {
      size_ = bytes.copy(bytes_, next.size, position);
      return;
    }
    out += replacement_bytes;
    position += next.size;
  }
}

void Utf8Stream::finish(std::string& out) {
  if (size_ > 0) out += replacement_bytes;
  size_ = 0;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  return valid_run(bytes, 0) == bytes.size();
}

}  // namespace sluice::unicode
