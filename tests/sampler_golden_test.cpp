// Probabilities against Hugging Face's logits processors: golden/sampler_cases.json, by tools/make_golden.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/sampler.h"
#include "model/dtype.h"
#include "model/safetensors.h"

namespace fs::engine {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(FS_SOURCE_DIR) / "golden";

using Json = simdjson::dom::element;

std::vector<TokenId> ids(const Json& array) {
  std::vector<TokenId> result;
  const simdjson::dom::array items = array.get_array().value();
  for (const Json item : items) result.push_back(static_cast<TokenId>(item.get_uint64().value()));
  return result;
}

/// A case's options over the file's defaults. A name that is no option of ours is an error.
SamplerOptions options_of(const Json& defaults, const Json& given) {
  SamplerOptions options;
  for (const Json& source : {defaults, given}) {
    const simdjson::dom::object fields = source.get_object().value();
    for (const auto [key, value] : fields) {
      const auto x = static_cast<float>(value.get_double().value());
      if (key == "temperature") {
        options.temperature = x;
      } else if (key == "top_k") {
        options.top_k = value.get_uint64().value();
      } else if (key == "top_p") {
        options.top_p = x;
      } else if (key == "min_p") {
        options.min_p = x;
      } else if (key == "repetition_penalty") {
        options.repetition_penalty = x;
      } else if (key == "presence_penalty") {
        options.presence_penalty = x;
      } else {
        ADD_FAILURE() << "unknown option " << key;
      }
    }
  }
  return options;
}

std::vector<float> golden_logits(const std::string& file) {
  const auto stored = model::open_safetensors(kGolden / file);
  std::vector<float> logits(stored.tensors.at(0).bytes.size() / sizeof(float));
  EXPECT_EQ(stored.tensors[0].name, "logits");
  model::decode(stored.tensors[0].dtype, stored.tensors[0].bytes.data(), logits);
  return logits;
}

TEST(GoldenSamplerCases, GiveTheProbabilitiesOfHuggingFace) {
  const auto document = JsonDocument::load(kGolden / "sampler_cases.json", std::size_t{64} << 20);
  const Json root = document.root();
  const auto logits = golden_logits(std::string(root["logits"].get_string().value()));
  const auto history = ids(root["tokens"]);
  const auto n_ids = static_cast<std::size_t>(root["n_ids"].get_uint64().value());
  ASSERT_LE(n_ids, logits.size());

  std::size_t checked = 0;
  double worst = 0;
  const simdjson::dom::array cases = root["cases"].get_array().value();
  for (const Json item : cases) {
    SCOPED_TRACE(std::string(item["name"].get_string().value()));
    std::vector<float> edited = logits;
    const simdjson::dom::array edits = item["edits"].get_array().value();
    for (const Json edit : edits) {
      const auto pair = ids(edit);
      edited.at(pair.at(0)) = logits.at(pair.at(1));
    }
    const auto want_ids = ids(item["ids"]);
    const auto got =
        Sampler(options_of(root["defaults"], item["options"]), n_ids).candidates(edited, history);
    const simdjson::dom::array want = item["probabilities"].get_array().value();
    ASSERT_EQ(got.size(), want_ids.size());
    ASSERT_EQ(want.size(), want_ids.size());
    std::size_t i = 0;
    for (const Json value : want) {
      const double probability = value.get_double().value();
      ASSERT_EQ(got[i].id, want_ids[i]) << "at rank " << i;
      const double share = std::abs(got[i].probability - probability) / (1e-4 + 1e-4 * probability);
      ASSERT_TRUE(share <= 1) << "id " << want_ids[i] << ": " << got[i].probability << ", expected "
                              << probability;
      worst = std::max(worst, share);
      ++i;
    }
    ++checked;
  }
  EXPECT_GE(checked, 24U);
  std::cout << checked << " cases, worst error " << 100 * worst << " % of the tolerance\n";
}

}  // namespace
}  // namespace fs::engine
