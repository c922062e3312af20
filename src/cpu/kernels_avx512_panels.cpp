#include "cpu/avx512.h"

namespace fs::cpu {
namespace {

// Products in integers: one instruction multiplies four neighbouring columns of sixteen rows and adds the
// products. Its weights have no sign: u = q + offset. Σ q·x = Σ u·x − offset · Σ x, so the sums of a block
// start from −offset · Σ x.
//
// Activations are blocks of 32 in fixed point, x ≈ d · (65536·h + 256·m + l), digits in −128..127, |x| ≤
// 8355711 · d: as fine as an fp32 of the block's largest value (an error of 1.2e-7 times that at most, the
// product's rounding included), where int8 activations are one digit, x ≈ d · h.

constexpr size_t block = 32, steps = block / 4;

/// A block of a token as products read it: D digits of four columns for each step, then what D sums start
/// from, then d, 4 bytes each.
template <int D>
constexpr size_t block_words = (steps + 1) * D + 1;

size_t blocks_of(size_t cols) { return (cols + block - 1) / block; }

template <int D>
size_t prepared_floats(size_t cols) {
  return blocks_of(cols) * block_words<D>;
}

/// 16 columns at a time: x · inverse to the nearest integers, then their digits from the last one up.
template <int D>
void digits_of(Floats x, Floats inverse, __m128i (&digits)[D]) {
  __m512i rest = _mm512_cvtps_epi32(mul(x, inverse));  // ties to even
  for (int i = D - 1; i > 0; --i) {
    digits[i] = _mm512_cvtepi32_epi8(rest);  // the low 8 bits: a digit in −128..127
    rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(digits[i])), 8);
  }
  digits[0] = _mm512_cvtepi32_epi8(rest);
}

template <class Format, int D>
void prepare(const float* x, size_t cols, float* prepared) {
  constexpr float largest_integer = D == 1 ? 127 : 8355711;  // 127 in every digit
  for (size_t k = 0; k < cols; k += block, prepared += block_words<D>) {
    const size_t n = cols - k < block ? cols - k : block;
    const Floats low = load_part(x + k, n < width ? n : width),
                 high = n > width ? load_part(x + k + width, n - width) : zero();
    // Magnitudes as integers: infinity and NaN on top.
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const int largest =
        _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                                 _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
    float peak;
    __builtin_memcpy(&peak, &largest, sizeof peak);
    const bool finite = largest < 0x7F800000, small = peak < 0x1p-100F;
    const Floats inverse = all(small ? 0 : largest_integer / peak);
    __m128i first[D], second[D];
    digits_of<D>(finite ? low : zero(), inverse, first);
    digits_of<D>(finite ? high : zero(), inverse, second);
    // All products with a block that is not finite are NaN.
    const float d = !finite ? __builtin_nanf("") : small ? 0 : peak / largest_integer;

    int words[block_words<D>];
    for (int i = 0; i < D; ++i) {
      alignas(32) signed char digit[block];
      _mm_store_si128(reinterpret_cast<__m128i*>(digit), first[i]);
      _mm_store_si128(reinterpret_cast<__m128i*>(digit + width), second[i]);
      int sum = 0;
      for (const signed char one : digit) sum += one;
      for (size_t s = 0; s < steps; ++s) __builtin_memcpy(words + s * D + i, digit + 4 * s, 4);
      words[steps * D + i] = -Format::offset * sum;
    }
    __builtin_memcpy(words + (steps + 1) * D, &d, sizeof d);
    __builtin_memcpy(prepared, words, sizeof words);
  }
}

