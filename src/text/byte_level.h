#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fs::text {

/// GPT-2's byte-level alphabet: vocabularies spell every byte as one printable character, itself where it is
/// printable Latin-1, else the next free one from U+0100 on (a space is Ġ, U+0120).
///
/// The characters of the 256 bytes, as code points.
const std::array<std::uint32_t, 256>& byte_level_characters();

/// The bytes that a token of a vocabulary stands for. A token with a character outside of the alphabet stands
/// for itself, as in Hugging Face's ByteLevel decoder. `token` must be valid UTF-8.
std::string byte_level_bytes(std::string_view token);

}  // namespace fs::text
