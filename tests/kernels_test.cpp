#include "kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend_checks.h"
#include "base/thread_pool.h"
#include "cuda/device_weights.h"
#include "model/dtype.h"
#include "model/quantize.h"
#include "reference/ops.h"
#include "schedules.h"

/// Every kernel against the operation of the reference that it stands for. Device memory is NaN until it is
/// written, so an output that a kernel leaves out fails.
namespace fs::gpu {
namespace {

using model::Dtype;
using testing::every_schedule;
using testing::expect_close;
using testing::UnderSchedule;
using Floats = std::vector<float>;

constexpr Dtype every_dtype[] = {Dtype::bf16, Dtype::f16, Dtype::f32, Dtype::q8_0, Dtype::int4};
constexpr std::size_t every_row_count[] = {1, 2, 5, 17, 64, 129};
constexpr double eps = 1e-6;

Floats random_floats(std::size_t n, std::uint32_t seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Floats values(n);
  for (float& value : values) value = normal(random);
  return values;
}

/// A random matrix of unit variance products, on both sides: what the reference computes with is what the
/// format holds.
struct Weights {
  Weights(Stream& stream, Dtype dtype, std::size_t rows, std::size_t cols, std::uint32_t seed)
      : host{dtype, rows, cols, nullptr}, bytes(rows * host.row_bytes()) {
    const Floats values = random_floats(rows * cols, seed, 1 / std::sqrt(static_cast<float>(cols)));
    for (std::size_t r = 0; r < rows; ++r) {
      model::encode(dtype, std::span(values).subspan(r * cols, cols), bytes.data() + r * host.row_bytes());
    }
    host.data = bytes.data();
    const WeightFormat format = cuda::FS_GPU_BUILD::format_of(dtype);
    const auto packed = cuda::FS_GPU_BUILD::packed(host, format);
    chunks = DeviceArray<unsigned char>(packed.chunks.size());
    scales = DeviceArray<std::uint16_t>(packed.scales.size());
    copy_to_device(chunks.data(), packed.chunks.data(), chunks.bytes(), stream);
    if (scales.size() > 0) copy_to_device(scales.data(), packed.scales.data(), scales.bytes(), stream);
    device = cuda::FS_GPU_BUILD::describe(format, rows, cols, chunks.data(), scales.data());
  }
  model::Matrix host;
  std::vector<std::byte> bytes;
  DeviceArray<unsigned char> chunks;
  DeviceArray<std::uint16_t> scales;
  DeviceMatrix device;
};

class Kernels : public ::testing::Test {
 protected:
  template <class T>
  DeviceArray<T> put(const std::vector<T>& values) {
    DeviceArray<T> array(values.size());
    copy_to_device(array.data(), values.data(), array.bytes(), stream);
    return array;
  }
  template <class T>
  std::vector<T> get(const DeviceArray<T>& array) {
    std::vector<T> values(array.size());
    copy_to_host(values.data(), array.data(), array.bytes(), stream);
    stream.synchronize();
    return values;
  }
  Floats normed(const Floats& x, const Floats& weight) {
    Floats out(x.size());
    reference::rms_norm(x, weight, eps, out);
    return out;
  }
  Floats product(const Weights& w, const Floats& x) {
    Floats out(x.size() / w.host.cols * w.host.rows);
    reference::linear(pool, w.host, x, out);
    return out;
  }

  void check_embed(Dtype dtype, std::size_t rows, std::size_t hidden) {
    const Weights table(stream, dtype, 31, hidden, 1);
    std::vector<int> ids(rows);
    std::vector<TokenId> tokens(rows);
    for (std::size_t i = 0; i < rows; ++i)
      ids[i] = static_cast<int>(tokens[i] = static_cast<TokenId>(i * 7 % 31));
    const auto device_ids = put(ids);
    const DeviceArray<float> x(rows * hidden);
    embed(stream, table.device, device_ids.data(), static_cast<int>(rows), x.data());
    Floats want(rows * hidden);
    reference::embed(table.host, tokens, want);
    EXPECT_EQ(get(x), want);
  }

