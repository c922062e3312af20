#include "kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend_checks.h"
#include "base/thread_pool.h"
#include "cuda/device_weights.h"
#include "engine/sampler.h"
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

  /// What head and sample write, with room for a few choices.
  struct Choosing {
    explicit Choosing(std::size_t vocab_size)
        : logits(vocab_size),
          best(blocks(vocab_size)),
          ids(blocks(vocab_size)),
          peak(blocks(vocab_size)),
          mass(blocks(vocab_size)),
          chosen(4),
          log_probabilities(4) {}
    static std::size_t blocks(std::size_t vocab_size) {
      return static_cast<std::size_t>(head_blocks(static_cast<int>(vocab_size)));
    }
    HeadBlocks found() const { return {best.data(), ids.data(), peak.data(), mass.data()}; }
    DeviceArray<float> logits, best;
    DeviceArray<int> ids;
    DeviceArray<float> peak;
    DeviceArray<double> mass;
    DeviceArray<int> chosen;
    DeviceArray<double> log_probabilities;
  };
  void choose(const Choosing& c, const DeviceArray<Sampling>& sampling, const DeviceArray<int>& state) {
    sample(stream, c.logits.data(), c.found(), static_cast<int>(c.ids.size()), sampling.data(), state.data(),
           c.chosen.data(), c.log_probabilities.data());
  }

  void check_head(Dtype dtype, std::size_t rows, std::size_t cols) {
    const Weights w(stream, dtype, rows, cols, 12);
    const Floats x = random_floats(cols, 13), norm = random_floats(cols, 14);
    const auto dx = put(x), dnorm = put(norm);
    const Choosing c(rows);
    const auto state = put(std::vector<int>{-1, 41, 0, 0});
    Sampling greedy;
    greedy.n_ids = static_cast<int>(rows);
    const auto sampling = put(std::vector<Sampling>{greedy});
    head(stream, w.device, dx.data(), dnorm.data(), static_cast<float>(eps), sampling.data(), c.logits.data(),
         c.found());
    choose(c, sampling, state);
    const Floats got = get(c.logits);
    expect_close(got, product(w, normed(x, norm)), fmt::format("head {} x {}", rows, cols));
    const auto best = static_cast<int>(std::max_element(got.begin(), got.end()) - got.begin());
    EXPECT_EQ(get(state), (std::vector<int>{best, 42, 1, 0}));
    EXPECT_EQ(get(c.chosen)[0], best);
    EXPECT_NEAR(get(c.log_probabilities)[0], engine::log_probability(got, static_cast<TokenId>(best)), 1e-9);
  }

  /// The state after one choice from `logits`, and the log probability.
  struct Chosen {
    std::vector<int> state;
    double log_probability;
  };
  Chosen choose_from(const Floats& logits, const Sampling& how, int position, int times = 1) {
    // lm_head is [vocab, 1] and the input 1, so the logits are its elements.
    const model::Matrix matrix{Dtype::f32, logits.size(), 1,
                               reinterpret_cast<const std::byte*>(logits.data())};
    const auto memory = put(cuda::FS_GPU_BUILD::packed(matrix, WeightFormat::f32).chunks);
    const DeviceMatrix lm_head =
        cuda::FS_GPU_BUILD::describe(WeightFormat::f32, logits.size(), 1, memory.data());
    const auto one = put(Floats{1});
    const auto sampling = put(std::vector<Sampling>{how});
    const auto state = put(std::vector<int>{-1, position, 0, 0});
    const Choosing c(logits.size());
    head(stream, lm_head, one.data(), nullptr, 0, sampling.data(), c.logits.data(), c.found());
    for (int i = 0; i < times; ++i) choose(c, sampling, state);
    return {get(state), get(c.log_probabilities)[0]};
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

  /// On tensor cores, with all of x and with x rounded to bf16, which the reference is then given.
  void check_linear_tensor(Dtype dtype, std::size_t tokens, std::size_t rows, std::size_t cols) {
    if (!tensor_cores()) return;
    const Weights w(stream, dtype, rows, cols, 40);
    Floats x = random_floats(tokens * cols, 41, 2);
    const auto dx = put(x);
    const int n = static_cast<int>(tokens), pitch = split_pitch(static_cast<int>(cols));
    const DeviceArray<Bf16> data(3 * tokens * static_cast<std::size_t>(pitch));
    const std::string what = fmt::format("{} tokens {} x {} in {}", tokens, rows, cols, model::name(dtype));
    for (const bool exact : {true, false}) {
      const SplitRows split = {pitch, exact ? 3 : 1, data.data()};
      split_activations(stream, dx.data(), n, static_cast<int>(cols), split);
      if (!exact) {
        for (float& value : x) value = model::bf16_to_float(model::float_to_bf16(value));
      }
      Floats want = random_floats(tokens * rows, 42);
      const auto added = put(want);
      const DeviceArray<float> out(want.size());
      linear_tensor(stream, w.device, split, n, false, out.data());
      linear_tensor(stream, w.device, split, n, true, added.data());
      const Floats plain = product(w, x);
      expect_close(get(out), plain, fmt::format("linear_tensor, exact {}, {}", exact, what));
      reference::add(want, plain);
      expect_close(get(added), want, fmt::format("linear_tensor, exact {}, added, {}", exact, what));
    }
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
    Dtype kv;
    std::size_t start, rows;
    Floats qkv, q_norm, k_norm;      // raw projections
    Floats q, keys, values, angles;  // what the reference makes of them; keys and values of all positions
    std::vector<std::byte> cached_keys, cached_values;  // as the device holds them, NaN from `start` on
    LayerCache on(const DeviceArray<std::byte>& k, const DeviceArray<std::byte>& v) const {
      const KvFormat format = kv == Dtype::f32   ? KvFormat::f32
                              : kv == Dtype::f16 ? KvFormat::f16
                                                 : KvFormat::bf16;
      return {format, k.data(), v.data()};
    }
  };
  Attention make_attention(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t start,
                           std::size_t rows, Dtype kv) {
    Attention a;
    a.kv = kv;
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

    a.angles.resize(positions * dim);
    for (std::size_t p = 0; p < positions; ++p) {
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(dim));
        a.angles[p * dim + 2 * i] = static_cast<float>(std::cos(angle));
        a.angles[p * dim + 2 * i + 1] = static_cast<float>(std::sin(angle));
      }
    }
    a.cached_keys = cached(a, a.keys);
    a.cached_values = cached(a, a.values);
    return a;
  }
  /// [positions, n_kv_heads, pitch], NaN from position `start` on; `rows` become what the format holds.
  static std::vector<std::byte> cached(const Attention& a, Floats& rows) {
    const auto pitch = static_cast<std::size_t>(a.shape.pitch());
    const std::size_t dim = a.config.head_dim, bytes = model::block_bytes(a.kv);
    std::vector<std::byte> out(rows.size() / dim * pitch * bytes, std::byte{0xFF});
    for (std::size_t h = 0; h < a.start * a.config.n_kv_heads; ++h) {
      Floats head(pitch);
      std::copy_n(rows.data() + h * dim, dim, head.data());
      std::byte* const to = out.data() + h * pitch * bytes;
      model::encode(a.kv, head, to);
      model::decode(a.kv, to, std::span(rows).subspan(h * dim, dim));
    }
    return out;
  }
  /// What a cache holds is the reference's `want`, rounded, and zero behind each head.  [positions,
  /// n_kv_heads, head_dim]
  Floats check_cache(const Attention& a, const DeviceArray<std::byte>& held, const Floats& want,
                     const std::string& what) {
    const auto pitch = static_cast<std::size_t>(a.shape.pitch());
    const std::size_t dim = a.config.head_dim;
    const std::vector<std::byte> bytes = get(held);
    Floats all(want.size() / dim * pitch), got(want.size());
    model::decode(a.kv, bytes.data(), all);
    for (std::size_t h = 0; h < want.size() / dim; ++h) {
      std::copy_n(all.data() + h * pitch, dim, got.data() + h * dim);
      for (std::size_t i = dim; i < pitch; ++i) EXPECT_EQ(all[h * pitch + i], 0) << what;
    }
    const double step = a.kv == Dtype::f16 ? 0x1p-11 : a.kv == Dtype::bf16 ? 0x1p-8 : 9e-5;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double room =
          i < a.start * a.config.n_kv_heads * dim ? 0 : 1e-5 + (step + 1e-5) * std::abs(want[i]);
      EXPECT_TRUE(std::abs(got[i] - want[i]) <= room)
          << what << " element " << i << ": " << got[i] << ", " << want[i];
    }
    return got;
  }
  /// The reference's attention over what the cache holds.
  Floats mixed_of(const Attention& a, const DeviceArray<std::byte>& keys,
                  const DeviceArray<std::byte>& values, const std::string& what) {
    Floats mixed(a.q.size());
    reference::attention(pool, a.config, a.q, check_cache(a, keys, a.keys, what + ", keys"),
                         check_cache(a, values, a.values, what + ", values"), a.start, mixed);
    return mixed;
  }

  void check_attention_decode(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t at,
                              bool rotated, Dtype dtype = Dtype::bf16, Dtype kv = Dtype::f32) {
    const std::string what =
        fmt::format("{} heads, {} KV heads of {} in {}, position {}", n_q, n_kv, dim, model::name(kv), at);
    const Attention a = make_attention(n_q, n_kv, dim, at, 1, kv);
    const auto qkv = put(a.qkv), q_norm = put(a.q_norm), k_norm = put(a.k_norm), angles = put(a.angles);
    const auto keys = put(a.cached_keys), values = put(a.cached_values);
    const auto position = put(std::vector<int>{static_cast<int>(at)});
    const DeviceArray<float> peak(decode_splits * n_q), mass(decode_splits * n_q),
        partial(decode_splits * n_q * dim);
    const DeviceArray<float> mixed(n_q * dim);
    const Rotation rotation = {q_norm.data(), k_norm.data(), angles.data(), static_cast<float>(eps)};
    const LayerCache cache = a.on(keys, values);
    const Partials partials = {peak.data(), mass.data(), partial.data()};
    if (rotated) rotate(stream, a.shape, rotation, qkv.data(), 1, static_cast<int>(at), cache);
    attention_decode(stream, a.shape, qkv.data(), rotated, rotation, cache, position.data(), partials);
    merge_partials(stream, a.shape, partials, position.data(), mixed.data());
    const Floats want_mixed = mixed_of(a, keys, values, what);
    expect_close(get(mixed), want_mixed, what);

    // The same partials merged in the prologue of attn_out.
    const Weights o(stream, dtype, 37, n_q * dim, 27);
    Floats want = random_floats(37, 28);
    const auto fused = put(want), split = put(want);
    attn_out(stream, a.shape, o.device, partials, position.data(), nullptr, fused.data());
    attn_out(stream, a.shape, o.device, partials, position.data(), mixed.data(), split.data());
    reference::add(want, product(o, want_mixed));
    expect_close(get(fused), want, what + ", attn_out");
    EXPECT_EQ(get(fused), get(split));
  }

  void check_prefill(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t start, std::size_t rows,
                     Dtype kv = Dtype::f32) {
    const std::string what = fmt::format("{} heads, {} KV heads of {} in {}, {} rows at {}", n_q, n_kv, dim,
                                         model::name(kv), rows, start);
    const Attention a = make_attention(n_q, n_kv, dim, start, rows, kv);
    const auto qkv = put(a.qkv), q_norm = put(a.q_norm), k_norm = put(a.k_norm), angles = put(a.angles);
    const auto keys = put(a.cached_keys), values = put(a.cached_values);
    const DeviceArray<float> mixed(a.q.size());
    const LayerCache cache = a.on(keys, values);
    const auto n = static_cast<int>(rows), first = static_cast<int>(start);
    rotate(stream, a.shape, {q_norm.data(), k_norm.data(), angles.data(), static_cast<float>(eps)},
           qkv.data(), n, first, cache);
    attention_prefill(stream, a.shape, qkv.data(), cache, n, first, mixed.data());
    expect_close(get(mixed), mixed_of(a, keys, values, what), what);
    // Stored again from what the queries lie beside: no bit changes.
    const auto before = get(keys);
    store_kv(stream, a.shape, qkv.data(), n, first, cache);
    EXPECT_EQ(get(keys), before) << what;
  }

  /// The same on tensor cores, which the reference is given the rounded queries, keys and values of; a share
  /// of the softmax is then off by its own rounding, 2⁻⁹ of it, and so is the sum over it.
  void check_prefill_tensor(std::size_t n_q, std::size_t n_kv, std::size_t dim, std::size_t start,
                            std::size_t rows, Dtype kv = Dtype::f32) {
    if (!tensor_cores()) return;
    const std::string what = fmt::format("tensor cores, {} heads, {} KV heads of {} in {}, {} rows at {}",
                                         n_q, n_kv, dim, model::name(kv), rows, start);
    Attention a = make_attention(n_q, n_kv, dim, start, rows, kv);
    const auto qkv = put(a.qkv), q_norm = put(a.q_norm), k_norm = put(a.k_norm), angles = put(a.angles);
    const auto keys = put(a.cached_keys), values = put(a.cached_values);
    const DeviceArray<float> mixed(a.q.size());
    const LayerCache cache = a.on(keys, values);
    const auto n = static_cast<int>(rows), first = static_cast<int>(start);
    rotate(stream, a.shape, {q_norm.data(), k_norm.data(), angles.data(), static_cast<float>(eps)},
           qkv.data(), n, first, cache);
    attention_prefill_tensor(stream, a.shape, qkv.data(), cache, n, first, mixed.data());

    const auto round = [](Floats x) {
      for (float& value : x) value = model::bf16_to_float(model::float_to_bf16(value));
      return x;
    };
    const Floats turned = get(qkv);
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(turned.data() + r * turned.size() / rows, n_q * dim, a.q.data() + r * n_q * dim);
    }
    const Floats k = round(check_cache(a, keys, a.keys, what)),
                 v = round(check_cache(a, values, a.values, what));
    Floats want(a.q.size()), sizes(v), bound(a.q.size());
    reference::attention(pool, a.config, round(a.q), k, v, start, want);
    for (float& value : sizes) value = std::abs(value);
    reference::attention(pool, a.config, round(a.q), k, sizes, start, bound);
    const Floats got = get(mixed);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(std::abs(got[i] - want[i]) <= 0x1p-8F * bound[i] + 1e-4F)
          << what << " element " << i << ": " << got[i] << ", expected " << want[i];
    }
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