/// P panels against M tokens. A row's sum is the same for every P and M.
template <class Format, int D, int M, int P>
void tile(const std::byte* panels, size_t panel_bytes, size_t cols, const float* x, size_t x_stride,
          float* out, size_t out_stride) {
  const std::byte* const scales = panels + Format::scales_at(cols);
  Floats total[P][M];
  FS_UNROLL for (auto& panel : total) { FS_UNROLL for (auto& one : panel) one = zero(); }
  for (size_t b = 0; b < blocks_of(cols); ++b, x += block_words<D>) {
    const auto* const words = reinterpret_cast<const int*>(x);
    __m512i sum[P][M][D];
    FS_UNROLL for (size_t m = 0; m < M; ++m) {
      FS_UNROLL for (size_t i = 0; i < D; ++i) {
        const __m512i start = _mm512_set1_epi32(words[m * x_stride + steps * D + i]);
        FS_UNROLL for (size_t p = 0; p < P; ++p) sum[p][m][i] = start;
      }
    }
    FS_UNROLL for (size_t s = 0; s < steps; ++s) {
      __m512i u[P];
      FS_UNROLL for (size_t p = 0; p < P; ++p) {
        u[p] = Format::step(panels + p * panel_bytes + b * Format::block_bytes, s);
      }
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        FS_UNROLL for (size_t i = 0; i < D; ++i) {
          const __m512i digits = _mm512_set1_epi32(words[m * x_stride + s * D + i]);
          FS_UNROLL for (size_t p = 0; p < P; ++p) {
            sum[p][m][i] = _mm512_dpbusd_epi32(sum[p][m][i], u[p], digits);
          }
        }
      }
    }
    FS_UNROLL for (size_t p = 0; p < P; ++p) {
      const Floats scale = F16::decode(scales + p * panel_bytes + Format::scale_at(b));
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        Floats value;
        if constexpr (D == 1) {
          value = _mm512_cvtepi32_ps(sum[p][m][0]);
        } else {
          // 32 products are below 2^20, so this one stays below 2^29.
          const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sum[p][m][0], 8), sum[p][m][1]);
          value = fma(_mm512_cvtepi32_ps(upper), all(256), _mm512_cvtepi32_ps(sum[p][m][2]));
        }
        total[p][m] = fma(value, mul(scale, all(x[m * x_stride + (steps + 1) * D])), total[p][m]);
      }
    }
  }
  FS_UNROLL for (size_t p = 0; p < P; ++p) {
    FS_UNROLL for (size_t m = 0; m < M; ++m) store(out + m * out_stride + p * panel_width, total[p][m]);
  }
}

template <class Format, int D, int M>
void tiles(const std::byte* panels, size_t panel_bytes, size_t rows, size_t cols, const float* x,
           size_t x_stride, float* out, size_t out_stride) {
  constexpr size_t P = M == 1 ? 2 : 1;
  size_t r = 0;
  for (; r + (P - 1) * panel_width < rows; r += P * panel_width, panels += P * panel_bytes) {
    tile<Format, D, M, P>(panels, panel_bytes, cols, x, x_stride, out + r, out_stride);
  }
  for (; r < rows; r += panel_width, panels += panel_bytes) {
    tile<Format, D, M, 1>(panels, panel_bytes, cols, x, x_stride, out + r, out_stride);
  }
}

/// DotKernels::dots() of panels: `row_bytes` are a panel's.
template <class Format, int D>
void dots(const std::byte* panels, size_t panel_bytes, size_t rows, size_t cols, const float* x,
          size_t x_stride, size_t tokens, float* out, size_t out_stride) {
  constexpr int most = D == 1 ? 12 : 6;
  for (; tokens >= most; tokens -= most, x += most * x_stride, out += most * out_stride) {
    tiles<Format, D, most>(panels, panel_bytes, rows, cols, x, x_stride, out, out_stride);
  }
  for (size_t m; tokens > 0; tokens -= m, x += m * x_stride, out += m * out_stride) {
    m = tokens <= 5 ? tokens : tokens / 2;  // 5 at most
    const auto rest = m == 1   ? tiles<Format, D, 1>
                      : m == 2 ? tiles<Format, D, 2>
                      : m == 3 ? tiles<Format, D, 3>
                      : m == 4 ? tiles<Format, D, 4>
                               : tiles<Format, D, 5>;
    rest(panels, panel_bytes, rows, cols, x, x_stride, out, out_stride);
  }
}

/// What a format's panels and sums have in common; Format says how the bytes u of a step are stored.
template <class Format>
struct Panels {
  static size_t scales_at(size_t cols) { return (blocks_of(cols) * Format::block_bytes + 63) / 64 * 64; }
  static size_t scale_at(size_t b) { return b / Format::blocks_a_scale * 2 * panel_width; }
  static size_t bytes(size_t cols) {
    return (scales_at(cols) + scale_at(blocks_of(cols) + Format::blocks_a_scale - 1) + 63) / 64 * 64;
  }

