#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/linear.h"
#include "cpu/panels.h"
#include "cpu_checks.h"
#include "model/quantize.h"
#include "reference/ops.h"

namespace fs::cpu {
namespace {

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::int4};

/// A random matrix with unit variance products, stored at an odd address: a file may put a tensor anywhere.
struct Stored {
  model::Matrix matrix;
  std::vector<std::byte> bytes;

  Stored(Dtype dtype, std::size_t rows, std::size_t cols, std::uint32_t seed)
      : matrix{dtype, rows, cols, nullptr}, bytes(rows * matrix.row_bytes() + 1) {
    std::mt19937 random(seed);
    const float scale = 2 * std::sqrt(3.0F / static_cast<float>(cols));
    std::vector<float> row(cols);
    for (std::size_t r = 0; r < rows; ++r) {
      for (float& value : row) value = (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F) * scale;
      model::encode(dtype, row, bytes.data() + 1 + r * matrix.row_bytes());
    }
    matrix.data = bytes.data() + 1;
  }
};

/// A matrix as the team's kernels take it: in panels, if they do.
class Arranged {
 public:
  Arranged(Team& team, const model::Matrix& stored)
      : matrix_(stored), bytes_(arranged_bytes(team.kernels, stored)) {
    std::fill_n(bytes_.data(), bytes_.size(), std::byte{0xFF});  // NaN, where nothing is written
    if (bytes_.size() > 0) arrange(team.pool, team.kernels, matrix_, bytes_.data());
  }
  operator const model::Matrix&() const { return matrix_; }

 private:
  model::Matrix matrix_;
  AlignedBytes bytes_;
};

struct Shape {
  std::size_t rows, cols;
};

/// Rows to compare with the reference where all would take too long: the ends and a few between.
model::Matrix sample(const model::Matrix& w, std::vector<std::byte>& bytes, std::vector<std::size_t>& rows) {
  for (std::size_t r = 0; r < w.rows; r += w.rows <= 80 || r < 20 || r + 20 >= w.rows ? 1 : w.rows / 13) {
    rows.push_back(r);
    bytes.insert(bytes.end(), w.data + r * w.row_bytes(), w.data + (r + 1) * w.row_bytes());
  }
  return {w.dtype, rows.size(), w.cols, bytes.data()};
}

void check_linear(Team& team, ThreadPool& pool, Dtype dtype, Shape shape, std::size_t tokens) {
  const std::string what = fmt::format("{} {} [{}, {}] tokens {}", team.kernels.name, model::name(dtype),
                                       shape.rows, shape.cols, tokens);
  const Stored w(dtype, shape.rows, shape.cols, 7);
  const auto x = random_floats(tokens * shape.cols, static_cast<std::uint32_t>(tokens));
  Guarded out(tokens * shape.rows);
  linear(team, {{Arranged(team, w.matrix), out.span()}}, x);
  EXPECT_TRUE(out.zones_intact()) << what;
  for (const float value : out.span()) ASSERT_FALSE(std::isnan(value)) << what;

  std::vector<std::byte> bytes;
  std::vector<std::size_t> rows;
  const model::Matrix some = sample(w.matrix, bytes, rows);
  std::vector<float> want(tokens * rows.size());
  reference::linear(pool, some, x, want);
  Guarded got(want.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      got.span()[t * rows.size() + i] = out.span()[t * shape.rows + rows[i]];
    }
  }
  expect_close(got, want, what);
}

TEST_P(EveryIsa, LinearMatchesTheReferenceAtOddWidths) {
  Team team = this->team();
  ThreadPool pool(1);
  for (const Dtype dtype : kDtypes) {
    for (const Shape shape :
         {Shape{1, 1}, {3, 20}, {33, 72}, {72, 151}, {151, 33}, {20, 3}, {347, 72}, {130, 300}}) {
      for (const std::size_t tokens : kTokens) check_linear(team, pool, dtype, shape, tokens);
      for (const std::size_t tokens : {3U, 4U, 6U, 7U, 9U, 15U, 16U})
        check_linear(team, pool, dtype, shape, tokens);
    }
  }
}