TEST_F(Kernels, TensorCoresMatchForAnyNumberOfTokens) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
    for (const std::size_t tokens : every_row_count) {
      check_linear_tensor(dtype, tokens, 37, 26);
      check_linear_tensor(dtype, tokens, 130, 257);
    }
    check_linear_tensor(dtype, 1, 1, 1);
    check_linear_tensor(dtype, 17, 128, 1024);
  }
  check_linear_tensor(Dtype::bf16, 17, 1024, 3072);
}

TEST_F(Kernels, AttentionDecodeMatchesAtAnyPosition) {
  for (const std::size_t at : {0U, 1U, 63U, 64U, 127U, 128U, 1023U, 1024U, 2047U}) {
    check_attention_decode(4, 2, 128, at, false);
    check_attention_decode(6, 2, 10, at, at % 2 == 0);
  }
  for (const Dtype dtype : every_dtype) check_attention_decode(16, 8, 128, 300, false, dtype);
}

TEST_F(Kernels, AttentionMatchesOverEveryCacheFormat) {
  for (const Dtype kv : {Dtype::f16, Dtype::bf16}) {
    for (const std::size_t at : {0U, 1U, 127U, 128U, 2047U}) {
      check_attention_decode(4, 2, 128, at, at % 2 == 1, Dtype::bf16, kv);
      check_attention_decode(6, 2, 10, at, at % 2 == 0, Dtype::bf16, kv);
    }
    for (const std::size_t group : {1U, 8U}) {
      for (const std::size_t dim : {2U, 66U, 256U})
        check_attention_decode(2 * group, 2, dim, 130, false, Dtype::bf16, kv);
    }
    for (const std::size_t rows : every_row_count) check_prefill(4, 2, 20, 127, rows, kv);
    check_prefill(2, 1, 128, 128, 17, kv);
  }
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

TEST_F(Kernels, FlashAttentionMatchesForAnyRowsAtAnyPosition) {
  for (const std::size_t start : {0U, 1U, 127U, 128U, 500U}) {
    for (const std::size_t rows : every_row_count) check_prefill_tensor(2, 1, 20, start, rows);
    check_prefill_tensor(2, 1, 128, start, 17);
  }
  check_prefill_tensor(1, 1, 64, 2047, 5);
  for (const Dtype kv : {Dtype::f16, Dtype::bf16}) check_prefill_tensor(4, 2, 66, 70, 70, kv);
  check_prefill_tensor(3, 3, 2, 40, 20);
}

TEST_F(Kernels, SamplePicksTheLowestOfEqualLogits) {
  Sampling greedy;
  greedy.n_ids = 200;
  for (const int best : {0, 63, 64, 199}) {
    Floats logits(200, 0.0F);
    for (const int id : {best, 150, 199}) {
      if (id >= best) logits[static_cast<std::size_t>(id)] = 2;
    }
    EXPECT_EQ(choose_from(logits, greedy, 0).state, (std::vector<int>{best, 1, 1, 0}));
  }
  Floats padded(200, 0.0F);
  padded[180] = 5;
  padded[7] = 1;
  greedy.n_ids = 100;  // ids beyond are padding
  const Chosen chosen = choose_from(padded, greedy, 0);
  EXPECT_EQ(chosen.state[state_token], 7);
  EXPECT_NEAR(chosen.log_probability, engine::log_probability(padded, 7), 1e-9);
}

TEST_F(Kernels, SampleDrawsWhatTheSamplerDraws) {
  constexpr std::size_t vocab_size = 1000, n_ids = 990;
  std::vector<Floats> distributions = {random_floats(vocab_size, 30, 3), random_floats(vocab_size, 31, 0.1F),
                                       Floats(vocab_size, 1.0F)};
  Floats ties = random_floats(vocab_size, 32, 2);
  for (float& logit : ties) logit = std::round(logit);
  ties[3] = -0.0F;
  distributions.push_back(ties);
  std::vector<engine::SamplerOptions> settings(6);
  settings[0] = {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F};
  settings[1] = {.temperature = 1.5F, .top_k = 64};
  settings[2] = {.temperature = 1, .top_k = 5, .min_p = 0.1F};
  settings[3] = {.temperature = 0.8F, .top_k = 40, .top_p = 0.9F, .min_p = 0.05F};
  settings[4] = {.temperature = 1, .top_k = 1};
  settings[5] = {.temperature = 100, .top_k = 50, .top_p = 0};
  std::size_t different = 0;
  for (engine::SamplerOptions options : settings) {
    for (const Floats& logits : distributions) {
      std::vector<TokenId> drawn;
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        options.seed = seed * 0x123456789ABCDEFU;
        const engine::Sampler sampler(options, n_ids);
        const auto position = static_cast<int>(seed * seed - 1);
        const std::vector<TokenId> history(static_cast<std::size_t>(position) + 1);
        const TokenId want = sampler.pick(logits, history);
        Sampling how{options.temperature,
                     static_cast<int>(options.top_k),
                     options.top_p,
                     options.min_p,
                     options.seed,
                     static_cast<int>(n_ids),
                     0,
                     {}};
        const Chosen got = choose_from(logits, how, position);
        ASSERT_EQ(got.state, (std::vector<int>{static_cast<int>(want), position + 1, 1, 0}))
            << "temperature " << options.temperature << " top-k " << options.top_k << " seed " << seed;
        EXPECT_NEAR(got.log_probability, engine::log_probability(logits, want), 1e-9);
        drawn.push_back(want);
      }
      different += std::set<TokenId>(drawn.begin(), drawn.end()).size() > 1;
    }
  }
  EXPECT_GE(different, 10U);  // else the draws would show nothing
}