  void check_norm_qkv(Dtype dtype, std::size_t rows, std::size_t cols) {
    const Weights w(stream, dtype, rows, cols, 2);
    const Floats x = random_floats(cols, 3, 5), norm = random_floats(cols, 4);
    const auto dx = put(x), dnorm = put(norm);
    const DeviceArray<float> with(rows), without(rows);
    norm_qkv(stream, w.device, dx.data(), dnorm.data(), static_cast<float>(eps), with.data());
    norm_qkv(stream, w.device, dx.data(), nullptr, 0, without.data());
    expect_close(get(with), product(w, normed(x, norm)), fmt::format("norm_qkv {} x {}", rows, cols));
    expect_close(get(without), product(w, x), fmt::format("norm_qkv without norm {} x {}", rows, cols));
  }

  void check_swiglu(Dtype dtype, std::size_t rows, std::size_t cols) {
    const Weights gate(stream, dtype, rows, cols, 5), up(stream, dtype, rows, cols, 6);
    const Floats x = random_floats(cols, 7, 2), norm = random_floats(cols, 8);
    const auto dx = put(x), dnorm = put(norm);
    const DeviceArray<float> act(rows);
    swiglu(stream, gate.device, up.device, dx.data(), dnorm.data(), static_cast<float>(eps), act.data());
    Floats want = product(gate, normed(x, norm));
    reference::swiglu(want, product(up, normed(x, norm)));
    expect_close(get(act), want, fmt::format("swiglu {} x {}", rows, cols));
  }

  void check_mlp_down(Dtype dtype, std::size_t rows, std::size_t cols) {
    const Weights w(stream, dtype, rows, cols, 9);
    const Floats act = random_floats(cols, 10);
    Floats want = random_floats(rows, 11);
    const auto dact = put(act), dx = put(want);
    mlp_down(stream, w.device, dact.data(), dx.data());
    reference::add(want, product(w, act));
    expect_close(get(dx), want, fmt::format("mlp_down {} x {}", rows, cols));
  }

  void check_head(Dtype dtype, std::size_t rows, std::size_t cols) {
    const Weights w(stream, dtype, rows, cols, 12);
    const Floats x = random_floats(cols, 13), norm = random_floats(cols, 14);
    const auto dx = put(x), dnorm = put(norm);
    const auto blocks = static_cast<std::size_t>(head_blocks(static_cast<int>(rows)));
    const DeviceArray<float> logits(rows), best(blocks);
    const DeviceArray<int> ids(blocks);
    const auto token = put(std::vector<int>{-1}), position = put(std::vector<int>{41});
    head(stream, w.device, dx.data(), dnorm.data(), static_cast<float>(eps), logits.data(), best.data(),
         ids.data());
    next_token(stream, best.data(), ids.data(), static_cast<int>(blocks), token.data(), position.data());
    const Floats got = get(logits);
    expect_close(got, product(w, normed(x, norm)), fmt::format("head {} x {}", rows, cols));
    EXPECT_EQ(get(token)[0], std::max_element(got.begin(), got.end()) - got.begin());
    EXPECT_EQ(get(position)[0], 42);
  }

  void check_rms_norm(std::size_t rows, std::size_t width) {
    const Floats x = random_floats(rows * width, 15, 3), weight = random_floats(width, 16);
    const auto dx = put(x), dweight = put(weight);
    const DeviceArray<float> out(x.size());
    rms_norm(stream, dx.data(), dweight.data(), static_cast<float>(eps), static_cast<int>(rows),
             static_cast<int>(width), out.data());
    expect_close(get(out), normed(x, weight), fmt::format("rms_norm {} x {}", rows, width));
  }

  void check_linear(Dtype dtype, std::size_t tokens, std::size_t rows, std::size_t cols) {
    const Weights w(stream, dtype, rows, cols, 17);
    const Floats x = random_floats(tokens * cols, 18);
    Floats want = random_floats(tokens * rows, 19);
    const auto dx = put(x), added = put(want);
    const DeviceArray<float> out(want.size());
    linear(stream, w.device, dx.data(), static_cast<int>(tokens), false, out.data());
    linear(stream, w.device, dx.data(), static_cast<int>(tokens), true, added.data());
    const Floats plain = product(w, x);
    expect_close(get(out), plain, fmt::format("linear {} tokens {} x {}", tokens, rows, cols));
    reference::add(want, plain);
    expect_close(get(added), want, fmt::format("linear, added, {} tokens {} x {}", tokens, rows, cols));
  }