TEST_P(EveryIsa, LinearMatchesTheReferenceAtRealWidths) {
  Team team = this->team();
  ThreadPool pool(2);
  for (const Shape shape : {Shape{200, 1024}, {136, 2048}, {72, 3072}}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
      for (const std::size_t tokens : kTokens) check_linear(team, pool, dtype, shape, tokens);
    }
  }
  check_linear(team, pool, Dtype::f32, {72, 3072}, 17);
  check_linear(team, pool, Dtype::f16, {72, 3072}, 17);
  check_linear(team, pool, Dtype::bf16, {1024, 3072}, 1);
  check_linear(team, pool, Dtype::bf16, {1024, 9728}, 1);
  check_linear(team, pool, Dtype::q8_0, {1024, 9728}, 1);
  check_linear(team, pool, Dtype::int4, {1024, 9728}, 1);
  check_linear(team, pool, Dtype::bf16, {151936, 64}, 2);
  check_linear(team, pool, Dtype::q8_0, {151936, 64}, 1);
  check_linear(team, pool, Dtype::bf16, {151936, 32}, 17);
}

TEST_P(EveryIsa, LinearTakesSeveralMatricesAtOnce) {
  Team team = this->team(3);
  ThreadPool pool(1);
  const std::size_t cols = 72;
  const Stored a(Dtype::q8_0, 120, cols, 1), b(Dtype::f32, 40, cols, 2), c(Dtype::int4, 7, cols, 3),
      d(Dtype::bf16, 18, cols, 5);
  for (const std::size_t tokens : kTokens) {
    const auto x = random_floats(tokens * cols, 4);
    Guarded out_a(tokens * 120), out_b(tokens * 40), out_c(tokens * 7), out_d(tokens * 18);
    linear(team,
           {{Arranged(team, a.matrix), out_a.span()},
            {Arranged(team, b.matrix), out_b.span()},
            {Arranged(team, c.matrix), out_c.span()},
            {Arranged(team, d.matrix), out_d.span()}},
           x);
    for (auto& [stored, out] :
         {std::pair<const Stored&, Guarded&>{a, out_a}, {b, out_b}, {c, out_c}, {d, out_d}}) {
      std::vector<float> want(out.span().size());
      reference::linear(pool, stored.matrix, x, want);
      expect_close(out, want, fmt::format("{} rows, {} tokens", stored.matrix.rows, tokens));
    }
  }
}

TEST_P(EveryIsa, LinearAddAndSwigluMatchTheReference) {
  Team team = this->team();
  ThreadPool pool(1);
  for (const Shape shape : {Shape{151, 72}, {3, 20}, {100, 1024}, {33, 1}}) {
    const Stored gate(Dtype::bf16, shape.rows, shape.cols, 1), up(Dtype::bf16, shape.rows, shape.cols, 2);
    for (const std::size_t tokens : kTokens) {
      const std::string what = fmt::format("[{}, {}] tokens {}", shape.rows, shape.cols, tokens);
      const auto x = random_floats(tokens * shape.cols, 3), residual = random_floats(tokens * shape.rows, 4);
      std::vector<float> gated(tokens * shape.rows), upped(gated.size());
      reference::linear(pool, gate.matrix, x, gated);
      reference::linear(pool, up.matrix, x, upped);

      Guarded sum(residual);
      linear_add(team, Arranged(team, gate.matrix), x, sum.span());
      std::vector<float> want = residual;
      reference::add(want, gated);
      expect_close(sum, want, "add " + what);

      Guarded act(gated.size());
      linear_swiglu(team, Arranged(team, gate.matrix), Arranged(team, up.matrix), x, act.span());
      reference::swiglu(gated, upped);
      expect_close(act, gated, "swiglu " + what);
    }
  }
}

