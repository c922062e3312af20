#include "cpu/avx512.h"
#include "cpu/vector_rows.h"

namespace fs::cpu {
namespace {

// Products in integers: one instruction multiplies four neighbouring columns of sixteen rows and adds the
// products. Its weights have no sign: u = q + offset. Σ q·x = Σ u·x − offset · Σ x, so the sums of a block
// start from −offset · Σ x.
//
// Activations are in fixed point, x ≈ d · (65536·h + 256·m + l), digits in −128..127, |x| ≤ 8355710 · d, with
// one d for 128 columns: as fine as an fp32 of the largest of them (an error of 1.2e-7 times that at most,
// the product's rounding included), where int8 activations are one digit, x ≈ d · h, with a d for each 32.
//
// A panel is read strictly from front to back, scales between the weights: one core reads 30 GB/s so, which
// the arithmetic keeps up with. Scales behind the weights they belong to, or two panels side by side, brought
// it down to 15 to 19: the second-level cache's prefetcher, which alone has enough lines under way, then
// falls behind.

constexpr size_t block = 32, steps = block / 4, step_bytes = 4 * panel_width;
constexpr size_t scale_bytes = 2 * panel_width;
constexpr size_t prefetch_bytes = 2048;

/// Blocks that share a d.
template <int D>
constexpr size_t blocks_of_d = D == 1 ? 1 : 4;
/// Blocks whose products are summed up as integers: they share the weights' scale and d.
template <class Format, int D>
constexpr size_t blocks_of_sum =
    Format::blocks_in_group < blocks_of_d<D> ? Format::blocks_in_group : blocks_of_d<D>;
template <class Format, int D>
constexpr size_t digit_words = steps* blocks_of_sum<Format, D>;
/// The blocks of such a sum as products read them, of one token: for each digit four columns a word, first
/// digits first; then what D sums start from, then d.
template <class Format, int D>
constexpr size_t sum_words = (digit_words<Format, D> + 1) * D + 1;
/// Bits of the last digit's sum that are rounded off, so that all sums fit one integer.
constexpr int lost_bits = 5;

/// What the layouts of panels have in common. A group is scales and the blocks of weights [steps] that share
/// them; Format says how a block stores its u.
template <class Format>
struct Layout {
  static size_t groups_of(size_t cols) {
    constexpr size_t columns = block * Format::blocks_in_group;
    return (cols + columns - 1) / columns;
  }
  static size_t blocks_of(size_t cols) { return groups_of(cols) * Format::blocks_in_group; }
  static size_t bytes(size_t cols) { return (groups_of(cols) * Format::group_bytes + 63) / 64 * 64; }

  template <int D>
  static size_t prepared_floats(size_t cols) {
    return blocks_of(cols) / blocks_of_sum<Format, D> * sum_words<Format, D>;
  }

  /// Two blocks at once: sixteen rows of 64 columns as bytes u, turned, are four columns of every row.
  static void pack(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, std::byte* panel) {
    const size_t blocks = (cols + block - 1) / block;  // stored ones
    for (size_t b = 0; b < blocks; b += 2) {
      const bool both = b + 1 < blocks;
      Floats v[width];
      for (size_t r = 0; r < panel_width; ++r) {
        const __m512i u = r < rows ? Format::two_blocks(w + r * row_bytes, b, both) : zero_weights();
        v[r] = _mm512_castsi512_ps(u);
      }
      transpose(v);
      Format::put(v, at(panel, b));
      if (both) Format::put(v + steps, at(panel, b + 1));
    }
    for (size_t g = 0; g < groups_of(cols); ++g) {
      std::byte* const scales = panel + g * Format::group_bytes;
      __builtin_memset(scales, 0, scale_bytes);
      for (size_t r = 0; r < rows; ++r) {
        __builtin_memcpy(scales + 2 * r, w + r * row_bytes + g * Format::stored_bytes, 2);
      }
    }
  }