  void check_swiglu_pairs(std::size_t count) {
    Floats gate = random_floats(count, 20, 8);
    const Floats up = random_floats(count, 21);
    const auto dgate = put(gate), dup = put(up);
    swiglu_pairs(stream, dgate.data(), dup.data(), count, dgate.data());
    reference::swiglu(gate, up);
    expect_close(get(dgate), gate, "swiglu_pairs");
  }

  /// Queries, keys and values of `rows` tokens behind `start` cached positions.
  struct Attention {
    model::Config config;
    AttentionShape shape;
    std::size_t start, rows;
    Floats qkv, q_norm, k_norm;     // raw projections
    Floats q, keys, values, mixed;  // what the reference makes of them; keys and values of all positions
    Floats cached_keys, cached_values, angles;  // as the device holds them, NaN from `start` on
  };
  Attention make_attention(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t start,
                           std::size_t rows) {
    Attention a;
    a.config.n_q_heads = n_q;
    a.config.n_kv_heads = n_kv;
    a.config.head_dim = dim;
    a.shape = {static_cast<int>(n_q), static_cast<int>(n_kv), static_cast<int>(dim)};
    a.start = start;
    a.rows = rows;
    const std::size_t positions = start + rows, kv_width = n_kv * dim, q_width = n_q * dim;
    a.qkv = random_floats(rows * (q_width + 2 * kv_width), 22, 3);
    a.q_norm = random_floats(dim, 23, 1.5F);
    a.k_norm = random_floats(dim, 24, 1.5F);
    a.keys = random_floats(positions * kv_width, 25);
    a.values = random_floats(positions * kv_width, 26);
    a.q.resize(rows * q_width);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const row = a.qkv.data() + r * (q_width + 2 * kv_width);
      std::copy_n(row, q_width, a.q.data() + r * q_width);
      std::copy_n(row + q_width, kv_width, a.keys.data() + (start + r) * kv_width);
      std::copy_n(row + q_width + kv_width, kv_width, a.values.data() + (start + r) * kv_width);
    }
    constexpr double theta = 1e6;
    const auto new_keys = std::span(a.keys).subspan(start * kv_width);
    reference::rms_norm(a.q, a.q_norm, eps, a.q);
    reference::rms_norm(new_keys, a.k_norm, eps, new_keys);
    reference::rope(a.q, n_q, dim, start, theta);
    reference::rope(new_keys, n_kv, dim, start, theta);
    a.mixed.resize(a.q.size());
    reference::attention(pool, a.config, a.q, a.keys, a.values, start, a.mixed);