/// What `x` [tokens, cols] is rounded to, by the definition in cpu/backend.h; sums of its products are exact.
std::vector<float> rounded(Activations activations, std::span<const float> x, std::size_t cols) {
  std::vector<float> out(x.begin(), x.end());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    for (std::size_t i = 0; i < cols; i += 32) {
      const auto block = std::span(out).subspan(row + i, std::min<std::size_t>(32, cols - i));
      float largest = 0;
      for (const float value : block) largest = std::max(largest, std::abs(value));
      for (float& value : block) {
        value = activations == Activations::bf16 ? model::bf16_to_float(model::float_to_bf16(value))
                : largest == 0                   ? 0
                                                 : largest / 127 * std::nearbyint(value * (127 / largest));
      }
    }
  }
  return out;
}

TEST_P(EveryIsa, RoundedActivationsAreExactToTheirDefinition) {
  ThreadPool pool(2);
  for (const Activations act : {Activations::bf16, Activations::int8}) {
    Team team = this->team(2, act);
    for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
      if (act == Activations::int8 && dtype == Dtype::bf16) continue;
      for (const Shape shape :
           {Shape{1, 1}, {3, 20}, {33, 72}, {72, 151}, {130, 300}, {200, 1024}, {72, 3072}}) {
        for (const std::size_t tokens : kTokens) {
          const std::string what =
              fmt::format("{} {} [{}, {}] tokens {}", act == Activations::bf16 ? "bf16" : "int8",
                          model::name(dtype), shape.rows, shape.cols, tokens);
          const Stored w(dtype, shape.rows, shape.cols, 7), v(dtype, shape.rows, shape.cols, 8);
          const auto x = random_floats(tokens * shape.cols, static_cast<std::uint32_t>(tokens));
          const auto seen = rounded(act, x, shape.cols);
          std::vector<float> want(tokens * shape.rows), up(want.size());
          reference::linear(pool, w.matrix, seen, want);
          reference::linear(pool, v.matrix, seen, up);
          Guarded got(want.size()), sum(want.size()), act_out(want.size());
          linear(team, {{Arranged(team, w.matrix), got.span()}}, x);
          expect_close(got, want, what);

          std::fill(sum.span().begin(), sum.span().end(), 0.5F);
          linear_add(team, Arranged(team, w.matrix), x, sum.span());
          std::vector<float> shifted = want;
          for (float& value : shifted) value += 0.5F;
          expect_close(sum, shifted, "add " + what);

          linear_swiglu(team, Arranged(team, w.matrix), Arranged(team, v.matrix), x, act_out.span());
          reference::swiglu(want, up);
          expect_close(act_out, want, "swiglu " + what);
        }
      }
    }
  }
}

/// Where scales are powers of two and every q is what it was made of, int8 products are sums of small
/// integers: exact to the last bit.
TEST_P(EveryIsa, Int8ProductsAreExactIntegers) {
  Team team = this->team(2, Activations::int8);
  constexpr std::size_t rows = 37, cols = 1000;
  for (const Dtype dtype : {Dtype::q8_0, Dtype::int4}) {
    std::mt19937 random(3);
    const int largest = dtype == Dtype::q8_0 ? 127 : 8;
    const std::size_t group = model::block_elements(dtype);
    model::Matrix w{dtype, rows, cols, nullptr};
    std::vector<std::byte> bytes(rows * w.row_bytes());
    std::vector<float> weights(rows * cols);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto row = std::span(weights).subspan(r * cols, cols);
      for (std::size_t i = 0; i < cols; ++i) {
        const auto span = static_cast<unsigned>(2 * largest);
        row[i] = i % group == 0 ? static_cast<float>(-largest)
                                : static_cast<float>(static_cast<int>(random() % span) - largest);
      }
      ASSERT_TRUE(model::encode(dtype, row, bytes.data() + r * w.row_bytes()));
      std::vector<float> stored(cols);
      model::decode(dtype, bytes.data() + r * w.row_bytes(), stored);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), stored.begin())) << model::name(dtype);
    }
    w.data = bytes.data();
    for (const std::size_t tokens : kTokens) {
      std::vector<float> x(tokens * cols);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = i % cols % 32 == 5 ? -127.0F : static_cast<float>(static_cast<int>(random() % 255) - 127);
        if (i % cols >= cols - cols % 32) x[i] = i % 2 == 0 ? 127.0F : 1.0F;  // no fifth element there
      }
      Guarded got(tokens * rows);
      linear(team, {{Arranged(team, w), got.span()}}, x);
      EXPECT_TRUE(got.zones_intact());
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t r = 0; r < rows; ++r) {
          std::int64_t want = 0;
          for (std::size_t i = 0; i < cols; ++i) {
            want +=
                static_cast<std::int64_t>(x[t * cols + i]) * static_cast<std::int64_t>(weights[r * cols + i]);
          }
          ASSERT_EQ(got.span()[t * rows + r], static_cast<float>(want))
              << model::name(dtype) << " tokens " << tokens << " row " << r;
        }
      }
    }
  }
}