  /// Two blocks at once: sixteen rows of 64 columns as bytes u, turned, are four columns of every row.
  static void pack(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, std::byte* panel) {
    for (size_t b = 0; b < blocks_of(cols); b += 2) {
      const bool both = b + 1 < blocks_of(cols);
      Floats v[width];
      for (size_t r = 0; r < panel_width; ++r) {
        v[r] = _mm512_castsi512_ps(r < rows ? Format::two_blocks(w + r * row_bytes, b, both)
                                            : _mm512_set1_epi8(static_cast<char>(Format::offset)));
      }
      transpose(v);
      Format::put(v, panel + b * Format::block_bytes);
      if (both) Format::put(v + steps, panel + (b + 1) * Format::block_bytes);
    }
    for (size_t b = 0; b < blocks_of(cols); b += Format::blocks_a_scale) {
      std::byte* const scales = panel + scales_at(cols) + scale_at(b);
      for (size_t r = 0; r < panel_width; ++r) {
        if (r < rows) {
          __builtin_memcpy(scales + 2 * r, w + r * row_bytes + Format::stored_at(b), 2);
        } else {
          __builtin_memset(scales + 2 * r, 0, 2);
        }
      }
    }
  }

  static void row(const std::byte* panel, size_t r, size_t cols, float* out) {
    for (size_t k = 0; k < cols; ++k) {
      const size_t b = k / block, s = k % block / 4;
      alignas(64) unsigned char u[64];
      _mm512_store_si512(u, Format::step(panel + b * Format::block_bytes, s));
      const int q = static_cast<int>(u[4 * r + k % 4]) - Format::offset;
      out[k] = scale_of(panel + scales_at(cols) + scale_at(b) + 2 * r) * static_cast<float>(q);
    }
  }
};

struct Q8_0 : Panels<Q8_0> {
  static constexpr int offset = 128;
  static constexpr size_t block_bytes = block * panel_width, blocks_a_scale = 1;
  /// Where the stored block b of a row begins.
  static size_t stored_at(size_t b) { return 34 * b; }

  static __m512i two_blocks(const std::byte* row, size_t b, bool both) {
    const auto* const first = reinterpret_cast<const __m256i*>(row + stored_at(b) + 2);
    const auto* const second = reinterpret_cast<const __m256i*>(row + stored_at(b + 1) + 2);
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256(first));
    const __m512i q = both ? _mm512_inserti64x4(low, _mm256_loadu_si256(second), 1) : low;
    return _mm512_xor_si512(q, _mm512_set1_epi8(static_cast<char>(offset)));
  }
  static void put(const Floats* v, std::byte* to) {
    for (size_t s = 0; s < steps; ++s) _mm512_storeu_ps(to + 64 * s, v[s]);
  }
  static __m512i step(const std::byte* at, size_t s) { return _mm512_loadu_si512(at + 64 * s); }
};

/// The upper half of a byte is four steps on from the lower half.
struct Int4 : Panels<Int4> {
  static constexpr int offset = 8;
  static constexpr size_t block_bytes = block * panel_width / 2, blocks_a_scale = 4;
  static size_t stored_at(size_t b) { return b / 4 * 66; }

  /// Eight stored words have 64 columns: their j-th nibbles are columns 8·j to 8·j + 7.
  static __m512i two_blocks(const std::byte* row, size_t b, bool) {
    const std::byte* const words = row + stored_at(b) + 2 + b % 4 / 2 * 32;
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    alignas(64) unsigned char u[64];
    for (int j = 0; j < 8; ++j) {
      const __m256i n = _mm256_and_si256(_mm256_srli_epi32(packed, 4 * j), _mm256_set1_epi32(15));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(u + 8 * j), _mm256_cvtepi32_epi8(n));
    }
    return _mm512_load_si512(u);
  }
  static void put(const Floats* v, std::byte* to) {
    for (size_t s = 0; s < steps / 2; ++s) {
      const __m512i lower = _mm512_castps_si512(v[s]), upper = _mm512_castps_si512(v[steps / 2 + s]);
      _mm512_storeu_si512(to + 64 * s, _mm512_or_si512(lower, _mm512_slli_epi32(upper, 4)));
    }
  }
  static __m512i step(const std::byte* at, size_t s) {
    const __m512i bytes = _mm512_loadu_si512(at + 64 * (s % (steps / 2)));
    return _mm512_and_si512(s < steps / 2 ? bytes : _mm512_srli_epi32(bytes, 4), _mm512_set1_epi8(15));
  }
};

template <class Format>
constexpr PanelKernels panel_kernels{
    Format::bytes,
    Format::pack,
    Format::row,
    {prepared_floats<3>, prepare<Format, 3>, dots<Format, 3>},
    {prepared_floats<1>, prepare<Format, 1>, dots<Format, 1>},
};

}  // namespace

constexpr PanelKernels avx512_q8_0 = panel_kernels<Q8_0>;
constexpr PanelKernels avx512_int4 = panel_kernels<Int4>;

}  // namespace fs::cpu
