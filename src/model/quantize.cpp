#include "model/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/quoted.h"
#include "model/storage.h"

namespace fs::model {
namespace {

constexpr std::uint16_t half_infinity = 0x7C00;

template <class Bits>
void store(Bits bits, std::byte* to) {
  std::memcpy(to, &bits, sizeof bits);
}

/// The largest magnitude; infinite or NaN if any value is: as integers, magnitudes are in the order of their
/// values, with infinity and NaN on top.
float largest_magnitude(const float* x, std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    largest = std::max(largest, static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU));
  }
  return std::bit_cast<float>(largest);
}

/// A block to encode: its values filled up with zeros, and the largest magnitude among them.
template <std::size_t elements>
struct Block {
  float values[elements] = {};
  float largest;

  Block(const float* x, std::size_t n) : largest(largest_magnitude(x, n)) { std::copy(x, x + n, values); }
};

bool encode_q8_0(const float* x, std::size_t n, std::byte* out) {
  constexpr std::size_t elements = 32;
  const Block<elements> block(x, n);
  const float scale = block.largest / 127;
  const std::uint16_t half = float_to_f16(scale);
  if (!(half < half_infinity)) return false;
  const float inverse = half == 0 ? 0 : 1 / scale;
  std::int8_t digits[elements];
  for (std::size_t i = 0; i < elements; ++i) {
    const float scaled = block.values[i] * inverse;
    const int whole = static_cast<int>(scaled);
    const float rest = scaled - static_cast<float>(whole);  // exact, so that 0.49999997 does not round up
    digits[i] = static_cast<std::int8_t>(whole + (rest >= 0.5F) - (rest <= -0.5F));
  }
  store(half, out);
  std::memcpy(out + sizeof half, digits, sizeof digits);
  return true;
}

constexpr std::size_t int4_elements = 128;

/// Σ (x − scale · (n − 8))² with the best n of 0..15, which are left in `nibbles`.
float int4_error(const Block<int4_elements>& block, float scale, std::uint8_t* nibbles) {
  constexpr std::size_t lanes = 8;
  const float inverse = 1 / scale;
  float squares[lanes] = {};
  for (std::size_t i = 0; i < int4_elements; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float x = block.values[i + lane];
      const int n = static_cast<int>(std::min(std::max(x * inverse + 8.5F, 0.0F), 15.0F));
      const float off = x - scale * static_cast<float>(n - 8);
      squares[lane] += off * off;
      nibbles[i + lane] = static_cast<std::uint8_t>(n);
    }
  }
  float sum = 0;
  for (const float square : squares) sum += square;
  return sum;
}

bool encode_int4(const float* x, std::size_t n, std::byte* out) {
  const Block<int4_elements> block(x, n);
  if (!(float_to_f16(block.largest / 7) < half_infinity)) return false;
  const float* const extreme = std::find_if(std::begin(block.values), std::end(block.values),
                                            [&](float value) { return std::abs(value) == block.largest; });
  // With r = 7 both signs have room; towards 8 the steps get finer and only the extreme's own sign loses
  // nothing; beyond, the extreme itself is cut.
  std::uint16_t best_half = 0;
  std::uint8_t best[int4_elements], trial[int4_elements];
  std::fill(std::begin(best), std::end(best), std::uint8_t{8});
  float least = std::numeric_limits<float>::infinity();
  for (int thirds = 21; thirds <= 33; ++thirds) {
    const std::uint16_t half = float_to_f16(-*extreme * 3 / static_cast<float>(thirds));
    if ((half & 0x7FFFU) == 0) break;
    const float error = int4_error(block, f16_to_float(half), trial);
    if (error < least) {
      least = error;
      best_half = half;
      std::copy(std::begin(trial), std::end(trial), best);
    }
  }
  std::uint32_t words[int4_elements / 8] = {};
  for (std::size_t e = 0; e < int4_elements; ++e) {
    words[e / 64 * 8 + e % 8] |= std::uint32_t{best[e]} << (e % 64 / 8 * 4);
  }
  store(best_half, out);
  std::memcpy(out + sizeof best_half, words, sizeof words);
  return true;
}

