#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/quantize.h"
#include "synthetic_model.h"

namespace fs::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t n, std::uint32_t seed, float spread = 0.05F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(n);
  for (float& value : row) value = normal(random);
  return row;
}

std::vector<std::byte> encoded(Dtype dtype, std::span<const float> row) {
  std::vector<std::byte> bytes(row_bytes(dtype, row.size()));
  EXPECT_TRUE(encode(dtype, row, bytes.data()));
  return bytes;
}

std::vector<float> decoded(Dtype dtype, std::span<const std::byte> bytes, std::size_t n) {
  std::vector<float> row(n, kNan);
  decode(dtype, bytes.data(), row);
  return row;
}

double half(std::span<const std::byte> bytes, std::size_t at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + at, sizeof bits);
  return f16_to_float(bits);
}

// At real widths, and at odd ones, whose last block is filled up.
constexpr std::size_t kWidths[] = {1, 20, 31, 32, 33, 72, 127, 128, 129, 151, 1024, 2048, 3072};

TEST(Quantize, RowsHaveWholeBlocks) {
  EXPECT_EQ(row_bytes(Dtype::q8_0, 32), 34U);
  EXPECT_EQ(row_bytes(Dtype::q8_0, 33), 68U);
  EXPECT_EQ(row_bytes(Dtype::q8_0, 1024), 32U * 34);
  EXPECT_EQ(row_bytes(Dtype::int4, 1), 66U);
  EXPECT_EQ(row_bytes(Dtype::int4, 1024), 8U * 66);
  EXPECT_EQ(row_bytes(Dtype::bf16, 151), 302U);
  EXPECT_EQ(row_bytes(Dtype::q8_0, 0), 0U);
}

// The format, read by its definition from the encoder's bytes, and the decoder against it.
TEST(Quantize, Q8_0IsGgufs) {
  for (const std::size_t n : kWidths) {
    const auto row = random_row(n, static_cast<std::uint32_t>(n));
    const auto bytes = encoded(Dtype::q8_0, row);
    const auto got = decoded(Dtype::q8_0, bytes, n);
    for (std::size_t first = 0; first < n; first += 32) {
      const std::size_t block = first / 32 * 34, end = std::min(n, first + 32);
      float largest = 0;
      for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(row[i]));
      const float scale = largest / 127.0F;
      EXPECT_EQ(half(bytes, block), f16_to_float(float_to_f16(scale)));
      for (std::size_t i = first; i < first + 32; ++i) {
        const auto digit = static_cast<std::int8_t>(bytes[block + 2 + i - first]);
        EXPECT_EQ(digit, i < end ? std::round(row[i] * (1.0F / scale)) : 0) << n << " element " << i;
        if (i < end) {
          EXPECT_EQ(got[i], static_cast<float>(half(bytes, block) * digit));
        }
      }
    }
  }
}

TEST(Quantize, Q8_0RoundsTiesAwayFromZero) {
  std::vector<float> row(32, 0.0F);
  row[0] = 127;  // scale 1
  row[1] = 0.5F, row[2] = -0.5F, row[3] = 1.5F, row[4] = -2.5F, row[5] = 0.49999997F, row[6] = -0.49999997F;
  EXPECT_EQ(decoded(Dtype::q8_0, encoded(Dtype::q8_0, row), 7),
            (std::vector<float>{127, 1, -1, 2, -3, 0, 0}));
}

TEST(Quantize, Q8_0ErrsByHalfAStep) {
  for (const std::size_t n : kWidths) {
    const auto row = random_row(n, 3);
    const auto got = decoded(Dtype::q8_0, encoded(Dtype::q8_0, row), n);
    for (std::size_t first = 0; first < n; first += 32) {
      float largest = 0;
      for (std::size_t i = first; i < std::min(n, first + 32); ++i)
        largest = std::max(largest, std::abs(row[i]));
      // Half a step, and what the rounding of the scale to fp16 moves the largest value by.
      const double bound = largest * (0.5 / 127 + 0x1p-11 + 1e-6);
      for (std::size_t i = first; i < std::min(n, first + 32); ++i)
        EXPECT_LE(std::abs(got[i] - row[i]), bound);
    }
  }
}

