#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend_checks.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cpu/isa.h"
#include "engine/session.h"
#include "model/quantize.h"
#include "model/synthetic.h"
#include "reference/backend.h"
#include "synthetic_model.h"

namespace fs::cpu {
namespace {

using engine::Backend;
using engine::Session;
using engine::TapPoint;
using testing::expect_close;
using testing::expect_same_taps;
using testing::small_config;
using testing::some_tokens;
using testing::synthetic_weights;
using testing::TapLog;
using testing::taps_of;

constexpr std::size_t kRows[] = {1, 2, 5, 17, 64, 129};

class EveryIsa : public ::testing::TestWithParam<const Kernels*> {
 protected:
  std::unique_ptr<Backend> cpu(const model::Config& config, model::Weights weights,
                               std::size_t threads = 2) const {
    return make_backend(config, std::move(weights), {.threads = threads, .isa = GetParam()->name});
  }
  std::unique_ptr<Backend> cpu(const model::Config& config, std::size_t threads = 2) const {
    return cpu(config, synthetic_weights(config), threads);
  }
};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsa, ::testing::ValuesIn(available_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

std::unique_ptr<Backend> reference_of(const model::Config& config) {
  return reference::make_backend(config, synthetic_weights(config), 2);
}

TEST_P(EveryIsa, MatchesTheReferenceAtEveryTap) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto got = cpu(config), want = reference_of(config);
  for (const std::size_t rows : kRows) {
    const auto tokens = some_tokens(rows, config.vocab_size);
    expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens), std::to_string(rows));
  }
}

TEST_P(EveryIsa,
       MatchesTheReferenceBehindAPrefix) {  // across borders of the cache's blocks, decode and prefill
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto got = cpu(config), want = reference_of(config);
  for (const std::size_t prefix : {127U, 128U, 300U}) {
    const auto before = some_tokens(prefix, config.vocab_size, 5);
    for (const std::size_t rows : {1U, 2U, 17U, 130U}) {
      const auto tokens = some_tokens(rows, config.vocab_size);
      expect_same_taps(taps_of(*got, before, tokens), taps_of(*want, before, tokens),
                       fmt::format("prefix {} rows {}", prefix, rows));
    }
  }
}

TEST_P(EveryIsa, MatchesTheReferenceForOtherShapes) {
  for (const std::size_t group : {1U, 2U, 3U, 8U}) {
    for (const std::size_t head_dim : {2U, 20U, 128U}) {
      model::Config config = small_config();
      config.n_kv_heads = 2;
      config.n_q_heads = 2 * group;
      config.head_dim = head_dim;
      config.tie_word_embeddings = group % 2 == 0;
      const auto got = cpu(config), want = reference_of(config);
      for (const std::size_t rows : {1U, 5U, 33U}) {
        const auto tokens = some_tokens(rows, config.vocab_size);
        expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens),
                         fmt::format("group {} head_dim {} rows {}", group, head_dim, rows));
      }
    }
  }
}

/// The same weights in another format and at an odd address.
model::Matrix moved(const model::Matrix& matrix, model::Dtype dtype,
                    std::vector<std::shared_ptr<const void>>& storage) {
  model::Matrix copy{dtype, matrix.rows, matrix.cols, nullptr};
  const auto bytes = std::make_shared<std::vector<std::byte>>(copy.rows * copy.row_bytes() + 1);
  std::vector<float> row(matrix.cols);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    matrix.row(r, row);
    model::encode(dtype, row, bytes->data() + 1 + r * copy.row_bytes());
  }
  copy.data = bytes->data() + 1;
  storage.push_back(bytes);
  return copy;
}

