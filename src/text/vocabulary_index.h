#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "text/hash.h"

namespace fs::text {

/// Token string → id, by open addressing. The strings stay where they are and must outlive it.
class VocabularyIndex {
 public:
  /// `tokens` by id. If a string occurs twice, duplicate() is its second id and the index is incomplete.
  explicit VocabularyIndex(std::span<const std::string_view> tokens) : tokens_(tokens) {
    const std::size_t n_slots = std::bit_ceil(2 * tokens.size() + 2);
    shift_ = 64 - std::countr_zero(n_slots);
    slots_.resize(n_slots);
    for (TokenId id = 0; id < tokens.size(); ++id) {
      const std::uint64_t hash = hash_bytes(tokens[id]);
      if (lookup(tokens[id], hash)) {
        duplicate_ = id;
        return;
      }
      std::size_t place = hash >> shift_;
      while (slots_[place].id_plus_1 != 0) place = (place + 1) & (n_slots - 1);
      slots_[place] = {static_cast<std::uint32_t>(hash), id + 1};
    }
  }

  std::optional<TokenId> find(std::string_view token) const { return lookup(token, hash_bytes(token)); }
  std::optional<TokenId> duplicate() const { return duplicate_; }

 private:
  struct Slot {
    std::uint32_t hash = 0, id_plus_1 = 0;
  };

  std::optional<TokenId> lookup(std::string_view token, std::uint64_t hash) const {
    for (std::size_t place = hash >> shift_; slots_[place].id_plus_1 != 0;
         place = (place + 1) & (slots_.size() - 1)) {
      const Slot slot = slots_[place];
      if (slot.hash == static_cast<std::uint32_t>(hash) && tokens_[slot.id_plus_1 - 1] == token) {
        return slot.id_plus_1 - 1;
      }
    }
    return std::nullopt;
  }

  std::span<const std::string_view> tokens_;
  std::vector<Slot> slots_;
  int shift_ = 0;
  std::optional<TokenId> duplicate_;
};

}  // namespace fs::text