TEST_P(EveryIsa, Int8KeepsWhatIsNotFiniteVisible) {
  Team team = this->team(1, Activations::int8);
  for (const Dtype dtype : {Dtype::q8_0, Dtype::int4}) {
    const Stored w(dtype, 20, 300, 1);
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const std::size_t tokens : kTokens) {
        auto x = random_floats(tokens * 300, 2);
        x[(tokens - 1) * 300 + 77] = bad;
        Guarded got(tokens * 20);
        linear(team, {{Arranged(team, w.matrix), got.span()}}, x);
        for (std::size_t i = 0; i < got.span().size(); ++i) {
          EXPECT_EQ(std::isfinite(got.span()[i]), i / 20 != tokens - 1) << i;
        }
      }
    }
  }
}

TEST_P(EveryIsa, ExactProductsKeepWhatIsNotFiniteVisible) {
  Team team = this->team(1);
  for (const Dtype dtype : kDtypes) {
    const Stored w(dtype, 20, 300, 1);
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const std::size_t tokens : kTokens) {
        auto x = random_floats(tokens * 300, 2);
        x[(tokens - 1) * 300 + 77] = bad;
        Guarded got(tokens * 20);
        linear(team, {{Arranged(team, w.matrix), got.span()}}, x);
        for (std::size_t i = 0; i < got.span().size(); ++i) {
          EXPECT_EQ(std::isfinite(got.span()[i]), i / 20 != tokens - 1) << model::name(dtype) << " " << i;
        }
      }
    }
  }
}

/// Activations whose neighbours are 2^20 times as large, tiny ones, and zeros.
TEST_P(EveryIsa, ExactProductsHoldForUnevenActivations) {
  Team team = this->team();
  ThreadPool pool(1);
  for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
    const Stored w(dtype, 50, 300, 1);
    for (const std::size_t tokens : {1U, 7U, 17U}) {
      for (const float scale : {1.0F, 1e-30F, 1e-37F}) {
        auto x = random_floats(tokens * 300, 5);
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] *= scale * (i % 7 == 0 ? 1.0F : i % 7 == 1 ? 0x1p-20F : i % 64 < 32 ? 0.0F : 1e-3F);
        }
        std::vector<float> want(tokens * 50);
        reference::linear(pool, w.matrix, x, want);
        Guarded got(want.size());
        linear(team, {{Arranged(team, w.matrix), got.span()}}, x);
        expect_close(got, want, fmt::format("{} tokens {} scale {}", model::name(dtype), tokens, scale));
      }
    }
  }
}

