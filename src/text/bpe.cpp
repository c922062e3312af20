#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/hash.h"
#include "text/utf8.h"

namespace fs::text {
namespace {

constexpr std::size_t longest_short_word =
    32;  // where scanning for the lowest rank stops being cheaper than a heap
constexpr std::size_t longest_seen_word = 128;
constexpr std::size_t most_seen_words = std::size_t{1} << 16;

std::string utf8_of(std::uint32_t below_0x800) {
  if (below_0x800 < 0x80) return {static_cast<char>(below_0x800)};
  return {static_cast<char>(0xC0u | below_0x800 >> 6), static_cast<char>(0x80u | (below_0x800 & 0x3Fu))};
}

std::uint64_t hash_pair(TokenId left, TokenId right) { return mix(std::uint64_t{left} << 32 | right); }

}  // namespace

Bpe::Bpe(const TokenizerParts& parts, const VocabularyIndex& index, const std::string& source) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string token = utf8_of(byte_level_characters()[byte]);
    const auto id = index.find(token);
    if (!id) {
      fail(ExitCode::unusable, "{}: {}: no token {} for byte 0x{:02x}; text with it would be lost", source,
           parts.tokens_key, quote(token), byte);
    }
    byte_ids_[byte] = *id;
  }
  read_merges(parts, index, source);
  byte_ranks_.reserve(256 * 256);
  for (const TokenId left : byte_ids_) {
    for (const TokenId right : byte_ids_) byte_ranks_.push_back(rank_of(left, right));
  }
}

void Bpe::read_merges(const TokenizerParts& parts, const VocabularyIndex& index, const std::string& source) {
  const std::size_t n_slots = std::bit_ceil(2 * parts.merges.size() + 2);
  shift_ = 64 - std::countr_zero(n_slots);
  merges_.resize(n_slots, {0, 0, no_rank});
  merged_.reserve(parts.merges.size());
  std::string joined;
  for (std::uint32_t rank = 0; rank < parts.merges.size(); ++rank) {
    const std::string_view left = parts.merges[rank].first, right = parts.merges[rank].second;
    const auto known = [&](std::string_view token) {
      const auto id = index.find(token);
      if (!id) {
        fail(ExitCode::unusable, "{}: {}[{}] ({} {}): {} is not in {}", source, parts.merges_key, rank,
             quote(left), quote(right), quote(token), parts.tokens_key);
      }
      return *id;
    };
    const TokenId left_id = known(left), right_id = known(right);
    joined.assign(left).append(right);
    if (rank_of(left_id, right_id) != no_rank) {
      fail(ExitCode::unusable, "{}: {}[{}] ({} {}): listed before as {}[{}]", source, parts.merges_key, rank,
           quote(left), quote(right), parts.merges_key, rank_of(left_id, right_id));
    }
    // Merges mostly make the tokens in order of id: one comparison instead of a search.
    const std::size_t next = merged_.empty() ? 0 : std::size_t{merged_.back()} + 1;
    const bool in_order = next < parts.tokens.size() && parts.tokens[next] == joined;
    insert(left_id, right_id, rank);
    merged_.push_back(in_order ? static_cast<TokenId>(next) : known(joined));
  }
}

void Bpe::insert(TokenId left, TokenId right, std::uint32_t rank) {
  std::size_t place = hash_pair(left, right) >> shift_;
  while (merges_[place].rank != no_rank) place = (place + 1) & (merges_.size() - 1);
  merges_[place] = {left, right, rank};
}

std::uint32_t Bpe::rank_of(TokenId left, TokenId right) const {
  for (std::size_t place = hash_pair(left, right) >> shift_;; place = (place + 1) & (merges_.size() - 1)) {
    const Merge& merge = merges_[place];
    if (merge.rank == no_rank || (merge.left == left && merge.right == right)) return merge.rank;
  }
}

Bpe::Session::Session(const Bpe& bpe, std::size_t text_size, std::vector<TokenId>& ids)
    : bpe_(bpe), ids_(ids) {
  const std::size_t n_slots = std::bit_ceil(std::clamp<std::size_t>(text_size / 8, 16, most_seen_words));
  seen_.resize(n_slots);
  shift_ = 64 - std::countr_zero(n_slots);
}