TEST_F(Kernels, SampleStopsWhereItIsToldOrCannotChoose) {
  Sampling how;
  how.n_ids = 2000;
  how.temperature = 1;
  how.top_k = 10;
  EXPECT_EQ(choose_from(Floats(2000, 1.0F), how, 5).state, (std::vector<int>{-1, 5, 0, 1}));  // too many tie
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Floats logits = random_floats(2000, 33);
    logits[1999] = bad;
    EXPECT_EQ(choose_from(logits, how, 5).state, (std::vector<int>{-1, 5, 0, 1})) << bad;
  }
  Floats logits = random_floats(2000, 34);
  logits[77] = 50;
  EXPECT_EQ(choose_from(logits, how, 5, 2).state, (std::vector<int>{77, 7, 2, 0}));
  how.n_stop_ids = 2;
  how.stop_ids[0] = 3;
  how.stop_ids[1] = 77;
  EXPECT_EQ(choose_from(logits, how, 5, 2).state, (std::vector<int>{77, 6, 1, 1}));
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
  check_linear_tensor(Dtype::bf16, 1, 3, 40);
  check_linear_tensor(Dtype::q8_0, 1, 3, 40);
  check_swiglu_pairs(3);
  Sampling how;
  how.temperature = 1;
  how.top_k = 3;
  how.n_ids = 70;
  EXPECT_EQ(choose_from(random_floats(70, 36), how, 0).state[state_chosen], 1);
  check_attention_decode(2, 1, 6, 1, false);
  check_prefill(1, 1, 6, 1, 5);
  check_prefill_tensor(1, 1, 6, 1, 5);
}

TEST_F(Kernels, MatchUnderEverySchedule) {
  Floats ties = random_floats(300, 35);
  for (float& logit : ties) logit = std::round(4 * logit);
  Sampling how;
  how.temperature = 2;
  how.top_k = 30;
  how.n_ids = 300;
  const Chosen want = choose_from(ties, how, 5);
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
      if (linear_tensor_takes(cuda::FS_GPU_BUILD::format_of(dtype))) check_linear_tensor(dtype, 5, 70, 140);
      check_attention_decode(6, 2, 10, 130, false, dtype);
    }
    check_rms_norm(3, 26);
    check_swiglu_pairs(300);
    const Chosen got = choose_from(ties, how, 5);
    EXPECT_EQ(got.state, want.state);
    EXPECT_EQ(got.log_probability, want.log_probability);
    check_attention_decode(4, 2, 20, 65, true);
    check_prefill(4, 2, 20, 33, 20);
    check_attention_decode(6, 2, 10, 70, false, Dtype::bf16, Dtype::f16);
    check_prefill(4, 2, 20, 33, 20, Dtype::bf16);
    check_prefill_tensor(2, 1, 20, 63, 20, Dtype::f16);
  }
}

}  // namespace
}  // namespace fs::gpu