TEST(Quantize, Int4IsReadByItsDefinition) {
  for (const std::size_t n : kWidths) {
    const auto row = random_row(n, static_cast<std::uint32_t>(n) + 100);
    const auto bytes = encoded(Dtype::int4, row);
    const auto got = decoded(Dtype::int4, bytes, n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t block = i / 128 * 66, e = i % 128;
      std::uint32_t word = 0;
      std::memcpy(&word, bytes.data() + block + 2 + 4 * (e / 64 * 8 + e % 8), sizeof word);
      const auto nibble = static_cast<int>(word >> (4 * (e % 64 / 8)) & 15U);
      EXPECT_EQ(got[i], static_cast<float>(half(bytes, block) * (nibble - 8))) << n << " element " << i;
    }
  }
}

/// The squared error of a group whose scale is `scale`, with the nearest integers of −8..7.
double squared_error(std::span<const float> group, double scale) {
  double sum = 0;
  for (const float x : group) {
    const double n = scale == 0 ? 0 : std::clamp(std::round(x / scale), -8.0, 7.0);
    sum += (x - scale * n) * (x - scale * n);
  }
  return sum;
}

TEST(Quantize, Int4ScalesErrLessThanFixedOnes) {
  double total = 0, total_seven = 0;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const auto row = random_row(128, seed);
    const auto bytes = encoded(Dtype::int4, row);
    const auto got = decoded(Dtype::int4, bytes, 128);
    double error = 0;
    for (std::size_t i = 0; i < 128; ++i) error += (got[i] - row[i]) * (got[i] - row[i]);
    const float extreme =
        *std::max_element(row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    EXPECT_NEAR(error, squared_error(row, half(bytes, 0)), 1e-6 * error) << "not the nearest integers";
    for (int thirds = 21; thirds <= 33; ++thirds) {
      const double scale = f16_to_float(float_to_f16(-extreme * 3 / static_cast<float>(thirds)));
      EXPECT_LE(error, squared_error(row, scale) * 1.00001)
          << "seed " << seed << ", a scale of extreme / " << thirds / 3.0;
    }
    total += error;
    total_seven += squared_error(row, extreme / 7.0);
  }
  EXPECT_LT(total, 0.9 * total_seven);
}

TEST(Quantize, Int4KeepsWhatItCanHold) {
  std::vector<float> row;
  for (int i = 0; i < 128; ++i) row.push_back(0.25F * static_cast<float>(i % 16 - 8));
  EXPECT_EQ(decoded(Dtype::int4, encoded(Dtype::int4, row), 128), row);
  for (float& value : row) value = -value;
  EXPECT_EQ(decoded(Dtype::int4, encoded(Dtype::int4, row), 128), row);
}

TEST(Quantize, ZerosStayZero) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
    for (const float tiny : {0.0F, 1e-44F, -3e-39F}) {
      std::vector<float> row(200, tiny);
      const auto got = decoded(dtype, encoded(dtype, row), row.size());
      for (const float value : got) EXPECT_LE(std::abs(value - tiny), 4e-39F) << name(dtype);
    }
  }
}

TEST(Quantize, SixteenBitsRoundToNearest) {
  const auto row = random_row(1000, 5);
  const auto f16 = decoded(Dtype::f16, encoded(Dtype::f16, row), row.size());
  const auto bf16 = decoded(Dtype::bf16, encoded(Dtype::bf16, row), row.size());
  EXPECT_EQ(decoded(Dtype::f32, encoded(Dtype::f32, row), row.size()), row);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_LE(std::abs(f16[i] - row[i]), std::max(std::abs(row[i]) * 0x1p-11F, 0x1p-25F));
    EXPECT_LE(std::abs(bf16[i] - row[i]), std::abs(row[i]) * 0x1p-8F);
  }
}

TEST(Quantize, RefusesWhatAFormatCannotHold) {
  std::vector<std::byte> out(1024);
  const auto fits = [&](Dtype dtype, float value) {
    std::vector<float> row(140, 0.5F);
    row[137] = value;
    return encode(dtype, row, out.data());
  };
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
    for (const float value : {kNan, kInf, -kInf})
      EXPECT_FALSE(fits(dtype, value)) << name(dtype) << " " << value;
    EXPECT_TRUE(fits(dtype, -65000)) << name(dtype);
  }
  EXPECT_TRUE(fits(Dtype::f32, kInf));
  EXPECT_TRUE(fits(Dtype::f16, 65519.0F));
  EXPECT_FALSE(fits(Dtype::f16, 65520.0F));
  EXPECT_FALSE(fits(Dtype::f16, -1e6F));
  EXPECT_TRUE(fits(Dtype::bf16, 3.38e38F));
  EXPECT_FALSE(fits(Dtype::bf16, std::numeric_limits<float>::max()));
  EXPECT_FALSE(fits(Dtype::q8_0, 1e7F));
  EXPECT_FALSE(fits(Dtype::int4, -1e6F));
}

