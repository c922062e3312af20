#include "engine/recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "engine/backend.h"
#include "engine/session.h"
#include "model/safetensors.h"
#include "model/synthetic.h"
#include "synthetic_model.h"
#include "tap_log.h"

namespace fs::engine {
namespace {

using testing::some_tokens;
using testing::TapLog;

class RecorderTest : public ::testing::Test {
 protected:
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / fmt::format("fs_recorder_test.{}", getpid());
  const std::filesystem::path file = directory / "taps.safetensors";
  const model::Config config = model::synthetic_config("tiny-odd");
  const std::unique_ptr<Backend> model =
      make_backend({.name = "reference", .threads = 1}, config, testing::synthetic_weights(config));
  const std::vector<TokenId> tokens = some_tokens(17, config.vocab_size);

  void SetUp() override { std::filesystem::create_directories(directory); }
  void TearDown() override { std::filesystem::remove_all(directory); }

  /// One prefill of tokens[first, end) on top of those before it, in chunks.
  void run(TapObserver& taps, std::size_t chunk, bool every_row = true, std::size_t first = 0) const {
    Session session(*model, 40);
    if (first > 0) session.forward(std::span(tokens).first(first));
    ForwardOptions options;
    options.chunk = chunk;
    options.taps = &taps;
    if (every_row) options.on_logits = [](std::size_t, std::span<const float>) {};
    session.forward(std::span(tokens).subspan(first), options);
  }