  static void row(const std::byte* panel, size_t r, size_t cols, float* out) {
    for (size_t k = 0; k < cols; ++k) {
      const size_t b = k / block, g = b / Format::blocks_in_group;
      alignas(64) unsigned char u[step_bytes];
      _mm512_store_si512(u, Format::step(at(panel, b), k % block / 4));
      const float scale = scale_of(panel + g * Format::group_bytes + 2 * r);
      out[k] = scale * static_cast<float>(static_cast<int>(u[4 * r + k % 4]) - Format::offset);
    }
  }

 private:
  static __m512i zero_weights() { return _mm512_set1_epi8(static_cast<char>(Format::offset)); }
  template <class Byte>
  static Byte* at(Byte* panel, size_t b) {
    return panel + b / Format::blocks_in_group * Format::group_bytes + scale_bytes +
           b % Format::blocks_in_group * Format::block_bytes;
  }
};

struct Q8_0 : Layout<Q8_0> {
  static constexpr int offset = 128;
  static constexpr size_t stored_bytes = 34;  // of a group
  static constexpr size_t blocks_in_group = 1, block_bytes = steps * step_bytes;
  static constexpr size_t group_bytes = blocks_in_group * block_bytes + scale_bytes;

  static __m512i two_blocks(const std::byte* row, size_t b, bool both) {
    const auto* const first = reinterpret_cast<const __m256i*>(row + stored_bytes * b + 2);
    const auto* const second = reinterpret_cast<const __m256i*>(row + stored_bytes * (b + 1) + 2);
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256(first));
    const __m512i q = both ? _mm512_inserti64x4(low, _mm256_loadu_si256(second), 1) : low;
    return _mm512_xor_si512(q, _mm512_set1_epi8(static_cast<char>(offset)));
  }
  static void put(const Floats* v, std::byte* to) {
    for (size_t s = 0; s < steps; ++s) _mm512_storeu_ps(to + step_bytes * s, v[s]);
  }
  static __m512i step(const std::byte* at, size_t s) { return _mm512_loadu_si512(at + step_bytes * s); }
};

/// The upper half of a byte is four steps on from the lower half.
struct Int4 : Layout<Int4> {
  static constexpr int offset = 8;
  static constexpr size_t stored_bytes = 66;
  static constexpr size_t blocks_in_group = 4, block_bytes = steps / 2 * step_bytes;
  static constexpr size_t group_bytes = blocks_in_group * block_bytes + scale_bytes;

  /// Eight stored words have 64 columns: their j-th nibbles are columns 8·j to 8·j + 7.
  static __m512i two_blocks(const std::byte* row, size_t b, bool) {
    const std::byte* const words = row + b / 4 * stored_bytes + 2 + b % 4 / 2 * 32;
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
      _mm512_storeu_si512(to + step_bytes * s, _mm512_or_si512(lower, _mm512_slli_epi32(upper, 4)));
    }
  }
  static __m512i step(const std::byte* at, size_t s) {
    const __m512i bytes = _mm512_loadu_si512(at + step_bytes * (s % (steps / 2)));
    return _mm512_and_si512(s < steps / 2 ? bytes : _mm512_srli_epi32(bytes, 4), _mm512_set1_epi8(15));
  }
};

/// The digits of 32 columns' integers: of each, first digits first, eight fours.
template <int D>
void digits_of(const __m512i (&integers)[2], __m256i (&fours)[D]) {
  // With 128 added to each digit, digits are the bytes of an integer.
  const __m512i offset = _mm512_set1_epi32(D == 1 ? 0x80 : 0x808080);
  const __m512i byte_by_byte =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const auto turned = [&](__m512i four_by_four) {
    const __m512i bytes = _mm512_xor_si512(_mm512_add_epi32(four_by_four, offset), _mm512_set1_epi8(-128));
    return _mm512_shuffle_epi8(bytes, byte_by_byte);
  };
  const __m512i low = turned(integers[0]), high = turned(integers[1]);
  const __m512i lasts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
  FS_UNROLL for (size_t i = 0; i < D; ++i) {
    const __m512i which = _mm512_add_epi32(lasts, _mm512_set1_epi32(static_cast<int>(D - 1 - i)));
    fours[i] = _mm512_castsi512_si256(_mm512_permutex2var_epi32(low, which, high));
  }
}

/// Magnitudes as integers: infinity and NaN on top.
inline __m512i magnitudes(Floats x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
}