bool encode_halves(Dtype dtype, std::span<const float> row, std::byte* out) {
  if (!std::isfinite(largest_magnitude(row.data(), row.size()))) return false;
  constexpr std::uint16_t bf16_infinity = 0x7F80;
  const std::uint16_t infinity = dtype == Dtype::f16 ? half_infinity : bf16_infinity;
  bool fits = true;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t half = dtype == Dtype::f16 ? float_to_f16(row[i]) : float_to_bf16(row[i]);
    fits &= (half & 0x7FFFU) != infinity;
    store(half, out + i * sizeof half);
  }
  return fits;
}

}  // namespace

bool encode(Dtype dtype, std::span<const float> row, std::byte* out) {
  switch (dtype) {
    case Dtype::f32:
      if (!row.empty()) std::memcpy(out, row.data(), row.size_bytes());
      return true;
    case Dtype::f16:
    case Dtype::bf16:
      return encode_halves(dtype, row, out);
    case Dtype::q8_0:
    case Dtype::int4:
      break;
  }
  const std::size_t elements = block_elements(dtype);
  for (std::size_t i = 0; i < row.size(); i += elements, out += block_bytes(dtype)) {
    const std::size_t n = std::min(elements, row.size() - i);
    if (!(dtype == Dtype::q8_0 ? encode_q8_0(&row[i], n, out) : encode_int4(&row[i], n, out))) return false;
  }
  return true;
}

void encode_rows(const std::string& name, const Matrix& from, std::size_t first, std::size_t n, Dtype dtype,
                 std::byte* to, ThreadPool& pool) {
  const std::size_t bytes = row_bytes(dtype, from.cols);
  pool.for_ranges(n, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(from.cols);
    for (std::size_t r = begin; r < end; ++r) {
      from.row(first + r, row);
      if (encode(dtype, row, to + r * bytes)) continue;
      fail(ExitCode::unusable,
           "tensor {}: row {} has the value {}, which {} cannot hold; choose another --dtype",
           in_quotes(name), first + r, largest_magnitude(row.data(), row.size()), model::name(dtype));
    }
  });
}

Weights quantize(const Config& config, const Weights& weights, Dtype dtype, ThreadPool& pool,
                 const Progress& progress) {
  const auto target = [&](const std::string& name) {
    const bool table = name == embedding_name || name == head_name;
    return dtype == Dtype::int4 && table ? Dtype::q8_0 : dtype;
  };
  constexpr std::size_t cache_line = 64;
  Weights result = weights;
  std::size_t bytes = 0, elements = 0;
  bool all = true;
  replace_matrices(config, result, [&](const std::string& name, Matrix& matrix) {
    if (matrix.dtype == target(name)) {
      all = false;
    } else {
      bytes +=
          (matrix.rows * row_bytes(target(name), matrix.cols) + cache_line - 1) / cache_line * cache_line;
      elements += matrix.rows * matrix.cols;
    }
  });
  if (bytes == 0) return result;

  const std::shared_ptr<std::byte> storage = weight_memory(bytes);
  std::byte* to = storage.get();
  std::size_t done = 0;
  replace_matrices(config, result, [&](const std::string& name, Matrix& matrix) {
    if (matrix.dtype == target(name)) return;
    if (progress) progress("quantize", done, elements);
    const Matrix from = matrix;
    matrix = {target(name), from.rows, from.cols, to};
    encode_rows(name, from, 0, from.rows, matrix.dtype, to, pool);
    release_pages({from.data, from.rows * from.row_bytes()});
    to += (matrix.rows * matrix.row_bytes() + cache_line - 1) / cache_line * cache_line;
    done += matrix.rows * matrix.cols;
  });
  if (progress) progress("quantize", elements, elements);
  if (all) result.storage.clear();
  result.storage.push_back(storage);
  return result;
}

}  // namespace fs::model
