#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "model_fixtures.h"

namespace fs::model {
namespace {

using testing::read_bytes;
using testing::safetensors_file;
using testing::ScratchDirectory;
using testing::SmallCheckpoint;
using testing::write_bytes;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Safetensors, ReadsTensorsInOrderOfOffsetWithoutCopying) {
  const std::string file = safetensors_file(R"({"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},)"
                                            R"("__metadata__":{"format":"pt"},)"
                                            R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},)"
                                            R"("c":{"dtype":"F16","shape":[3,0],"data_offsets":[8,8]}}   )",
                                            "aaaabbbb");
  const auto tensors = parse_safetensors(bytes_of(file), "x.safetensors");
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, Dtype::f32);
  EXPECT_EQ(tensors[0].shape, std::vector<std::size_t>{});
  EXPECT_EQ(text_of(tensors[0].bytes), "aaaa");
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].shape, (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(tensors[1].source, "x.safetensors");
  EXPECT_EQ(reinterpret_cast<const char*>(tensors[1].bytes.data()), file.data() + file.size() - 4);
  EXPECT_EQ(tensors[2].shape, (std::vector<std::size_t>{3, 0}));
}

TEST(Safetensors, AFileWithoutTensorsIsLegal) {
  EXPECT_TRUE(parse_safetensors(bytes_of(safetensors_file("{}", "")), "x").empty());
}

// The header's length is not a multiple of 8 here: every tensor lies at an odd address.
TEST(Safetensors, UnalignedTensorsLoadInEveryDtype) {
  for (const auto& [dtype, element] :
       {std::pair("BF16", 2UL), std::pair("F16", 2UL), std::pair("F32", 4UL)}) {
    for (std::size_t shift = 0; shift < 8; ++shift) {
      const ScratchDirectory directory;
      SmallCheckpoint files(element, dtype);
      files.header.append((8 - files.header.size() % 8) + shift, ' ');
      ThreadPool pool(1);
      const Weights weights = Checkpoint::open(files.write_to(directory.path())).load(pool);
      std::vector<float> want(6), got(6);
      decode(*dtype_from_name(dtype), bytes_of(files.data).data() + 3 * 6 * element, want);
      weights.embed_tokens.row(3, got);
      EXPECT_EQ(got, want) << dtype << " shifted by " << shift;
      EXPECT_EQ(weights.final_norm.size(), 6U);
    }
  }
}

TEST(Safetensors, ShardsAreReadThroughTheIndex) {
  const ScratchDirectory directory;
  write_bytes(directory / "a.safetensors",
              safetensors_file(R"({"x":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "xx"));
  write_bytes(directory / "b.safetensors",
              safetensors_file(R"({"z":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                               R"("y":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                               "zzyy"));
  write_bytes(
      directory / "model.safetensors.index.json",
      R"({"metadata":{},"weight_map":{"y":"b.safetensors","x":"a.safetensors","z":"b.safetensors"}})");
  const TensorFiles files = open_safetensors(directory.path());
  ASSERT_EQ(files.tensors.size(), 3U);
  EXPECT_EQ(text_of(files.tensors[0].bytes), "xx");
  EXPECT_EQ(files.tensors[1].name, "z");
  EXPECT_EQ(text_of(files.tensors[2].bytes), "yy");
  EXPECT_EQ(files.tensors[2].source, (directory / "b.safetensors").string());
  EXPECT_EQ(files.files.size(), 2U);
}

TEST(Safetensors, WritesExactlyTheseBytes) {
  const ScratchDirectory directory;
  const std::vector<Tensor> tensors = {{"half", Dtype::bf16, {3}, bytes_of("abcdef"), {}},
                                       {"a \"quoted\"\n", Dtype::f32, {1, 1}, bytes_of("1234"), {}}};
  write_safetensors(directory / "out.safetensors", tensors, {{"z", "\\"}, {"k", "v"}});
  // fp32 first, so that a 6-byte tensor before it cannot misalign it; padded to a multiple of 8.
  std::string header = R"({"__metadata__":{"k":"v","z":"\\"},)"
                       R"("a \"quoted\"\u000a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                       R"("half":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_bytes(directory / "out.safetensors"), safetensors_file(header, "1234abcdef"));
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const ScratchDirectory directory;
  const auto path = directory / "out.safetensors";
  write_safetensors(path, {}, {});
  EXPECT_TRUE(open_safetensors(path).tensors.empty());

  const std::vector<Tensor> tensors = {{"é", Dtype::f16, {2, 2}, bytes_of("abcdefgh"), {}},
                                       {"none", Dtype::bf16, {0, 7}, {}, {}}};
  write_safetensors(path, tensors);
  const TensorFiles files = open_safetensors(path);
  ASSERT_EQ(files.tensors.size(), 2U);
  EXPECT_EQ(files.tensors[0].name, "é");
  EXPECT_EQ(text_of(files.tensors[0].bytes), "abcdefgh");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(files.tensors[0].bytes.data()) % 8, 0U);
  EXPECT_EQ(files.tensors[1].shape, (std::vector<std::size_t>{0, 7}));
}

TEST(Safetensors, StreamedPiecesEqualTensorsInMemory) {
  const ScratchDirectory directory;
  const std::vector<Tensor> tensors = {{"a", Dtype::bf16, {5}, bytes_of("0123456789"), {}},
                                       {"b", Dtype::bf16, {1}, bytes_of("xy"), {}}};
  write_safetensors(directory / "memory", tensors);
  write_safetensors(directory / "streamed", tensors, {}, [](const Tensor& tensor, const ByteSink& sink) {
    for (const std::byte& byte : tensor.bytes) sink({&byte, 1});
  });
  EXPECT_EQ(read_bytes(directory / "streamed"), read_bytes(directory / "memory"));
}

TEST(Safetensors, AWriterThatFailsLeavesTheOldFile) {
  const ScratchDirectory directory;
  const auto path = directory / "out.safetensors";
  write_bytes(path, "old");
  const Tensor whole{"a", Dtype::bf16, {2}, bytes_of("abcd"), {}},
      cut{"b", Dtype::bf16, {2}, bytes_of("abc"), {}}, more{"c", Dtype::bf16, {2}, bytes_of("abcde"), {}},
      metadata{"__metadata__", Dtype::bf16, {0}, {}, {}},
      endless{"d", Dtype::f32, {std::size_t{1} << 62}, {}, {}};
  for (const std::vector<Tensor>& tensors :
       {std::vector{whole, cut}, std::vector{whole, more}, std::vector{whole, whole}, std::vector{metadata},
        std::vector{endless}}) {
    EXPECT_THROW(write_safetensors(path, tensors), Error) << tensors.back().name;
  }
  EXPECT_EQ(read_bytes(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1)
      << "a temporary was left";
}

}  // namespace
}  // namespace fs::model