template <class Format, int D>
void prepare(const float* x, size_t cols, float* prepared) {
  constexpr size_t together = blocks_of_d<D>, summed = blocks_of_sum<Format, D>;
  // 127 in every digit, and one less for what x · inverse may be rounded up by.
  constexpr float largest_integer = D == 1 ? 127 : 8355710;
  const size_t blocks = Format::blocks_of(cols);
  for (size_t first = 0; first < blocks; first += together) {
    const size_t here = blocks - first < together ? blocks - first : together;
    Floats half[2 * together];
    __m512i top = _mm512_setzero_si512();
    FS_UNROLL for (size_t i = 0; i < 2 * together; ++i) {
      const size_t at = first * block + i * width, left = at >= cols ? 0 : cols - at;
      half[i] = left == 0 ? zero() : load_part(x + at, left < width ? left : width);
      top = _mm512_max_epi32(top, magnitudes(half[i]));
    }
    const int largest = _mm512_reduce_max_epi32(top);
    float peak;
    __builtin_memcpy(&peak, &largest, sizeof peak);
    const bool finite = largest < 0x7F800000, small = peak < 0x1p-100F;
    // Of blocks that are not finite d is not finite nor anything of theirs but zero, and 0 · d makes all
    // products with them NaN.
    const Floats inverse = all(finite && !small ? largest_integer / peak : 0);
    float d = small ? 0 : peak / largest_integer;
    if (D > 1) d *= 1 << lost_bits;

    auto* words = reinterpret_cast<int*>(prepared);
    for (size_t b = 0; b < here; b += summed) {
      __m256i sums[D] = {};
      FS_UNROLL for (size_t i = 0; i < summed; ++i) {
        __m512i integers[2];
        FS_UNROLL for (size_t j = 0; j < 2; ++j) {
          const Floats from = finite ? half[2 * (b + i) + j] : zero();
          integers[j] = _mm512_cvtps_epi32(mul(from, inverse));  // ties to even
        }
        __m256i fours[D];
        digits_of<D>(integers, fours);
        FS_UNROLL for (size_t digit = 0; digit < D; ++digit) {
          int* const to = words + digit * digit_words<Format, D> + i * steps;
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), fours[digit]);
          sums[digit] = _mm256_dpbusd_epi32(sums[digit], _mm256_set1_epi8(1), fours[digit]);
        }
      }
      words += digit_words<Format, D> * D;
      for (const __m256i& sum : sums) {
        *words++ = -Format::offset * _mm512_reduce_add_epi32(_mm512_zextsi256_si512(sum));
      }
      if (D > 1) words[-1] += 1 << (lost_bits - 1);
      __builtin_memcpy(words++, &d, sizeof d);
    }
    prepared = reinterpret_cast<float*>(words);
  }
}

/// sum += u · the four columns at x. What the compiler makes of the intrinsic loads them with an instruction
/// of their own; that is a few percent slower.
inline void add_products(__m512i& sum, __m512i u, const int* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(u), "m"(*x));
}

