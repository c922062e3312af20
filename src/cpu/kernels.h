#pragma once
#include <cstddef>
#include <cstdint>

/// The inner loops of the CPU backend, once for every instruction set. A kernel works on one piece of one
/// operation on one thread; how an operation is cut into pieces is decided outside, the same for every
/// instruction set.
///
/// The files that implement the table are compiled with flags of their own, so they must not instantiate
/// anything that other files instantiate too: the linker keeps one copy of an inline function, perhaps the
/// one with instructions that this processor lacks. Hence raw pointers here, and no standard templates there.
namespace fs::cpu {

/// Columns of a panel: 16 neighbouring outputs (of a weight matrix), positions (of the keys) or channels (of
/// the values) side by side, so that every matrix product reads its right-hand side as [k][16], one line
/// after another.
inline constexpr std::size_t panel_width = 16;

/// Products of a few tokens with stored weights of one Dtype. `w` is any byte address. A token's sums are
/// formed in the same order whatever the number of tokens: a batch gives what its tokens give alone.
struct DotKernels {
  /// Floats of a token's activations as dots() takes them; and how they are made of x: [cols]. Null where
  /// dots() takes x itself.
  std::size_t (*prepared_floats)(std::size_t cols);
  void (*prepare)(const float* x, std::size_t cols, float* prepared);
  /// out[t·out_stride + r] = Σ_k w[r][k] · x[t][k], one pass over the weights in the order stored.
  /// w: [rows, cols]; x: [tokens] prepared, x_stride floats from each other.
  void (*dots)(const std::byte* w, std::size_t row_bytes, std::size_t rows, std::size_t cols, const float* x,
               std::size_t x_stride, std::size_t tokens, float* out, std::size_t out_stride);
};

/// Products of many tokens with stored weights of one Dtype: tiles of the activations times panels of the
/// weights. Columns are counted from where a block of the weights begins.
struct GemmKernels {
  /// tile_rows tokens' activations [rows ≤ tile_rows, cols] with row stride x_stride, as gemm() reads them;
  /// zero for tokens ≥ rows.  tile: [tile_bytes(cols)]
  std::size_t tile_rows;
  std::size_t (*tile_bytes)(std::size_t cols);
  void (*pack)(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, std::byte* tile);
  /// Where gemm() reads the weights' own panels (PanelKernels): bytes of their first columns. Else null, and
  /// panel() makes panel_width rows as gemm() reads them, zero for r ≥ rows; of weights that are panels `w` is
  /// one and first_col is even.  panel: at most four bytes a row and column of whole blocks
  std::size_t (*panel_bytes)(std::size_t cols);
  void (*panel)(const std::byte* w, std::size_t row_bytes, std::size_t rows, std::size_t first_col,
                std::size_t cols, std::byte* panel);
  /// c (+)= tiles · panel.  c: [tiles·tile_rows, ≥ panel_width] with row stride ldc. Adds to c if
  /// `accumulate`, else overwrites it.
  void (*gemm)(const std::byte* tiles, std::size_t n_tiles, const std::byte* panel, std::size_t cols,
               float* c, std::size_t ldc, bool accumulate);
};

/// Products with activations in one form. Without dots() there are none for a few tokens, without gemm() many
/// are multiplied as a few are.
struct Products {
  DotKernels dots = {};
  const GemmKernels* gemm = nullptr;
};

/// How weights of one Dtype are brought into panels: panel_width rows side by side, zero beyond the last row,
/// a whole number of cache lines.
struct PanelKernels {
  std::size_t (*bytes)(std::size_t cols);  ///< of a panel
  /// w: rows ≤ panel_width as stored
  void (*pack)(const std::byte* w, std::size_t row_bytes, std::size_t rows, std::size_t cols,
               std::byte* panel);
  /// Decodes row r of a panel.  out: [cols]
  void (*row)(const std::byte* panel, std::size_t r, std::size_t cols, float* out);
};

/// What is done with stored weights of one Dtype. `w` is any byte address.
struct WeightKernels {
  Products exact;
  /// With activations rounded (cpu/backend.h), in instructions made for that. What is missing is done with
  /// the rounded values and `exact`.
  const Products *int8 = nullptr, *bf16 = nullptr;
  /// If there are any, weights are brought into panels, products take panels as `w` and a panel's bytes as
  /// row_bytes, and dots() write whole panels of outputs.
  const PanelKernels* panels = nullptr;
};

/// What is done with keys and values in one format of the cache.
struct CacheKernels {
  /// The nearest values of the format, ties to even; beyond fp16's range infinite.  x, out: [n]
  void (*store)(const float* x, std::size_t n, std::byte* out);
  /// c (+)= a · panels.  a: [rows, k] with row stride lda; panels: [k, panel_width] each as stored, `apart`
  /// bytes from each other; c: [rows, ≥ panels·panel_width] with row stride ldc. Adds to c if `accumulate`,
  /// else overwrites it. A row's sums are formed in the same order whatever the number of rows and panels.
  void (*gemm_rows)(const float* a, std::size_t lda, std::size_t rows, const std::byte* panel,
                    std::size_t apart, std::size_t panels, std::size_t k, float* c, std::size_t ldc,
                    bool accumulate);
};

/// What attention of many tokens multiplies with where its operands are rounded to bf16, to nearest, ties to
/// even.
struct RoundedAttention {
  void (*round)(const float* x, std::size_t n, std::uint16_t* out);  ///< x, out: [n]
  /// A panel [k, panel_width] of keys or values in a format of the cache, k even.
  /// out: [k / 2, panel_width] pairs of neighbouring rows
  using RoundPanel = void (*)(const std::byte* panel, std::size_t k, std::uint16_t* out);
  RoundPanel f32, f16, bf16;
  /// c (+)= a · panels, for tile_rows rows at once.  a: [rows, k] with row stride lda, k even, rows a
  /// multiple of tile_rows; panels: as rounded, `apart` values from each other; c: [rows, ≥
  /// panels·panel_width] with row stride ldc.
  std::size_t tile_rows;
  void (*gemm_rows)(const std::uint16_t* a, std::size_t lda, std::size_t rows, const std::uint16_t* panel,
                    std::size_t apart, std::size_t panels, std::size_t k, float* c, std::size_t ldc,
                    bool accumulate);
};

struct Kernels {
  const char* name;  ///< as --isa spells it
  const WeightKernels *f32, *f16, *bf16, *q8_0, *int4;
  const CacheKernels *cache_f32, *cache_f16, *cache_bf16;
  const RoundedAttention* attention_bf16;  ///< null where there is none