std::vector<float> rows_of(const Matrix& matrix) {
  std::vector<float> values(matrix.rows * matrix.cols, kNan);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    matrix.row(r, std::span(values).subspan(r * matrix.cols, matrix.cols));
  }
  return values;
}

TEST(Quantize, ConvertsEveryMatrixRowByRow) {
  const Config tied = testing::small_config();
  Config untied = tied;
  untied.tie_word_embeddings = false;
  ThreadPool pool(3);
  for (const Config& config : {tied, untied}) {
    Weights weights = testing::synthetic_weights(config);
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::int4}) {
      Weights result = quantize(config, weights, dtype, pool);
      std::vector<Matrix> sources;
      replace_matrices(config, weights,
                       [&](const std::string&, Matrix& matrix) { sources.push_back(matrix); });
      std::size_t index = 0;
      replace_matrices(config, result, [&](const std::string& tensor, Matrix& matrix) {
        const Matrix& source = sources.at(index++);
        const bool table = tensor == embedding_name || tensor == head_name;
        EXPECT_EQ(matrix.dtype, dtype == Dtype::int4 && table ? Dtype::q8_0 : dtype) << tensor;
        ASSERT_EQ(matrix.rows, source.rows);
        ASSERT_EQ(matrix.cols, source.cols);
        EXPECT_EQ(matrix.data == source.data, dtype == Dtype::bf16) << tensor << ": what is stored so stays";
        std::vector<float> want, row(source.cols);
        for (std::size_t r = 0; r < source.rows; ++r) {
          source.row(r, row);
          const auto one = decoded(matrix.dtype, encoded(matrix.dtype, row), row.size());
          want.insert(want.end(), one.begin(), one.end());
        }
        EXPECT_EQ(rows_of(matrix), want) << tensor << " " << name(dtype);
      });
      EXPECT_EQ(index, sources.size());
      EXPECT_EQ(result.lm_head.data == result.embed_tokens.data, config.tie_word_embeddings);
      EXPECT_EQ(result.lm_head.dtype, result.embed_tokens.dtype);
      EXPECT_EQ(result.layers[1].input_norm, weights.layers[1].input_norm);
    }
  }
}

TEST(Quantize, GoesFromBlocksToBlocks) {
  const Config config = testing::small_config();
  ThreadPool pool(2);
  const Weights q8 = quantize(config, testing::synthetic_weights(config), Dtype::q8_0, pool);
  const Weights f32 = quantize(config, q8, Dtype::f32, pool);
  EXPECT_EQ(rows_of(f32.layers[0].down_proj), rows_of(q8.layers[0].down_proj));
  const Weights int4 = quantize(config, q8, Dtype::int4, pool);
  EXPECT_EQ(int4.embed_tokens.data, q8.embed_tokens.data) << "the tables were as wanted";
  EXPECT_EQ(int4.layers[0].down_proj.dtype, Dtype::int4);
  const Weights again = quantize(config, q8, Dtype::q8_0, pool);
  EXPECT_EQ(again.layers[1].up_proj.data, q8.layers[1].up_proj.data);
}

TEST(Quantize, NamesTheTensorThatDoesNotFit) {
  const Config config = testing::small_config();
  ThreadPool pool(2);
  Weights weights = quantize(config, testing::synthetic_weights(config), Dtype::f32, pool);
  Matrix& victim = weights.layers[1].up_proj;
  const float large = -70000;
  std::memcpy(const_cast<std::byte*>(victim.data) + 5 * victim.row_bytes() + 12, &large, sizeof large);
  try {
    quantize(config, weights, Dtype::f16, pool);
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::unusable);
    for (const char* part : {"model.layers.1.mlp.up_proj.weight", "row 5", "70000", "F16", "--dtype"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  EXPECT_NO_THROW(quantize(config, weights, Dtype::bf16, pool));
}

TEST(Quantize, ReportsProgressUpToTheEnd) {
  const Config config = testing::small_config();
  ThreadPool pool(1);
  std::vector<std::uint64_t> seen;
  std::uint64_t whole = 0;
  quantize(config, testing::synthetic_weights(config), Dtype::q8_0, pool,
           [&](std::string_view stage, std::uint64_t done, std::uint64_t total) {
             EXPECT_EQ(stage, "quantize");
             seen.push_back(done);
             whole = total;
           });
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.front(), 0U);
  EXPECT_EQ(seen.back(), whole);
}

}  // namespace
}  // namespace fs::model