/// A panel against M tokens. Sums are integers, so a row's is the same for every M.
template <class Format, int D, int M>
void tile(const std::byte* panel, size_t cols, const float* x, size_t x_stride, float* out,
          size_t out_stride) {
  constexpr size_t summed = blocks_of_sum<Format, D>, words = sum_words<Format, D>;
  constexpr size_t groups_of_d = blocks_of_d<D> / summed;
  // One token's sums are too few to hide what an addition takes, unless every other block has its own.
  constexpr size_t chains = M == 1 && summed > 1 ? 2 : 1;
  Floats total[M], part[M];  // part: of blocks that share d
  FS_UNROLL for (size_t m = 0; m < M; ++m) total[m] = part[m] = zero();
  StridedRows<M> tokens(x, x_stride);
  const auto word = [&](size_t m, size_t index) {
    return reinterpret_cast<const int*>(tokens.row(m)) + index;
  };
  const auto start_of = [&](size_t m, size_t i) { return _mm512_set1_epi32(*word(m, words - 1 - D + i)); };
  const auto d_of = [&](size_t m) { return all(tokens.row(m)[words - 1]); };
  const size_t groups = Format::groups_of(cols);
  for (size_t g = 0; g < groups; ++g, panel += Format::group_bytes) {
    const Floats scale = F16::decode(panel);
    FS_UNROLL for (size_t first = 0; first < Format::blocks_in_group; first += summed) {
      tokens.renew();
      __m512i sum[M][D], other[M][D];
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        FS_UNROLL for (size_t i = 0; i < D; ++i) {
          sum[m][i] = start_of(m, i);
          other[m][i] = _mm512_setzero_si512();
        }
      }
      FS_UNROLL for (size_t b = 0; b < summed; ++b) {
        FS_UNROLL for (size_t s = 0; s < steps; ++s) {
          const std::byte* const at = panel + scale_bytes + (first + b) * Format::block_bytes;
          // Several tokens take so long over a page that the prefetcher's stop at its end is felt; one token
          // would be slowed down by as many requests.
          if (M > 1 && s * step_bytes < Format::block_bytes) {
            _mm_prefetch(at + s * step_bytes + prefetch_bytes, _MM_HINT_T0);
          }
          const __m512i u = Format::step(at, s);
          FS_UNROLL for (size_t m = 0; m < M; ++m) {
            FS_UNROLL for (size_t i = 0; i < D; ++i) {
              __m512i& to = b % chains == 0 ? sum[m][i] : other[m][i];
              add_products(to, u, word(m, (i * summed + b) * steps + s));
            }
          }
        }
      }
      if (chains > 1) {
        FS_UNROLL for (size_t m = 0; m < M; ++m) {
          FS_UNROLL for (size_t i = 0; i < D; ++i) sum[m][i] = _mm512_add_epi32(sum[m][i], other[m][i]);
        }
      }
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        if constexpr (D == 1) {
          total[m] = fma(_mm512_cvtepi32_ps(sum[m][0]), mul(scale, d_of(m)), total[m]);
        } else {
          // The first of the sums is below 2^19, whether of 32 products with q8_0 or of 128 with int4.
          const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(sum[m][0], 16 - lost_bits),
                                                _mm512_slli_epi32(sum[m][1], 8 - lost_bits));
          const __m512i all_digits = _mm512_add_epi32(high, _mm512_srai_epi32(sum[m][2], lost_bits));
          part[m] = fma(_mm512_cvtepi32_ps(all_digits), scale, part[m]);
        }
      }
      if (D > 1 && ((g + 1) % groups_of_d == 0 || g + 1 == groups)) {
        FS_UNROLL for (size_t m = 0; m < M; ++m) {
          total[m] = fma(part[m], d_of(m), total[m]);
          part[m] = zero();
        }
      }
      tokens.advance(words);
    }
  }
  FS_UNROLL for (size_t m = 0; m < M; ++m) store(out + m * out_stride, total[m]);
}

template <class Format, int D, int M>
void tiles(const std::byte* panel, size_t panel_bytes, size_t rows, size_t cols, const float* x,
           size_t x_stride, float* out, size_t out_stride) {
  for (size_t r = 0; r < rows; r += panel_width, panel += panel_bytes) {
    tile<Format, D, M>(panel, cols, x, x_stride, out + r, out_stride);
  }
}

template <class Format, int D>
void dots(const std::byte* panels, size_t panel_bytes, size_t rows, size_t cols, const float* x,
          size_t x_stride, size_t tokens, float* out, size_t out_stride) {
  constexpr size_t most = D == 1 ? 12 : 6;  // their sums fill the registers
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

template <class Format>
constexpr PanelKernels panels{Format::bytes, Format::pack, Format::row};
template <class Format, int D>
constexpr Products products{{Format::template prepared_floats<D>, prepare<Format, D>, dots<Format, D>}};
template <class Format>
constexpr WeightKernels weight_kernels{products<Format, 3>, &products<Format, 1>, nullptr, &panels<Format>};

}  // namespace

constexpr WeightKernels avx512_q8_0 = weight_kernels<Q8_0>;
constexpr WeightKernels avx512_int4 = weight_kernels<Int4>;

}  // namespace fs::cpu