    a.angles.resize(positions * dim);
    for (std::size_t p = 0; p < positions; ++p) {
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(dim));
        a.angles[p * dim + 2 * i] = static_cast<float>(std::cos(angle));
        a.angles[p * dim + 2 * i + 1] = static_cast<float>(std::sin(angle));
      }
    }
    a.cached_keys = padded(a, a.keys, start);
    a.cached_values = padded(a, a.values, start);
    return a;
  }
  /// [positions, n_kv_heads, pitch], NaN from position `filled` on.
  static Floats padded(const Attention& a, const Floats& rows, std::size_t filled) {
    const auto pitch = static_cast<std::size_t>(a.shape.pitch());
    const std::size_t dim = a.config.head_dim, heads = rows.size() / dim;
    Floats out(heads * pitch, NAN);
    for (std::size_t h = 0; h < filled * a.config.n_kv_heads; ++h) {
      std::fill_n(out.data() + h * pitch, pitch, 0.0F);
      std::copy_n(rows.data() + h * dim, dim, out.data() + h * pitch);
    }
    return out;
  }

  void check_attention_decode(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t at,
                              bool rotated, Dtype dtype = Dtype::bf16) {
    const std::string what = fmt::format("{} heads, {} KV heads of {}, position {}", n_q, n_kv, dim, at);
    const Attention a = make_attention(n_q, n_kv, dim, at, 1);
    const auto qkv = put(a.qkv), q_norm = put(a.q_norm), k_norm = put(a.k_norm), angles = put(a.angles);
    const auto keys = put(a.cached_keys), values = put(a.cached_values);
    const auto position = put(std::vector<int>{static_cast<int>(at)});
    const DeviceArray<float> peak(decode_splits * n_q), mass(decode_splits * n_q),
        partial(decode_splits * n_q * dim);
    const DeviceArray<float> mixed(n_q * dim);
    const Rotation rotation = {q_norm.data(), k_norm.data(), angles.data(), static_cast<float>(eps)};
    const LayerCache cache = {keys.data(), values.data()};
    const Partials partials = {peak.data(), mass.data(), partial.data()};
    if (rotated) rotate(stream, a.shape, rotation, qkv.data(), 1, static_cast<int>(at), cache);
    attention_decode(stream, a.shape, qkv.data(), rotated, rotation, cache, position.data(), partials);
    merge_partials(stream, a.shape, partials, position.data(), mixed.data());
    expect_close(get(mixed), a.mixed, what);
    expect_close(get(keys), padded(a, a.keys, at + 1), what + ", keys");
    expect_close(get(values), padded(a, a.values, at + 1), what + ", values");

    // The same partials merged in the prologue of attn_out.
    const Weights o(stream, dtype, 37, n_q * dim, 27);
    Floats want = random_floats(37, 28);
    const auto fused = put(want), split = put(want);
    attn_out(stream, a.shape, o.device, partials, position.data(), nullptr, fused.data());
    attn_out(stream, a.shape, o.device, partials, position.data(), mixed.data(), split.data());
    reference::add(want, product(o, a.mixed));
    expect_close(get(fused), want, what + ", attn_out");
    EXPECT_EQ(get(fused), get(split));
  }

  void check_prefill(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t start,
                     std::size_t rows) {
    const std::string what =
        fmt::format("{} heads, {} KV heads of {}, {} rows at {}", n_q, n_kv, dim, rows, start);
    const Attention a = make_attention(n_q, n_kv, dim, start, rows);
    const auto qkv = put(a.qkv), q_norm = put(a.q_norm), k_norm = put(a.k_norm), angles = put(a.angles);
    const auto keys = put(a.cached_keys), values = put(a.cached_values);
    const DeviceArray<float> mixed(a.mixed.size());
    const LayerCache cache = {keys.data(), values.data()};
    const auto n = static_cast<int>(rows), first = static_cast<int>(start);
    rotate(stream, a.shape, {q_norm.data(), k_norm.data(), angles.data(), static_cast<float>(eps)},
           qkv.data(), n, first, cache);
    attention_prefill(stream, a.shape, qkv.data(), cache, n, first, mixed.data());
    expect_close(get(mixed), a.mixed, what);
    expect_close(get(keys), padded(a, a.keys, start + rows), what + ", keys");
    expect_close(get(values), padded(a, a.values, start + rows), what + ", values");
  }

  Stream stream;
  ThreadPool pool{2};
};

TEST_F(Kernels, EmbedCopiesRows) {
  for (const Dtype dtype : every_dtype) {
    for (const std::size_t rows : every_row_count) check_embed(dtype, rows, 26);
    check_embed(dtype, 2, 1024);
  }
}

TEST_F(Kernels, GemvKernelsMatchAtRealWidths) {
  check_head(Dtype::bf16, 151936, 40);
  for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
    check_norm_qkv(dtype, 4096, 1024);
    check_swiglu(dtype, 3072, 1024);
    check_mlp_down(dtype, 1024, 3072);
    check_head(dtype, 300, 1024);
  }
}

TEST_F(Kernels, GemvKernelsMatchAtOddWidths) {
  for (const Dtype dtype : every_dtype) {
    for (const auto& [rows, cols] :
         {std::pair<std::size_t, std::size_t>{1, 1}, {8, 256}, {37, 26}, {53, 1030}, {129, 3500}}) {
      check_norm_qkv(dtype, rows, cols);
      check_swiglu(dtype, rows, cols);
      check_mlp_down(dtype, rows, cols);
      check_head(dtype, rows, cols);
    }
  }
}

TEST_F(Kernels, PrefillKernelsMatchForAnyNumberOfTokens) {
  for (const std::size_t rows : every_row_count) {
    check_rms_norm(rows, 1024);
    check_rms_norm(rows, 26);
    for (const Dtype dtype : every_dtype) check_linear(dtype, rows, 37, 26);
    for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) check_linear(dtype, rows, 130, 257);
    check_swiglu_pairs(rows * 37);
  }
  check_linear(Dtype::bf16, 17, 1024, 3072);
  check_swiglu_pairs(3072 * 129);
}