  /// out = x / sqrt(mean(x²) + eps) · weight; the sum in double. x, weight, out: [n]; out may be x.
  void (*rms_norm)(const float* x, const float* weight, std::size_t n, double eps, float* out);
  /// Turns the pairs (i, i + half) of a head by the angles whose cosines and sines are given. head: [2·half].
  void (*rope)(float* head, const float* cosines, const float* sines, std::size_t half);
  /// Online softmax (Milakov & Gimelshein 2018) over the next n scores: raises *peak to the largest, replaces
  /// each score by exp(score − *peak), brings *total to the new peak and adds them to it. Returns exp(old
  /// peak − new peak): what earlier weighted sums are to be multiplied by. exp errs by at most 2 ulp.
  float (*softmax_step)(float* scores, std::size_t n, float* peak, float* total);
  /// out = silu(gate) · up. [n]; out may be gate.
  void (*swiglu)(const float* gate, const float* up, std::size_t n, float* out);
  /// x += delta. [n]
  void (*add)(float* x, const float* delta, std::size_t n);
  /// x *= factor. [n]
  void (*scale)(float* x, float factor, std::size_t n);
};

/// Plain C++, for every processor.
extern const Kernels portable_kernels;
// Linked in on x86-64 only:
extern const Kernels avx2_kernels;        ///< AVX2, FMA and F16C
extern const Kernels avx512_kernels;      ///< AVX-512 F, BW, DQ, VL and VNNI
extern const Kernels avx512bf16_kernels;  ///< and AVX512_BF16

}  // namespace fs::cpu