/// The largest sums that stored weights can give: all of them at an end of their range, activations alike.
TEST_P(EveryIsa, ExactProductsHoldForSumsOfOneSign) {
  Team team = this->team();
  ThreadPool pool(1);
  constexpr std::size_t rows = 20, cols = 300;
  for (const Dtype dtype : {Dtype::q8_0, Dtype::int4}) {
    Stored w(dtype, rows, cols, 1);
    const std::size_t stored = model::block_bytes(dtype);
    for (std::size_t at = 1; at < w.bytes.size(); at += stored) {  // scales stay; −128, or nibbles of −8
      std::fill_n(w.bytes.begin() + static_cast<std::ptrdiff_t>(at) + 2, stored - 2,
                  dtype == Dtype::q8_0 ? std::byte{0x80} : std::byte{0});
    }
    for (const std::size_t tokens : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 17U}) {
      for (const float value : {1.0F, -1.0F, 1e34F, 0.9999F}) {
        std::vector<float> x(tokens * cols, value), want(tokens * rows);
        x[cols / 2] = value / 2;
        reference::linear(pool, w.matrix, x, want);
        Guarded got(want.size());
        linear(team, {{Arranged(team, w.matrix), got.span()}}, x);
        expect_close(got, want, fmt::format("{} tokens {} value {}", model::name(dtype), tokens, value));
      }
    }
  }
}

TEST_P(EveryIsa, FewTokensGiveWhatEachWouldAlone) {  // to the last bit
  Team team = this->team();
  for (const Dtype dtype : kDtypes) {
    for (const Shape shape : {Shape{33, 72}, {100, 300}, {20, 1024}}) {
      const Stored w(dtype, shape.rows, shape.cols, 1);
      const Arranged arranged(team, w.matrix);
      const auto x = random_floats(15 * shape.cols, 2);
      for (std::size_t tokens = 2; tokens <= 15; ++tokens) {
        Guarded all(tokens * shape.rows), alone(tokens * shape.rows);
        linear(team, {{arranged, all.span()}}, std::span(x).first(tokens * shape.cols));
        for (std::size_t t = 0; t < tokens; ++t) {
          linear(team, {{arranged, alone.span().subspan(t * shape.rows, shape.rows)}},
                 std::span(x).subspan(t * shape.cols, shape.cols));
        }
        EXPECT_TRUE(std::equal(all.span().begin(), all.span().end(), alone.span().begin()))
            << model::name(dtype) << " tokens " << tokens << " cols " << shape.cols;
      }
    }
  }
}

TEST_P(EveryIsa, ArrangedRowsDecodeToWhatIsStored) {
  Team team = this->team(3);
  for (const Dtype dtype : kDtypes) {
    for (const Shape shape : {Shape{1, 1}, {33, 72}, {16, 128}, {100, 300}, {17, 1024}}) {
      const Stored w(dtype, shape.rows, shape.cols, 1);
      const Arranged arranged(team, w.matrix);
      std::vector<float> want(shape.cols);
      for (std::size_t r = 0; r < shape.rows; ++r) {
        w.matrix.row(r, want);
        Guarded got(shape.cols);
        decode_row(team.kernels, arranged, r, got.span());
        EXPECT_TRUE(got.zones_intact());
        ASSERT_TRUE(std::equal(want.begin(), want.end(), got.span().begin()))
            << model::name(dtype) << " row " << r << " of " << shape.rows << ", cols " << shape.cols;
      }
    }
  }
}

TEST_P(EveryIsa, SumsDoNotDependOnTheNumberOfThreads) {
  Team one = team(1), three = team(3);
  const Stored w(Dtype::bf16, 347, 151, 1);
  for (const std::size_t tokens : kTokens) {
    const auto x = random_floats(tokens * 151, 2);
    Guarded a(tokens * 347), b(tokens * 347);
    linear(one, {{Arranged(one, w.matrix), a.span()}}, x);
    linear(three, {{Arranged(three, w.matrix), b.span()}}, x);
    EXPECT_TRUE(std::equal(a.span().begin(), a.span().end(), b.span().begin())) << tokens;
  }
}

}  // namespace
}  // namespace fs::cpu
