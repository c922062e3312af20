#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cpu/attention.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "cpu/kv_cache.h"
#include "cpu/linear.h"
#include "cpu/panels.h"
#include "cpu/team.h"
#include "model/dtype.h"
#include "model/quantize.h"
#include "reference/ops.h"

namespace fs::cpu {
namespace {

using model::Dtype;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::size_t kTokens[] = {1, 2, 5, 17, 64, 129};
constexpr Dtype kCacheDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};
constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::int4};

std::vector<float> random_floats(std::size_t n, std::uint32_t seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

/// An output of a kernel: NaN before it is written, and surrounded by values that must stay.
class Guarded {
 public:
  explicit Guarded(std::size_t n) : all_(n + 2 * zone, kNan) {
    for (std::size_t i = 0; i < zone; ++i) all_[i] = all_[zone + n + i] = mark;
  }
  explicit Guarded(const std::vector<float>& content) : Guarded(content.size()) {
    std::copy(content.begin(), content.end(), all_.begin() + zone);
  }
  std::span<float> span() { return std::span(all_).subspan(zone, all_.size() - 2 * zone); }
  float* data() { return span().data(); }
  bool zones_intact() const {
    for (std::size_t i = 0; i < zone; ++i) {
      if (all_[i] != mark || all_[all_.size() - 1 - i] != mark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t zone = 64;
  static constexpr float mark = -12345.5F;
  std::vector<float> all_;
};

/// Kernels are held to a tenth of the design's tolerance: NaN, wrong values and writes outside fail.
void expect_close(Guarded& got, std::span<const float> want, const std::string& what) {
  EXPECT_TRUE(got.zones_intact()) << what << ": wrote outside its output";
  ASSERT_EQ(got.span().size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::abs(got.span()[i] - want[i]) <= 1e-5 + 1e-5 * std::abs(want[i]))
        << what << " element " << i << ": " << got.span()[i] << ", expected " << want[i];
  }
}

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

class EveryIsa : public ::testing::TestWithParam<const Kernels*> {
 protected:
  Team team(std::size_t threads = 2, Activations activations = Activations::f32) const {
    return Team(threads, *GetParam(), activations);
  }
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsa, ::testing::ValuesIn(available_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

TEST(Isa, SaysWhichKernelsThisProcessorCannotRun) {
#if defined(__x86_64__)
  std::string missing;
  for (const Kernels* kernels : {&avx2_kernels, &avx512_kernels, &avx512bf16_kernels}) {
    const auto here = available_kernels();
    if (std::find(here.begin(), here.end(), kernels) == here.end())
      missing += std::string(" ") + kernels->name;
  }
  if (!missing.empty()) GTEST_SKIP() << "this processor cannot run the kernels of" << missing;
#endif
}

TEST(Isa, NamesWhatItHas) {
  EXPECT_EQ(std::string(choose_kernels("portable").name), "portable");
  EXPECT_EQ(&choose_kernels("auto"), available_kernels().front());
  try {
    choose_kernels("avx9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("avx9"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos) << error.what();
  }
}

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
  const Stored a(Dtype::q8_0, 120, cols, 1), b(Dtype::f32, 40, cols, 2), c(Dtype::int4, 7, cols, 3);
  for (const std::size_t tokens : kTokens) {
    const auto x = random_floats(tokens * cols, 4);
    Guarded out_a(tokens * 120), out_b(tokens * 40), out_c(tokens * 7);
    linear(team,
           {{Arranged(team, a.matrix), out_a.span()},
            {Arranged(team, b.matrix), out_b.span()},
            {Arranged(team, c.matrix), out_c.span()}},
           x);
    for (auto& [stored, out] : {std::pair<const Stored&, Guarded&>{a, out_a}, {b, out_b}, {c, out_c}}) {
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
      linear_add(team, gate.matrix, x, sum.span());
      std::vector<float> want = residual;
      reference::add(want, gated);
      expect_close(sum, want, "add " + what);

      Guarded act(gated.size());
      linear_swiglu(team, gate.matrix, up.matrix, x, act.span());
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
    linear(one, {{w.matrix, a.span()}}, x);
    linear(three, {{w.matrix, b.span()}}, x);
    EXPECT_TRUE(std::equal(a.span().begin(), a.span().end(), b.span().begin())) << tokens;
  }
}

TEST_P(EveryIsa, RmsNormMatchesTheReference) {
  for (const std::size_t n : {1U, 2U, 3U, 20U, 33U, 72U, 128U, 151U, 1024U, 2048U, 3072U}) {
    for (const float spread : {1e-4F, 1.0F, 300.0F}) {
      const auto x = random_floats(n, 1, spread), weight = random_floats(n, 2);
      std::vector<float> want(n);
      reference::rms_norm(x, weight, 1e-6, want);
      Guarded out(n), in_place(x);
      kernels().rms_norm(x.data(), weight.data(), n, 1e-6, out.data());
      kernels().rms_norm(in_place.data(), weight.data(), n, 1e-6, in_place.data());
      expect_close(out, want, fmt::format("n {}", n));
      expect_close(in_place, want, fmt::format("in place, n {}", n));
    }
  }
}

TEST_P(EveryIsa, RopeMatchesTheReference) {
  for (const std::size_t dim : {2U, 6U, 20U, 64U, 128U}) {
    const auto x = random_floats(dim, 1);
    std::vector<float> want = x, cosines, sines;
    reference::rope(want, 1, dim, 40'000, 1e6);
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const double angle = 40'000 * std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
    Guarded out(x);
    kernels().rope(out.data(), cosines.data(), sines.data(), dim / 2);
    expect_close(out, want, fmt::format("dim {}", dim));
  }
}

double ulps(float got, double want) {
  const auto nearest = static_cast<float>(want);
  return std::abs(got - want) / (std::nextafter(nearest, kInf) - nearest);
}

TEST_P(EveryIsa, ExpErrsByTwoUlpAtMost) {
  double worst = 0;
  std::vector<float> x, scores;
  for (float value = -86.9F; value <= 0; value += 0.00137F) x.push_back(value);
  x.push_back(0);  // the peak
  scores = x;
  float peak = -kInf, total = 0;
  EXPECT_EQ(kernels().softmax_step(scores.data(), scores.size(), &peak, &total), 0);
  EXPECT_EQ(peak, 0);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, ulps(scores[i], std::exp(double{x[i]})));
    sum += std::exp(double{x[i]});
  }
  EXPECT_LE(worst, 2);
  EXPECT_NEAR(total / sum, 1, 1e-6);
  std::cout << kernels().name << ": exp errs by " << worst << " ulp at most on " << x.size() << " values\n";
}

TEST_P(EveryIsa, SoftmaxStepsJoin) {
  for (const std::size_t n : {1U, 2U, 7U, 8U, 9U, 20U, 33U, 128U}) {
    const auto scores = random_floats(2 * n, 5, 8);
    Guarded first(std::vector<float>(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(n)));
    Guarded second(std::vector<float>(scores.begin() + static_cast<std::ptrdiff_t>(n), scores.end()));
    float peak = -kInf, total = 0;
    kernels().softmax_step(first.data(), n, &peak, &total);
    const float factor = kernels().softmax_step(second.data(), n, &peak, &total);
    EXPECT_EQ(kernels().softmax_step(nullptr, 0, &peak, &total), 1) << "no scores, nothing changes";
    const double top = *std::max_element(scores.begin(), scores.end());
    EXPECT_EQ(peak, static_cast<float>(top));
    double sum = 0;
    for (const float score : scores) sum += std::exp(score - top);
    EXPECT_NEAR(total / sum, 1, 1e-6);
    std::vector<float> want;
    for (std::size_t i = n; i < 2 * n; ++i) want.push_back(static_cast<float>(std::exp(scores[i] - top)));
    expect_close(second, want, "later weights");
    for (float& value : first.span()) value *= factor;
    want.clear();
    for (std::size_t i = 0; i < n; ++i) want.push_back(static_cast<float>(std::exp(scores[i] - top)));
    expect_close(first, want, "earlier weights times the factor");
  }
}

TEST_P(EveryIsa, ExpKeepsWhatIsNotFiniteVisible) {
  std::vector<float> scores = {1, 2, kNan, 3, -kInf, 4, 5, 6, 7, kNan};
  float peak = -kInf, total = 0;
  kernels().softmax_step(scores.data(), scores.size(), &peak, &total);
  EXPECT_TRUE(std::isnan(scores[2]) && std::isnan(scores[9]) && std::isnan(total));
  EXPECT_EQ(scores[4], 0);
  float gate[] = {kNan, 1}, up[] = {1, kNan};
  kernels().swiglu(gate, up, 2);
  EXPECT_TRUE(std::isnan(gate[0]) && std::isnan(gate[1]));
}

TEST_P(EveryIsa, SwigluMatchesTheReferenceFarOut) {
  std::vector<float> gate, up;
  for (float x = -200; x <= 200; x += 0.37F) {
    gate.push_back(x);
    up.push_back(0.75F);
  }
  Guarded got(gate);
  kernels().swiglu(got.data(), up.data(), gate.size());
  reference::swiglu(gate, up);
  expect_close(got, gate, "swiglu");
}

TEST_P(EveryIsa, AddAndScaleStayInside) {
  for (const std::size_t n : {1U, 3U, 8U, 20U, 33U, 151U}) {
    const auto x = random_floats(n, 1), delta = random_floats(n, 2);
    Guarded sum(x), scaled(x);
    kernels().add(sum.data(), delta.data(), n);
    kernels().scale(scaled.data(), 0.5F, n);
    std::vector<float> want = x, half = x;
    reference::add(want, delta);
    for (float& value : half) value *= 0.5F;
    expect_close(sum, want, "add");
    expect_close(scaled, half, "scale");
  }
}

TEST_P(EveryIsa, CacheHoldsTheNearestValues) {
  model::Config config;
  config.n_layers = 1;
  config.n_kv_heads = 1;
  config.head_dim = 20;
  const auto random = random_floats(20'000, 1, 3);
  std::vector<float> x(random.begin(), random.end());
  for (const float scale : {1e-6F, 1e-4F, 1e3F}) {
    for (std::size_t i = 0; i < 5'000; ++i) x.push_back(random[i] * scale);
  }
  for (const float value : {0.0F, -0.0F, 1.0F + 0x1p-11F, 1.0F + 0x1p-8F, 1.0F + 0x1.8p-7F, 65519.9F,
                            65520.0F, -1e30F, kInf, -kInf, kNan, -kNan}) {
    x.push_back(value);
  }
  x.push_back(std::bit_cast<float>(0x7FFFFFFFU));  // NaNs that rounding would carry to zero
  x.push_back(std::bit_cast<float>(0xFFFFFFFFU));
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const KvCache cache(config, kernels(), dtype);
    Guarded got(x);
    cache.round(got.span());
    EXPECT_TRUE(got.zones_intact());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float held = got.span()[i];
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(held)) << i;
        continue;
      }
      const float want = dtype == Dtype::f16 ? model::f16_to_float(model::float_to_f16(x[i]))
                                             : model::bf16_to_float(model::float_to_bf16(x[i]));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(held), std::bit_cast<std::uint32_t>(want))
          << model::name(dtype) << " " << x[i];
    }
    for (const std::size_t n : {1U, 7U, 8U, 9U, 20U}) {  // writes no more than n
      std::vector<std::byte> out(n * 2 + 8, std::byte{0x5A});
      cache.kernels().store(x.data(), n, out.data());
      for (std::size_t i = n * 2; i < out.size(); ++i) EXPECT_EQ(out[i], std::byte{0x5A}) << n;
    }
  }
}

TEST_P(EveryIsa, HalfTheFormatIsHalfTheCache) {
  model::Config config;
  config.n_layers = 3;
  config.n_kv_heads = 2;
  config.head_dim = 128;
  std::vector<std::size_t> bytes;
  for (const Dtype dtype : kCacheDtypes) {
    KvCache cache(config, kernels(), dtype);
    EXPECT_EQ(cache.bytes(), 0U);
    cache.grow(300);
    bytes.push_back(cache.bytes());
  }
  EXPECT_EQ(bytes[0], 3U * 3 * KvCache::block * 2 * 2 * 128 * sizeof(float));
  EXPECT_EQ(bytes[1] * 2, bytes[0]);
  EXPECT_EQ(bytes[2] * 2, bytes[0]);
}

TEST_P(EveryIsa, AttentionMatchesTheReference) {
  ThreadPool pool(2);
  for (const std::size_t threads : {1U, 3U}) {
    Team team = this->team(threads);
    for (const auto& [group, dim] : {std::pair<std::size_t, std::size_t>{1, 20}, {2, 128}, {3, 2}, {8, 20}}) {
      for (const std::size_t first : {0U, 3U, 126U, 517U}) {
        for (const std::size_t tokens : kTokens) {
          model::Config config;
          config.n_layers = 2;
          config.n_kv_heads = 2;
          config.n_q_heads = 2 * group;
          config.head_dim = dim;
          const std::size_t positions = first + tokens;
          const auto q = random_floats(tokens * config.q_width(), 1);
          const auto keys = random_floats(positions * config.kv_width(), 2),
                     values = random_floats(positions * config.kv_width(), 3);
          for (const Dtype dtype : kCacheDtypes) {
            KvCache cache(config, kernels(), dtype);
            cache.grow(positions);
            cache.store(1, 0, std::span(keys).first(first * config.kv_width()),
                        std::span(values).first(first * config.kv_width()));
            cache.store(1, first, std::span(keys).subspan(first * config.kv_width()),
                        std::span(values).subspan(first * config.kv_width()));
            auto held_keys = keys, held_values = values;
            cache.round(held_keys);
            cache.round(held_values);
            std::vector<float> want(q.size());
            reference::attention(pool, config, q, held_keys, held_values, first, want);
            Guarded got(q.size());
            const Segment all{cache, first, 0, tokens};
            attention(team, config, q, {&all, 1}, 1, got.span());
            expect_close(got, want,
                         fmt::format("{} group {} dim {} first {} tokens {}", model::name(dtype), group, dim,
                                     first, tokens));
          }
        }
      }
    }
  }
}

TEST_P(EveryIsa, AttentionSeesNoLaterPositionEvenIfItIsNotFinite) {
  Team team = this->team();
  model::Config config;
  config.n_layers = 1;
  config.n_kv_heads = 1;
  config.n_q_heads = 2;
  config.head_dim = 20;
  constexpr std::size_t tokens = 150, bad = 70;
  const auto q = random_floats(tokens * 40, 1);
  auto keys = random_floats(tokens * 20, 2), values = random_floats(tokens * 20, 3);
  keys[bad * 20 + 3] = kNan;
  values[bad * 20 + 5] = kInf;
  for (const Dtype dtype : kCacheDtypes) {
    KvCache cache(config, kernels(), dtype);
    cache.grow(tokens);
    cache.store(0, 0, keys, values);
    std::vector<float> out(q.size());
    const Segment all{cache, 0, 0, tokens};
    attention(team, config, q, {&all, 1}, 0, out);
    for (std::size_t t = 0; t < tokens; ++t) {
      EXPECT_EQ(std::isfinite(out[t * 40 + 5]), t < bad) << t;
      EXPECT_EQ(std::isfinite(out[t * 40 + 25]), t < bad) << t;
    }
  }
}

TEST_P(EveryIsa, AttentionSurvivesScoresThatOverflowExp) {
  Team team = this->team();
  ThreadPool pool(1);
  model::Config config;
  config.n_layers = 1;
  config.n_kv_heads = 1;
  config.n_q_heads = 1;
  config.head_dim = 20;
  for (const std::size_t tokens : {1U, 129U}) {
    const auto q = random_floats(tokens * 20, 1, 60), keys = random_floats(tokens * 20, 2, 60),
               values = random_floats(tokens * 20, 3);
    KvCache cache(config, kernels(), Dtype::f32);
    cache.grow(tokens);
    cache.store(0, 0, keys, values);
    std::vector<float> want(q.size());
    reference::attention(pool, config, q, keys, values, 0, want);
    Guarded got(q.size());
    const Segment all{cache, 0, 0, tokens};
    attention(team, config, q, {&all, 1}, 0, got.span());
    EXPECT_TRUE(got.zones_intact());
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.span()[i], want[i], 2e-3) << i;
  }
}

}  // namespace
}  // namespace fs::cpu