TEST_P(EveryIsa, ReadsEveryDtypeAtAnyAddress) {
  const model::Config config = small_config();
  for (std::size_t dtype = 0; dtype < model::dtype_count; ++dtype) {
    const auto to = static_cast<model::Dtype>(dtype);
    model::Weights weights = synthetic_weights(config);
    model::replace_matrices(config, weights, [&](const std::string&, model::Matrix& matrix) {
      matrix = moved(matrix, to, weights.storage);
    });
    const auto got = cpu(config, weights), want = reference::make_backend(config, weights, 1);
    for (const std::size_t rows : {1U, 5U, 33U}) {
      const auto tokens = some_tokens(rows, config.vocab_size);
      expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens), std::string(model::name(to)));
    }
  }
}

TEST_P(EveryIsa, MatchesTheReferenceOnQuantizedWeights) {
  const model::Config config = model::synthetic_config("tiny-odd");
  ThreadPool pool(2);
  for (const model::Dtype dtype : {model::Dtype::q8_0, model::Dtype::int4}) {
    const model::Weights weights = model::quantize(config, synthetic_weights(config), dtype, pool);
    const auto got = cpu(config, weights), want = reference::make_backend(config, weights, 2);
    for (const std::size_t rows : kRows) {
      const auto tokens = some_tokens(rows, config.vocab_size);
      expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens),
                       fmt::format("{} {} rows", model::name(dtype), rows));
    }
  }
}

TEST_P(EveryIsa, KeepsKeysAndValuesInTheFormatAskedFor) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto want = reference_of(config);
  for (const model::Dtype kv : {model::Dtype::f16, model::Dtype::bf16}) {
    const auto got =
        make_backend(config, synthetic_weights(config), {.threads = 2, .isa = GetParam()->name, .kv = kv});
    for (const std::size_t rows : kRows) testing::expect_kv_format(*got, *want, kv, rows);
  }
}

/// Every operation fed with the reference's values: then the projections, and attention where it has kernels
/// for that, and they alone, err by more than the tolerance.
TEST_P(EveryIsa, RoundsActivationsForProductsAndNothingElse) {
  const model::Config config = model::synthetic_config("tiny-odd");
  ThreadPool pool(2);
  const model::Weights weights = model::quantize(config, synthetic_weights(config), model::Dtype::q8_0, pool);
  const auto want = reference::make_backend(config, weights, 2);
  for (const Activations act : {Activations::bf16, Activations::int8}) {
    const auto got = make_backend(config, weights, {.threads = 2, .isa = GetParam()->name, .act = act});
    for (const std::size_t rows : {1U, 17U}) {
      const auto tokens = some_tokens(rows, config.vocab_size);
      const TapLog right = taps_of(*want, {}, tokens);
      TapLog log;
      std::size_t at = 0;
      log.change = [&](const engine::Tap& tap) {
        const auto& entry = right.entries.at(at++);
        std::copy(entry.values.begin(), entry.values.end(), tap.values.begin());
      };
      Session session(*got, rows);
      engine::ForwardOptions options;
      options.chunk = rows;
      options.taps = &log;
      options.on_logits = [](std::size_t, std::span<const float>) {};
      session.forward(tokens, options);
      ASSERT_EQ(log.entries.size(), right.entries.size());
      for (std::size_t i = 0; i < log.entries.size(); ++i) {
        const std::string what = fmt::format("{} rows, {}", rows, log.entries[i].key);
        const auto &ours = log.entries[i].values, &theirs = right.entries[i].values;
        const TapPoint point = log.entries[i].tap.point;
        const bool product = point == TapPoint::q || point == TapPoint::k || point == TapPoint::v ||
                             point == TapPoint::attn_resid || point == TapPoint::mlp_act ||
                             point == TapPoint::block_out || point == TapPoint::logits ||
                             (point == TapPoint::attn_out && rows > 16 && GetParam()->attention_bf16);
        double worst = 0;
        for (std::size_t j = 0; j < ours.size(); ++j) {
          worst = std::max(worst, std::abs(ours[j] - theirs[j]) / (1e-4 + 1e-4 * std::abs(theirs[j])));
        }
        EXPECT_EQ(worst > 1, product) << what << ": " << worst << " of the tolerance";
        EXPECT_LT(worst, 1000) << what;
      }
    }
  }
}