  std::map<std::string, std::string> metadata() const {
    const std::string bytes = read_file(file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const auto header = JsonDocument::parse(std::string_view(bytes).substr(8, length), "header");
    std::map<std::string, std::string> pairs;
    const simdjson::dom::object object = header.root()["__metadata__"].get_object().value();
    for (const auto [key, value] : object) {
      pairs[std::string(key)] = std::string(value.get_string().value());
    }
    return pairs;
  }
};

TapChoice everything() {
  TapChoice options;
  for (std::size_t point = 0; point < tap_point_count; ++point) options.points.insert(TapPoint(point));
  return options;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::failed);
    return error.what();
  }
  return "no error";
}

TEST_F(RecorderTest, JoinsTheChunksOfAPrefill) {
  TapLog whole;
  run(whole, 17);
  for (const std::size_t chunk : {1U, 2U, 7U, 16U, 17U}) {
    Recorder recorder(everything());
    run(recorder, chunk);
    recorder.recording().write(file, {});
    const auto stored = model::open_safetensors(file);
    ASSERT_EQ(stored.tensors.size(), whole.entries.size());
    for (std::size_t i = 0; i < stored.tensors.size(); ++i) {  // in the order of a forward pass
      const auto& tensor = stored.tensors[i];
      const auto& want = whole.entries[i];
      EXPECT_EQ(tensor.name, want.key);
      EXPECT_EQ(tensor.dtype, model::Dtype::f32);
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      EXPECT_EQ(values, want.values) << tensor.name << " in chunks of " << chunk;
    }
  }
}

TEST_F(RecorderTest, GivesAHeadAxisToThePointsThatHaveOne) {
  Recorder recorder(everything());
  run(recorder, 5);
  recorder.recording().write(file, {});
  std::map<std::string, std::vector<std::size_t>> shapes;
  for (const auto& tensor : model::open_safetensors(file).tensors) shapes[tensor.name] = tensor.shape;
  using Shape = std::vector<std::size_t>;
  EXPECT_EQ(shapes.size(), 3 + 9 * config.n_layers);
  EXPECT_EQ(shapes.at("embed"), (Shape{17, 72}));
  EXPECT_EQ(shapes.at("layers.0.attn_norm"), (Shape{17, 72}));
  EXPECT_EQ(shapes.at("layers.1.q"), (Shape{17, 6, 20}));
  EXPECT_EQ(shapes.at("layers.1.k"), (Shape{17, 2, 20}));
  EXPECT_EQ(shapes.at("layers.1.v"), (Shape{17, 2, 20}));
  EXPECT_EQ(shapes.at("layers.1.attn_out"), (Shape{17, 6, 20}));
  EXPECT_EQ(shapes.at("layers.2.mlp_act"), (Shape{17, 151}));
  EXPECT_EQ(shapes.at("layers.2.block_out"), (Shape{17, 72}));
  EXPECT_EQ(shapes.at("final_norm"), (Shape{17, 72}));
  EXPECT_EQ(shapes.at("logits"), (Shape{17, 347}));
}

TEST_F(RecorderTest, KeepsOnlyWhatItIsAskedFor) {
  Recorder recorder({{TapPoint::embed, TapPoint::k, TapPoint::logits}, std::set<std::size_t>{0, 2}});
  EXPECT_TRUE(recorder.wants(TapPoint::embed, 0));
  EXPECT_TRUE(recorder.wants(TapPoint::k, 2));
  EXPECT_FALSE(recorder.wants(TapPoint::k, 1));
  EXPECT_FALSE(recorder.wants(TapPoint::v, 0));
  run(recorder, 6, false);
  recorder.recording().write(file, {});
  std::vector<std::string> names;
  for (const auto& tensor : model::open_safetensors(file).tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layers.0.k", "layers.2.k", "logits"}));
}

TEST_F(RecorderTest, OrdersLayersByNumber) {
  std::vector<float> one(1);
  Recorder recorder(everything());
  for (const std::size_t layer : {10U, 2U, 9U}) recorder.observe({TapPoint::q, layer, 0, 0, 1, 1, 1, one});
  recorder.recording().write(file, {});
  std::vector<std::string> names;
  for (const auto& tensor : model::open_safetensors(file).tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.2.q", "layers.9.q", "layers.10.q"}));
}

TEST_F(RecorderTest, SaysWhereItsRowsBelong) {
  Recorder recorder({{TapPoint::block_out, TapPoint::logits}, {}});
  run(recorder, 4, false, 5);
  recorder.recording().write(file, {{"model", "synthetic:tiny-odd"}, {"prompt", "a \"quoted\" line\n"}});
  EXPECT_EQ(metadata(), (std::map<std::string, std::string>{{"first_position", "5"},
                                                            {"first_position.logits", "16"},
                                                            {"model", "synthetic:tiny-odd"},
                                                            {"prompt", "a \"quoted\" line\n"}}));
  EXPECT_EQ(model::open_safetensors(file).tensors.back().shape, (std::vector<std::size_t>{1, 347}));
}

TEST_F(RecorderTest, WritesTheSameBytesForTheSameValues) {
  const auto bytes = [&](std::size_t chunk) {
    Recorder recorder(everything());
    run(recorder, chunk);
    recorder.recording().write(file, {{"model", "m"}});
    return read_file(file);
  };
  const std::string want = bytes(17);
  EXPECT_EQ(bytes(17), want);
  EXPECT_EQ(bytes(3), want);  // this backend gives the same values in any chunking
}

TEST_F(RecorderTest, RefusesRowsThatDoNotFollow) {
  Recorder recorder({{TapPoint::k}, {}});
  ForwardOptions options;
  options.taps = &recorder;
  Session session(*model, 40);
  session.forward(std::span(tokens).first(5), options);
  session.forward(std::span(tokens).subspan(5, 1), options);
  session.rewind(4);
  const std::string rewound = message_of([&] { session.forward(std::span(tokens).first(2), options); });
  EXPECT_NE(rewound.find("layers.0.k: rows from position 4 after those of 0 to 5"), std::string::npos)
      << rewound;

  std::vector<float> values(6);
  Recorder shapes(everything());
  shapes.observe({TapPoint::k, 1, 0, 3, 1, 2, 3, values});
  for (const auto& shape : {std::pair<std::size_t, std::size_t>{3, 3}, {2, 2}, {3, 2}}) {
    const Tap tap{TapPoint::k, 1, 1, 4, 1, shape.first, shape.second, values};
    const std::string other = message_of([&] { shapes.observe(tap); });
    const std::string want =
        fmt::format("layers.1.k: rows of shape [{}, {}] after rows of shape [2, 3]", tap.heads, tap.width);
    EXPECT_NE(other.find(want), std::string::npos) << other;
  }
}

TEST_F(RecorderTest, RefusesToWriteNothingOrHalfAPass) {
  EXPECT_NE(
      message_of([&] { Recorder(everything()).recording().write(file, {}); }).find("nothing was recorded"),
      std::string::npos);
  std::vector<float> values(4);
  Recorder recorder(everything());
  recorder.observe({TapPoint::embed, 0, 0, 0, 2, 1, 2, values});
  recorder.observe({TapPoint::q, 0, 0, 0, 1, 2, 2, values});
  const std::string half = message_of([&] { recorder.recording().write(file, {}); });
  EXPECT_NE(half.find("layers.0.q ends at position 1 but embed at 2"), std::string::npos) << half;
  EXPECT_FALSE(std::filesystem::exists(file));
  Recorder whole({{TapPoint::embed}, {}});
  run(whole, 5);
  EXPECT_NE(
      message_of([&] { whole.recording().write(directory / "absent" / "x.safetensors", {}); }).find("absent"),
      std::string::npos);
}

}  // namespace
}  // namespace fs::engine