void Bpe::Session::encode(std::string_view word) {
  if (word.size() == 1) {
    ids_.push_back(bpe_.byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  if (word.size() > longest_seen_word) return merge_long(word);
  Seen& seen = seen_[hash_bytes(word) >> shift_];
  const std::size_t first_id = ids_.size();
  if (std::string_view(seen.word, seen.size) == word) {
    for (std::uint32_t i = 0; i < seen.n_ids; ++i) ids_.push_back(ids_[seen.first_id + i]);
  } else if (word.size() <= longest_short_word) {
    merge_short(word);
  } else {
    merge_long(word);
  }
  if (first_id > 0xFFFFFFFF) return;
  seen = {word.data(), static_cast<std::uint32_t>(word.size()), static_cast<std::uint32_t>(first_id),
          static_cast<std::uint32_t>(ids_.size() - first_id)};
}

void Bpe::Session::merge_short(std::string_view word) {
  std::array<TokenId, longest_short_word> id;
  std::array<std::uint32_t, longest_short_word> rank;  // of the pair that starts here
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i) id[i] = bpe_.byte_ids_[static_cast<unsigned char>(word[i])];
  const auto update = [&](std::size_t i) {
    rank[i] = i + 1 < count ? bpe_.rank_of(id[i], id[i + 1]) : no_rank;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) rank[i] = bpe_.rank_of_bytes(word[i], word[i + 1]);
  rank[count - 1] = no_rank;
  while (true) {
    const auto lowest = static_cast<std::size_t>(
        std::min_element(rank.begin(), rank.begin() + static_cast<std::ptrdiff_t>(count)) - rank.begin());
    if (rank[lowest] == no_rank) break;
    id[lowest] = bpe_.merged_[rank[lowest]];
    --count;
    for (std::size_t i = lowest + 1; i < count; ++i) {
      id[i] = id[i + 1];
      rank[i] = rank[i + 1];
    }
    update(lowest);
    if (lowest > 0) update(lowest - 1);
  }
  ids_.insert(ids_.end(), id.begin(), id.begin() + static_cast<std::ptrdiff_t>(count));
}

void Bpe::Session::merge_long(std::string_view word) {
  if (word.size() >= no_rank) fail(ExitCode::failed, "a word of {} bytes is too long to encode", word.size());
  const auto count = static_cast<std::uint32_t>(word.size());
  constexpr std::uint32_t none = no_rank;
  id_.resize(count);
  rank_.assign(count, no_rank);
  previous_.resize(count);
  next_.resize(count);
  heap_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    id_[i] = bpe_.byte_ids_[static_cast<unsigned char>(word[i])];
    previous_[i] = i - 1;  // none for the first
    next_[i] = i + 1 < count ? i + 1 : none;
  }
  // A heap entry is (rank, position) in one number. It is stale once rank_ at its position has changed.
  const auto entry = [&](std::uint32_t i) { return std::uint64_t{rank_[i]} << 32 | i; };
  const auto update = [&](std::uint32_t i) {
    rank_[i] = next_[i] == none ? no_rank : bpe_.rank_of(id_[i], id_[next_[i]]);
    return rank_[i] != no_rank;
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    rank_[i] = bpe_.rank_of_bytes(word[i], word[i + 1]);
    if (rank_[i] != no_rank) heap_.push_back(entry(i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>{});
  const auto update_and_push = [&](std::uint32_t i) {
    if (!update(i)) return;
    heap_.push_back(entry(i));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
    const std::uint64_t top = heap_.back();
    heap_.pop_back();
    const auto left = static_cast<std::uint32_t>(top);
    if (rank_[left] != top >> 32) continue;
    const std::uint32_t right = next_[left];
    id_[left] = bpe_.merged_[rank_[left]];
    next_[left] = next_[right];
    if (next_[right] != none) previous_[next_[right]] = left;
    rank_[right] = no_rank;  // it is no symbol any more
    update_and_push(left);
    if (previous_[left] != none) update_and_push(previous_[left]);
  }
  for (std::uint32_t i = 0; i != none; i = next_[i]) ids_.push_back(id_[i]);
}

}  // namespace fs::text