TEST_F(Kernels, AttentionDecodeMatchesAtAnyPosition) {
  for (const std::size_t at : {0U, 1U, 63U, 64U, 127U, 128U, 1023U, 1024U, 2047U}) {
    check_attention_decode(4, 2, 128, at, false);
    check_attention_decode(6, 2, 10, at, at % 2 == 0);
  }
  for (const Dtype dtype : every_dtype) check_attention_decode(16, 8, 128, 300, false, dtype);
}

TEST_F(Kernels, AttentionDecodeMatchesForAnyHeads) {
  for (const std::size_t group : {1U, 2U, 3U, 8U}) {
    for (const std::size_t dim : {2U, 20U, 66U, 256U}) check_attention_decode(2 * group, 2, dim, 130, false);
  }
}

TEST_F(Kernels, AttentionPrefillMatchesForAnyRowsAtAnyPosition) {
  for (const std::size_t start : {0U, 1U, 127U, 128U, 2047U}) {
    for (const std::size_t rows : every_row_count) check_prefill(4, 2, 20, start, rows);
    check_prefill(2, 1, 128, start, 17);
  }
  for (const std::size_t dim : {2U, 33U * 2, 256U}) check_prefill(3, 1, dim, 40, 20);
}

TEST_F(Kernels, HeadPicksTheLowestOfEqualLogits) {
  for (const int best : {0, 63, 64, 199}) {
    Floats values(200, 0.0F);
    for (const int id : {best, 150, 199}) {
      if (id >= best) values[static_cast<std::size_t>(id)] = 2;
    }
    // lm_head is [200, 1] and the input 1, so the logits are its elements.
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    const model::Matrix matrix{Dtype::f32, values.size(), 1, bytes.data()};
    const auto memory = put(cuda::FS_GPU_BUILD::packed(matrix, WeightFormat::f32).chunks);
    const DeviceMatrix device =
        cuda::FS_GPU_BUILD::describe(WeightFormat::f32, values.size(), 1, memory.data());
    const auto one = put(Floats{1});
    const DeviceArray<float> logits(values.size()), best_logit(4);
    const DeviceArray<int> best_id(4);
    const auto token = put(std::vector<int>{-1}), position = put(std::vector<int>{0});
    head(stream, device, one.data(), nullptr, 0, logits.data(), best_logit.data(), best_id.data());
    next_token(stream, best_logit.data(), best_id.data(), 4, token.data(), position.data());
    EXPECT_EQ(get(token)[0], best);
  }
}

TEST_F(Kernels,
       MatchAtTheSmallestShapes) {  // few enough threads for ThreadSanitizer, which looks for races here
  for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
    check_norm_qkv(dtype, 3, 40);
    check_swiglu(dtype, 3, 40);
    check_mlp_down(dtype, 3, 40);
    check_head(dtype, 70, 40);
  }
  check_embed(Dtype::q8_0, 1, 40);
  check_rms_norm(1, 26);
  check_linear(Dtype::int4, 1, 3, 40);
  check_swiglu_pairs(3);
  check_attention_decode(2, 1, 6, 1, false);
  check_prefill(1, 1, 6, 1, 5);
}

TEST_F(Kernels, MatchUnderEverySchedule) {
  for (const auto& schedule : every_schedule()) {
    SCOPED_TRACE(schedule.name);
    const UnderSchedule under(schedule);
    for (const Dtype dtype : every_dtype) {
      check_embed(dtype, 3, 26);
      check_norm_qkv(dtype, 37, 160);
      check_swiglu(dtype, 37, 26);
      check_mlp_down(dtype, 37, 26);
      check_head(dtype, 200, 26);
      check_linear(dtype, 5, 70, 40);
      check_attention_decode(6, 2, 10, 130, false, dtype);
    }
    check_rms_norm(3, 26);
    check_swiglu_pairs(300);
    check_attention_decode(4, 2, 20, 65, true);
    check_prefill(4, 2, 20, 33, 20);
  }
}

}  // namespace
}  // namespace fs::gpu
