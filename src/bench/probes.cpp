#include "bench/probes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// A probe is compiled for its own instructions, and called only where the processor has them. Its ones and
// its sums come out of an empty piece of assembly: else the compiler knows that all sums are the same, and
// computes one. There are more of them than an instruction has cycles of latency times units.

#if defined(__clang__)
#define FS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace fs::bench {
namespace {

constexpr int sums = 10;
constexpr std::size_t steps = 64;  // of every sum in a round

/// Of a round: `lanes` in each of the sums, `products` of them added to each by one instruction.
constexpr double operations(std::size_t lanes, std::size_t products, int n_sums = sums) {
  return 2.0 * n_sums * static_cast<double>(steps * lanes * products);
}

/// Makes the compiler forget what it knows of a register's value; inside a loop, where a volatile piece of
/// assembly would keep other registers from staying registers, take it for another value than before.
#if defined(__x86_64__)
#define FS_FORGET(value) asm volatile("" : "+v"(value))
#define FS_CHANGE(value) asm("" : "+v"(value))
#else
#define FS_FORGET(value) asm volatile("" : "+w"(value))
#define FS_CHANGE(value) asm("" : "+w"(value))
#endif

using Floats = float __attribute__((vector_size(16)));

double portable_fp32(std::size_t rounds) {
  Floats one{1, 1, 1, 1}, sum[sums] = {};
  FS_FORGET(one);
  FS_UNROLL for (auto& s : sum) FS_FORGET(s);
  for (std::size_t step = 0; step < rounds * steps; ++step) {
    FS_UNROLL for (auto& s : sum) {
#if defined(__aarch64__)
      for (int lane = 0; lane < 4; ++lane) s[lane] = __builtin_fmaf(one[lane], one[lane], s[lane]);
#else
      FS_CHANGE(one);  // else the product is computed once for all sums
      s += one * one;
#endif
    }
  }
  double total = 0;
  for (const Floats& s : sum) total += double{s[0]} + double{s[1]} + double{s[2]} + double{s[3]};
  return total;
}

#if defined(__x86_64__)

template <class Number, class Vector, std::size_t n_sums>
double total_of(const Vector (&sum)[n_sums]) {
  constexpr std::size_t lanes = sizeof(Vector) / sizeof(Number);
  double total = 0;
  for (const Vector& vector : sum) {
    Number values[lanes];
    __builtin_memcpy(values, &vector, sizeof values);
    for (const Number value : values) total += static_cast<double>(value);
  }
  return total;
}

__attribute__((target("avx2,fma"))) double avx2_fma(std::size_t rounds) {
  __m256 one = _mm256_set1_ps(1), sum[sums] = {};
  FS_FORGET(one);
  FS_UNROLL for (auto& s : sum) FS_FORGET(s);
  for (std::size_t step = 0; step < rounds * steps; ++step) {
    FS_UNROLL for (auto& s : sum) s = _mm256_fmadd_ps(one, one, s);
  }
  return total_of<float>(sum);
}

__attribute__((target("avx512f"))) double avx512_fma(std::size_t rounds) {
  __m512 one = _mm512_set1_ps(1), sum[sums] = {};
  FS_FORGET(one);
  FS_UNROLL for (auto& s : sum) FS_FORGET(s);
  for (std::size_t step = 0; step < rounds * steps; ++step) {
    FS_UNROLL for (auto& s : sum) s = _mm512_fmadd_ps(one, one, s);
  }
  return total_of<float>(sum);
}

/// A product of int8 that is exact for any of them takes three instructions: pairs into 16 bits, pairs of
/// those into 32 bits, the sum, which alone waits for the one before: few sums do.
constexpr int int8_sums = 4;
__attribute__((target("avx2"))) double avx2_maddubs(std::size_t rounds) {
  __m256i one = _mm256_set1_epi8(1), one16 = _mm256_set1_epi16(1), sum[int8_sums] = {};
  FS_FORGET(one);
  FS_FORGET(one16);
  FS_UNROLL for (auto& s : sum) FS_FORGET(s);
  for (std::size_t step = 0; step < rounds * steps; ++step) {
    FS_UNROLL for (auto& s : sum) {
      FS_CHANGE(one);
      s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(one, one), one16));
    }
  }
  return total_of<std::int32_t>(sum);
}

__attribute__((target("avx512f,avx512vnni"))) double avx512_vnni(std::size_t rounds) {
  __m512i one = _mm512_set1_epi8(1), sum[sums] = {};
  FS_FORGET(one);
  FS_UNROLL for (auto& s : sum) FS_FORGET(s);
  for (std::size_t step = 0; step < rounds * steps; ++step) {
    FS_UNROLL for (auto& s : sum) s = _mm512_dpbusd_epi32(s, one, one);
  }
  return total_of<std::int32_t>(sum);
}

__attribute__((target("avx512f,avx512bf16"))) double avx512_bf16(std::size_t rounds) {
  __m512i one = _mm512_set1_epi16(0x3F80);
  FS_FORGET(one);
  __m512 sum[sums] = {};
  FS_UNROLL for (auto& s : sum) FS_FORGET(s);
  for (std::size_t step = 0; step < rounds * steps; ++step) {
    FS_UNROLL for (auto& s : sum) s = _mm512_dpbf16_ps(s, (__m512bh)one, (__m512bh)one);
  }
  return total_of<float>(sum);
}

#endif

}  // namespace

std::vector<PeakProbe> peak_probes() {
  PeakProbe fp32{Arithmetic::fp32, "portable", operations(4, 1), portable_fp32};
  std::vector<PeakProbe> more;
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
    fp32 = {Arithmetic::fp32, "avx2 fma", operations(8, 1), avx2_fma};
  }
  if (avx512) fp32 = {Arithmetic::fp32, "avx512 fma", operations(16, 1), avx512_fma};
  if (avx512 && __builtin_cpu_supports("avx512bf16")) {
    more.push_back({Arithmetic::bf16, "avx512 dpbf16", operations(16, 2), avx512_bf16});
  }
  if (avx512 && __builtin_cpu_supports("avx512vnni")) {
    more.push_back({Arithmetic::int8, "avx512 vnni", operations(16, 4), avx512_vnni});
  } else if (__builtin_cpu_supports("avx2")) {
    more.push_back({Arithmetic::int8, "avx2 maddubs", operations(8, 4, int8_sums), avx2_maddubs});
  }
#endif
  more.insert(more.begin(), fp32);
  return more;
}

std::uint64_t read_memory(const std::byte* from, std::size_t bytes) {
  using Words = std::uint64_t __attribute__((vector_size(16), may_alias));
  constexpr std::size_t streams = 4, words_of_line = 64 / sizeof(Words);
  const std::size_t words = bytes / streams / sizeof(Words);  // of a stream
  const auto* const begin = reinterpret_cast<const Words*>(from);
  Words sum[streams] = {};
  for (std::size_t at = 0; at < words; at += words_of_line) {
    FS_UNROLL for (std::size_t stream = 0; stream < streams; ++stream) {
      FS_UNROLL for (std::size_t i = 0; i < words_of_line; ++i) sum[stream] ^= begin[stream * words + at + i];
    }
  }
  const Words all = (sum[0] ^ sum[1]) ^ (sum[2] ^ sum[3]);
  return all[0] ^ all[1];
}

}  // namespace fs::bench
