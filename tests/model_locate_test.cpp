#include <gtest/gtest.h>

#include <cstdlib>

#include "model/locate.h"
#include "model_fixtures.h"

namespace fs::model {
namespace {

using testing::ScratchDirectory;
using testing::write_bytes;

/// A cache, a bundled model and a working directory of their own.
class Locate : public ::testing::Test {
 protected:
  Locate() : old_(std::filesystem::current_path()) {
    paths.hub_cache = scratch / "hub";
    paths.bundled = scratch / "share/fs/tiny";
    std::filesystem::create_directories(paths.bundled);
    std::filesystem::create_directories(scratch / "work");
    std::filesystem::current_path(scratch / "work");
  }
  ~Locate() override { std::filesystem::current_path(old_); }

  std::filesystem::path entry(const char* name) const { return paths.hub_cache / name; }
  void cache(const char* name, const char* revision) const {
    write_bytes(entry(name) / "snapshots" / revision / "config.json", "{}");
    write_bytes(entry(name) / "snapshots" / revision / "model.safetensors", "");
  }
  /// The error's message; its code goes to `code`.
  std::string message(const std::optional<std::string>& spec, ExitCode code = ExitCode::unusable) const {
    try {
      return "found " + locate(spec, paths).path.string();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
  }

  ScratchDirectory scratch;
  SearchPaths paths;

 private:
  std::filesystem::path old_;
};

void expect_mentions(const std::string& message, std::initializer_list<std::string> mentions) {
  for (const std::string& mention : mentions) EXPECT_NE(message.find(mention), std::string::npos) << message;
}

TEST_F(Locate, DirectoryAndFile) {
  EXPECT_EQ(locate(paths.bundled.string(), paths).path, paths.bundled);
  write_bytes(scratch / "w.safetensors", "");
  EXPECT_EQ(locate((scratch / "w.safetensors").string(), paths).path, scratch / "w.safetensors");
  write_bytes(scratch / "w.bin", "");
  expect_mentions(message((scratch / "w.bin").string()), {"w.bin", ".safetensors", ".gguf"});
  expect_mentions(message("/nowhere/at/all"), {"/nowhere/at/all", "ORG/NAME"});
  expect_mentions(message(""), {"\"\"", "ORG/NAME"});
}

TEST_F(Locate, GgufFileByItselfInADirectoryOrInTheCache) {
  const auto folder = scratch / "g";
  write_bytes(folder / "w.gguf", "");
  EXPECT_EQ(locate((folder / "w.gguf").string(), paths).path, folder / "w.gguf");
  EXPECT_EQ(locate(folder.string(), paths).path, folder / "w.gguf");
  paths.fs_model = folder.string();
  EXPECT_EQ(locate({}, paths).path, folder / "w.gguf");
  paths.fs_model.clear();
  write_bytes(entry("models--Org--G") / "snapshots/aaa/w.gguf", "");
  EXPECT_EQ(locate("Org/G", paths).path, entry("models--Org--G") / "snapshots/aaa/w.gguf");

  write_bytes(folder / "v.gguf", "");
  expect_mentions(message(folder.string()), {"2 .gguf files", "--model FILE"});
  write_bytes(folder / "config.json", "{}");  // a checkpoint: it counts, not what lies beside it
  EXPECT_EQ(locate(folder.string(), paths).path, folder);
}

TEST_F(Locate, Synthetic) {
  const Location plain = locate("synthetic:tiny-odd", paths);
  EXPECT_EQ(plain.synthetic, "tiny-odd");
  EXPECT_EQ(plain.seed, 0U);
  EXPECT_TRUE(plain.path.empty());
  EXPECT_EQ(locate("synthetic:qwen3-0.6b@18446744073709551615", paths).seed, UINT64_MAX);
  expect_mentions(message("synthetic:gpt-5"), {"gpt-5", "qwen3-0.6b"});
  for (const char* seed : {"", "x", "-1", "1x", " 1", "18446744073709551616", "0x10"}) {
    const std::string spec = std::string("synthetic:tiny-odd@") + seed;
    expect_mentions(message(spec), {spec, "2^64"});
  }
}

TEST_F(Locate, RepositoryByRefsMain) {
  cache("models--Org--Name-1.0", "aaa");
  cache("models--Org--Name-1.0", "bbb");
  write_bytes(entry("models--Org--Name-1.0") / "refs/main", "bbb\n");
  EXPECT_EQ(locate("Org/Name-1.0", paths).path, entry("models--Org--Name-1.0") / "snapshots/bbb");
}

TEST_F(Locate, RepositoryByItsOnlySnapshot) {
  cache("models--Org--Name", "aaa");
  EXPECT_EQ(locate("Org/Name", paths).path, entry("models--Org--Name") / "snapshots/aaa");
  cache("models--Org--Name", "bbb");
  expect_mentions(message("Org/Name"), {entry("models--Org--Name").string(), "2 snapshots", "refs/main"});
}

TEST_F(Locate, ShardedSnapshotIsComplete) {
  cache("models--Org--Name", "aaa");
  const auto snapshot = entry("models--Org--Name") / "snapshots/aaa";
  std::filesystem::rename(snapshot / "model.safetensors", snapshot / "model.safetensors.index.json");
  EXPECT_EQ(locate("Org/Name", paths).path, snapshot);
}

TEST_F(Locate, ADirectoryOfTheRepositorysNameWins) {
  cache("models--Org--Name", "aaa");
  std::filesystem::create_directories("Org/Name");
  EXPECT_EQ(locate("Org/Name", paths).path, "Org/Name");
}

TEST_F(Locate, RepositoryThatIsNotCachedSaysWhereItLooked) {
  expect_mentions(message("Org/Name"), {"Org/Name", entry("models--Org--Name").string()});
  paths.hub_cache.clear();
  expect_mentions(message("Org/Name"), {"Org/Name", "no Hugging Face cache", "HF_HOME"});
}

TEST_F(Locate, NamesAndRefsCannotLeaveTheCache) {
  for (const char* spec : {"../hub", "Org/..", "Org/../x", "Org/Na\nme", "-Org/Name", "Org/"}) {
    EXPECT_EQ(message(spec).find("found"), std::string::npos) << spec;
  }
  cache("models--Org--Name", "aaa");
  for (const char* ref : {"..", "../../..", "/etc", ""}) {
    write_bytes(entry("models--Org--Name") / "refs/main", ref);
    expect_mentions(message("Org/Name"), {"refs/main", "expected a commit"});
  }
}

TEST_F(Locate, LookupOrder) {
  const Location bundled = locate({}, paths);
  EXPECT_EQ(bundled.path, paths.bundled);
  ASSERT_TRUE(bundled.notice);
  EXPECT_NE(bundled.notice->find("Qwen/Qwen3-0.6B"), std::string::npos);

  cache("models--Qwen--Qwen3-0.6B", "aaa");
  const Location cached = locate({}, paths);
  EXPECT_EQ(cached.path, entry("models--Qwen--Qwen3-0.6B") / "snapshots/aaa");
  EXPECT_FALSE(cached.notice);

  paths.fs_model = "synthetic:tiny-odd@7";
  EXPECT_EQ(locate({}, paths).seed, 7U);
  EXPECT_EQ(locate(paths.bundled.string(), paths).path, paths.bundled);
}

TEST_F(Locate, AnIncompleteDownloadIsAnErrorNotTheBundledModel) {
  const auto snapshot = entry("models--Qwen--Qwen3-0.6B") / "snapshots/aaa";
  std::filesystem::create_directories(entry("models--Qwen--Qwen3-0.6B"));
  expect_mentions(message({}), {"models--Qwen--Qwen3-0.6B", "no snapshot", "incomplete"});
  write_bytes(snapshot / "tokenizer.json", "{}");
  expect_mentions(message({}), {"aaa", "no config.json", "incomplete"});
  write_bytes(snapshot / "config.json", "{}");
  expect_mentions(message({}), {"aaa", "no model.safetensors", "incomplete"});
  std::filesystem::create_symlink("../../blobs/gone", snapshot / "model.safetensors");
  expect_mentions(message({}), {"aaa", "no model.safetensors", "incomplete"});
  write_bytes(entry("models--Qwen--Qwen3-0.6B") / "refs/main", "bbb");
  expect_mentions(message({}), {"bbb", "no such snapshot", "incomplete"});
}

TEST_F(Locate, NothingAnywhereNamesBothPlaces) {
  std::filesystem::remove_all(paths.bundled);
  expect_mentions(message({}),
                  {entry("models--Qwen--Qwen3-0.6B").string(), paths.bundled.string(), "--model"});
}

TEST_F(Locate, EnvironmentOrder) {
  const auto set = [](const char* name, const char* value) {
    if (value == nullptr) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value, 1);
    }
  };
  set("HOME", "/ada");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "FS_MODEL"}) set(name, nullptr);
  EXPECT_EQ(SearchPaths::from_environment().hub_cache, "/ada/.cache/huggingface/hub");
  EXPECT_EQ(SearchPaths::from_environment().fs_model, "");
  set("HF_HOME", "/hf");
  EXPECT_EQ(SearchPaths::from_environment().hub_cache, "/hf/hub");
  set("HF_HUB_CACHE", "/cache");
  EXPECT_EQ(SearchPaths::from_environment().hub_cache, "/cache");
  set("HF_HUB_CACHE", "");
  EXPECT_EQ(SearchPaths::from_environment().hub_cache, "/hf/hub");
  set("FS_MODEL", "Org/Name");
  EXPECT_EQ(SearchPaths::from_environment().fs_model, "Org/Name");
  for (const char* name : {"HF_HOME", "HOME"}) set(name, nullptr);
  EXPECT_TRUE(SearchPaths::from_environment().hub_cache.empty());
  const auto executable = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(SearchPaths::from_environment().bundled,
            executable.parent_path().parent_path() / "share/fs/tiny");
}

}  // namespace
}  // namespace fs::model