TEST_P(EveryIsa, IsBitIdenticalForAnyNumberOfThreads) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto one = cpu(config, 1);
  for (const std::size_t threads : {2U, 3U}) {
    const auto many = cpu(config, threads);
    for (const std::size_t rows : {1U, 5U, 129U}) {
      const auto before = some_tokens(140, config.vocab_size, 2),
                 tokens = some_tokens(rows, config.vocab_size);
      const TapLog want = taps_of(*one, before, tokens);
      for (int again = 0; again < 2; ++again) {
        const TapLog got = taps_of(*many, before, tokens);
        for (std::size_t i = 0; i < got.entries.size(); ++i) {
          ASSERT_EQ(got.entries[i].values, want.entries[i].values) << got.entries[i].key;
        }
      }
    }
  }
}

TEST_P(EveryIsa, GivesTheSameLogitsForAnyChunking) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto backend = cpu(config);
  const auto tokens = some_tokens(300, config.vocab_size);
  const auto want_backend = reference_of(config);
  std::vector<float> want;
  const auto collect = [](std::vector<float>& to) {
    return [&to](std::size_t, std::span<const float> row) { to.insert(to.end(), row.begin(), row.end()); };
  };
  engine::ForwardOptions options;
  options.on_logits = collect(want);
  Session(*want_backend, 300).forward(tokens, options);
  for (const std::size_t chunk : {1U, 7U, 9U, 128U, 129U, 300U}) {
    std::vector<float> got;
    options.chunk = chunk;
    options.on_logits = collect(got);
    Session(*backend, 300).forward(tokens, options);
    expect_close(got, want, fmt::format("chunk {}", chunk));
  }
}

TEST_P(EveryIsa, RewindsAsIfTheRestHadNeverBeen) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto backend = cpu(config);
  const auto tokens = some_tokens(200, config.vocab_size), other = some_tokens(200, config.vocab_size, 9);
  Session straight(*backend, 400), wound(*backend, 400);
  straight.forward(std::span(tokens).first(130));
  wound.forward(std::span(tokens).first(130));
  wound.forward(other);
  wound.rewind(130);
  const auto got = wound.forward(std::span(tokens).subspan(130, 3));
  const auto want = straight.forward(std::span(tokens).subspan(130, 3));
  EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
}

TEST_P(EveryIsa, GoesOnWithTheValuesThatAnObserverLeaves) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto got = cpu(config), want = reference_of(config);
  for (const std::size_t rows : {1U, 17U}) {
    const auto tokens = some_tokens(rows, config.vocab_size);
    for (std::size_t point = 0; point + 1 < engine::tap_point_count; ++point) {  // nothing follows the logits
      const auto run = [&](const Backend& backend) {
        TapLog log;
        log.change = [&](const engine::Tap& tap) {
          if (tap.point != static_cast<TapPoint>(point) || tap.layer != 0) return;
          for (std::size_t i = 0; i < tap.values.size(); ++i) {
            tap.values[i] = static_cast<float>(i % 7) * 0.3F - 0.8F;
          }
        };
        engine::ForwardOptions options;
        options.taps = &log;
        Session session(backend, rows + 1);
        session.forward(tokens, options);
        session.forward(std::span(tokens).first(1), options);  // what was written went into the cache
        return log;
      };
      expect_same_taps(run(*got), run(*want),
                       fmt::format("{} replaced, {} rows", engine::name(static_cast<TapPoint>(point)), rows));
    }
  }
}

TEST(CpuBackend, RefusesInt8ActivationsWithoutWeightsForThem) {
  const model::Config config = small_config();
  try {
    make_backend(config, synthetic_weights(config), {.act = Activations::int8});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("model.embed_tokens.weight is BF16"), std::string::npos)
        << error.what();
  }
}

TEST(CpuBackend, RefusesAnIsaThatIsNotThere) {
  const model::Config config = small_config();
  try {
    make_backend(config, synthetic_weights(config), {.isa = "mmx"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
}

}  // namespace
}  // namespace fs::cpu
