// Any bytes as a tokenizer.json: they are refused with Error(unusable), or make a tokenizer that gives its
// own tokens back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const fs::text::Tokenizer tokenizer = fs::text::Tokenizer::parse(json, "fuzz.json");
    const std::string text = fs::text::lossy_utf8(json.substr(0, 256)).text;
    for (const fs::TokenId id : tokenizer.encode(text)) {
      if (id >= tokenizer.size()) std::abort();
    }
    for (fs::TokenId id = 0; id < tokenizer.size(); ++id) static_cast<void>(tokenizer.decode({&id, 1}));
  } catch (const fs::Error& error) {
    if (error.code() != fs::ExitCode::unusable) std::abort();
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
