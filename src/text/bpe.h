#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_parts.h"
#include "text/vocabulary_index.h"

namespace fs::text {

/// Byte pair encoding: starts with a token a byte and joins the neighbours whose merge has the lowest rank,
/// the leftmost first, until no merge applies. Immutable.
class Bpe {
 public:
  /// Checks bytes and merges against the vocabulary, of which `index` is the index; throws Error(unusable)
  /// naming `source` and the key. A vocabulary without a token for each of the 256 bytes is refused, because
  /// text could then vanish.
  Bpe(const TokenizerParts& parts, const VocabularyIndex& index, const std::string& source);

  /// What one call of encode keeps to itself, so that Bpe can be shared by threads: buffers, and the words
  /// seen so far. Bounded: 2^16 words that are views of the text and of the ids, both of which must live.
  class Session {
   public:
    /// `text_size` is a guess of the bytes to come.
    Session(const Bpe& bpe, std::size_t text_size, std::vector<TokenId>& ids);
    /// Appends the ids of a word (bytes) to the ids. O(n log n) in its length.
    void encode(std::string_view word);

   private:
    struct Seen {
      const char* word = nullptr;
      std::uint32_t size = 0, first_id = 0, n_ids = 0;
    };
    const Bpe& bpe_;
    std::vector<TokenId>& ids_;
    std::vector<Seen> seen_;  // by hash: where a word was last, which is likely to be in the cache still
    int shift_;
    // The symbols of a long word: a doubly linked list over its bytes, and the heap of (rank, position).
    std::vector<std::uint32_t> id_, rank_, previous_, next_;
    std::vector<std::uint64_t> heap_;

    void merge_short(std::string_view word);
    void merge_long(std::string_view word);
  };

 private:
  static constexpr std::uint32_t no_rank = 0xFFFFFFFF;
  struct Merge {
    TokenId left, right;
    std::uint32_t rank;
  };

  void read_merges(const TokenizerParts& parts, const VocabularyIndex& index, const std::string& source);
  void insert(TokenId left, TokenId right, std::uint32_t rank);
  std::uint32_t rank_of(TokenId left, TokenId right) const;
  std::uint32_t rank_of_bytes(char left, char right) const {
    return byte_ranks_[std::size_t{static_cast<unsigned char>(left)} << 8 |
                       static_cast<unsigned char>(right)];
  }

  std::array<TokenId, 256> byte_ids_{};
  std::vector<std::uint32_t>
      byte_ranks_;               // [256, 256]: rank_of the tokens of two bytes, where every word starts
  std::vector<Merge> merges_;    // open addressing, linear probing; at most half full
  std::vector<TokenId> merged_;  // by rank: the token that a merge makes
  int shift_ = 0;                // hash >> shift_ is a place in merges_
};

}  // namespace fs::text
