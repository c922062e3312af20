#pragma once
// A GGUF file of a small model, field by field, for tests to write out whole or spoiled. It is put together
// here by the format's definition, without the writer that is under test.
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/weights.h"
#include "model_fixtures.h"
#include "text/byte_level.h"

namespace fs::model::testing {

template <class Number>
std::string raw(Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string raw_text(std::string_view text) { return raw(std::uint64_t{text.size()}).append(text); }

// Values with their types in front, as a pair has them.
inline std::string u32_value(std::uint32_t value) { return raw(std::uint32_t{4}) + raw(value); }
inline std::string u64_value(std::uint64_t value) { return raw(std::uint32_t{10}) + raw(value); }
inline std::string i32_value(std::int32_t value) { return raw(std::uint32_t{5}) + raw(value); }
inline std::string f32_value(float value) { return raw(std::uint32_t{6}) + raw(value); }
inline std::string boolean_value(std::uint8_t value) { return raw(std::uint32_t{7}) + raw(value); }
inline std::string text_value(std::string_view text) { return raw(std::uint32_t{8}) + raw_text(text); }
inline std::string array_value(std::uint32_t type, std::uint64_t count, std::string_view elements) {
  return (raw(std::uint32_t{9}) + raw(type) + raw(count)).append(elements);
}
inline std::string texts_value(const std::vector<std::string>& texts) {
  std::string elements;
  for (const std::string& text : texts) elements += raw_text(text);
  return array_value(8, texts.size(), elements);
}
inline std::string i32s_value(const std::vector<std::int32_t>& values) {
  std::string elements;
  for (const std::int32_t value : values) elements += raw(value);
  return array_value(5, values.size(), elements);
}

inline std::string utf8(std::uint32_t below_0x800) {
  if (below_0x800 < 0x80) return {static_cast<char>(below_0x800)};
  return {static_cast<char>(0xC0U | below_0x800 >> 6U), static_cast<char>(0x80U | (below_0x800 & 0x3FU))};
}

/// One layer, hidden 32, a vocabulary of all bytes, two merges, three added tokens and padding: 264 ids.
struct SmallGguf {
  struct Slot {
    std::string name;
    std::vector<std::uint64_t> sizes;  // fastest first
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
  };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> n_tensors, n_pairs;  // if not as many as there are
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::string> tokens, merges = {"a b", "ab c"};
  std::vector<std::int32_t> types;
  std::vector<Slot> slots;
  std::string data;
  std::size_t alignment = 32;

  static Config config() {
    return {.vocab_size = 264,
            .hidden = 32,
            .intermediate = 64,
            .n_layers = 1,
            .n_q_heads = 2,
            .n_kv_heads = 1,
            .head_dim = 16,
            .max_positions = 128,
            .rms_norm_eps = 1e-6,
            .rope_theta = 1e6,
            .tie_word_embeddings = true};
  }

  /// Matrices are stored in a type of blocks of `elements` in `bytes`.
  explicit SmallGguf(std::uint32_t type = 30, std::size_t elements = 1, std::size_t bytes = 2) {
    for (const std::uint32_t character : text::byte_level_characters()) tokens.push_back(utf8(character));
    for (const char* token : {"ab", "abc", "<|endoftext|>", "<|im_end|>", "<think>"})
      tokens.emplace_back(token);
    while (tokens.size() < config().vocab_size)
      tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
    types.assign(264, 1);
    types[258] = types[259] = 3;
    types[260] = 4;
    types[261] = types[262] = types[263] = 5;
    pairs = {{"general.architecture", text_value("qwen3")},
             {"general.type", text_value("model")},
             {"qwen3.block_count", u32_value(1)},
             {"qwen3.context_length", u32_value(128)},
             {"qwen3.embedding_length", u32_value(32)},
             {"qwen3.feed_forward_length", u32_value(64)},
             {"qwen3.attention.head_count", u32_value(2)},
             {"qwen3.attention.head_count_kv", u32_value(1)},
             {"qwen3.attention.key_length", u32_value(16)},
             {"qwen3.attention.value_length", u32_value(16)},
             {"qwen3.attention.layer_norm_rms_epsilon", f32_value(1e-6F)},
             {"qwen3.rope.freq_base", f32_value(1e6F)},
             {"tokenizer.ggml.model", text_value("gpt2")},
             {"tokenizer.ggml.pre", text_value("qwen2")},
             {"tokenizer.ggml.tokens", ""},
             {"tokenizer.ggml.token_type", ""},
             {"tokenizer.ggml.merges", ""},
             {"tokenizer.ggml.eos_token_id", u32_value(259)}};
    static const std::pair<const char*, std::vector<std::uint64_t>> table[] = {
        {"token_embd", {32, 264}},    {"blk.0.attn_norm", {32}},       {"blk.0.attn_q", {32, 32}},
        {"blk.0.attn_k", {32, 16}},   {"blk.0.attn_v", {32, 16}},      {"blk.0.attn_q_norm", {16}},
        {"blk.0.attn_k_norm", {16}},  {"blk.0.attn_output", {32, 32}}, {"blk.0.ffn_norm", {32}},
        {"blk.0.ffn_gate", {32, 64}}, {"blk.0.ffn_up", {32, 64}},      {"blk.0.ffn_down", {64, 32}},
        {"output_norm", {32}},
    };
    for (const auto& [name, sizes] : table) {
      const bool matrix = sizes.size() == 2;
      slots.push_back({std::string(name) + ".weight", sizes, matrix ? type : 0, data.size()});
      const std::size_t count = matrix ? sizes[0] * sizes[1] : sizes[0];
      const std::size_t size = matrix ? count / elements * bytes : count * 4;
      // Small and finite as any 16-bit float, as fp32 and as fp16 scales of blocks.
      for (std::size_t i = 0; i < size; ++i) data += static_cast<char>(i % 2 == 0 ? data.size() % 61 : 0x2C);
      data.resize((data.size() + 31) / 32 * 32, '\0');
    }
  }

  std::string& value(std::string_view key) {
    for (auto& [name, bytes] : pairs) {
      if (name == key) return bytes;
    }
    throw std::runtime_error("no such pair: " + std::string(key));
  }
  void remove(std::string_view key) {
    std::erase_if(pairs, [&](const auto& pair) { return pair.first == key; });
  }
  Slot& slot(std::string_view name) {
    for (Slot& slot : slots) {
      if (slot.name == name) return slot;
    }
    throw std::runtime_error("no such tensor: " + std::string(name));
  }

  std::string bytes() const {
    std::string file =
        magic + raw(version) + raw(n_tensors.value_or(slots.size())) + raw(n_pairs.value_or(pairs.size()));
    for (const auto& [key, value] : pairs) {
      const bool given = !value.empty();
      file += raw_text(key);
      file += given                                ? value
              : key == "tokenizer.ggml.tokens"     ? texts_value(tokens)
              : key == "tokenizer.ggml.token_type" ? i32s_value(types)
                                                   : texts_value(merges);
    }
    for (const Slot& slot : slots) {
      file += raw_text(slot.name) + raw(static_cast<std::uint32_t>(slot.sizes.size()));
      for (const std::uint64_t size : slot.sizes) file += raw(size);
      file += raw(slot.type) + raw(slot.offset);
    }
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data;
  }
};

}  // namespace fs::model::testing
