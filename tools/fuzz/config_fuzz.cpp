// Any config.json is either refused in one line or a configuration whose sizes can be multiplied out, and any
// generation_config.json gives ids inside the vocabulary. The first byte chooses which of the two the rest
// is.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "model/config.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_config(std::string_view json) {
  const fs::model::Config config = fs::model::parse_config(json, "fuzz");
  require(config.n_kv_heads != 0 && config.group() * config.n_kv_heads == config.n_q_heads);
  require(config.head_dim % 2 == 0 && config.q_width() <= std::size_t{1} << 24);
  // In wider arithmetic: parameters() in bytes of fp32 stays inside 64 bits.
  const auto parameters = static_cast<double>(config.parameters());
  const auto hidden = static_cast<double>(config.hidden), vocab = static_cast<double>(config.vocab_size);
  require(parameters >= hidden * vocab && parameters * 4 < 0x1p64);
  require(config.rms_norm_eps > 0 && config.rope_theta >= 1);
}

void check_generation(std::string_view json) {
  constexpr std::size_t vocab_size = 151936;
  const auto generation = fs::model::parse_generation_config(json, "fuzz", vocab_size);
  if (!generation) return;
  for (const fs::TokenId id : generation->eos_ids) require(id < vocab_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) {
      check_config(rest);
    } else {
      check_generation(rest);
    }
  } catch (const fs::Error& error) {
    require(error.code() == fs::ExitCode::unusable);
    require(std::strchr(error.what(), '\n') == nullptr);
  }
  return 0;
}
