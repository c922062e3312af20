#include "model/locate.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/quoted.h"
#include "model/synthetic.h"

namespace fs::model {
namespace {

namespace files = std::filesystem;

constexpr std::string_view synthetic_prefix = "synthetic:";
constexpr std::string_view default_repository = "Qwen/Qwen3-0.6B";

/// The variable's value; empty if it is not set.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_there(const files::path& path) {
  std::error_code ignored;
  return files::exists(path, ignored);
}

bool is_folder(const files::path& path) {
  std::error_code ignored;
  return files::is_directory(path, ignored);
}

/// What a directory with weights means: itself, or the one .gguf file in it if it has no config.json. Throws
/// if there are several.
files::path model_in(const files::path& directory) {
  if (is_there(directory / "config.json")) return directory;
  std::vector<files::path> found;
  std::error_code error;
  for (files::directory_iterator item(directory, error), end; !error && item != end; item.increment(error)) {
    if (item->path().extension() == ".gguf") found.push_back(item->path());
  }
  if (found.size() > 1) {
    fail(ExitCode::unusable, "{}: {} .gguf files, expected one; give one of them as --model FILE",
         directory.string(), found.size());
  }
  return found.empty() ? directory : found.front();
}

/// Whether `part` can stand on either side of ORG/NAME, and as a name in the cache: never "..", never a path.
bool is_repository_part(std::string_view part) {
  return !part.empty() && part.front() != '.' && part.front() != '-' && std::ranges::all_of(part, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

bool is_repository(std::string_view spec) {
  const std::size_t slash = spec.find('/');
  return slash != std::string_view::npos && is_repository_part(spec.substr(0, slash)) &&
         is_repository_part(spec.substr(slash + 1));
}

Location locate_synthetic(const std::string& spec) {
  const std::string_view rest = std::string_view(spec).substr(synthetic_prefix.size());
  const std::size_t at = rest.find('@');
  Location location{
      .spec = spec, .path = {}, .synthetic = std::string(rest.substr(0, at)), .seed = 0, .notice = {}};
  synthetic_config(location.synthetic);  // throws if there is no such shape
  if (at != std::string_view::npos) {
    const std::string_view seed = rest.substr(at + 1);
    const char* const end = seed.data() + seed.size();
    const auto [stopped, error] = std::from_chars(seed.data(), end, location.seed);
    if (error != std::errc() || stopped != end) {
      fail(ExitCode::unusable, "{}: seed is {}, expected an integer from 0 to 2^64 - 1", spec,
           in_quotes(seed));
    }
  }
  return location;
}

files::path cache_entry(std::string_view repository, const files::path& hub_cache) {
  const std::size_t slash = repository.find('/');
  return hub_cache / fmt::format("models--{}--{}", repository.substr(0, slash), repository.substr(slash + 1));
}

[[noreturn]] void fail_incomplete(std::string_view repository, const files::path& where,
                                  std::string_view what) {
  fail(ExitCode::unusable,
       "{}: {} of the cached {}: the download is incomplete, expected config.json and weights; "
       "download it again or choose another --model",
       where.string(), what, repository);
}

/// The snapshot that Hugging Face's tools would use: what refs/main names, or the only one.
files::path find_snapshot(std::string_view repository, const files::path& entry) {
  const files::path snapshots = entry / "snapshots", ref = entry / "refs" / "main";
  if (is_there(ref)) {
    constexpr std::size_t most_ref = 4096;
    std::string revision = read_file(ref, most_ref);
    while (!revision.empty() && (revision.back() == '\n' || revision.back() == ' ')) revision.pop_back();
    if (!is_repository_part(revision)) {
      fail(ExitCode::unusable, "{}: revision is {}, expected a commit", ref.string(), in_quotes(revision));
    }
    if (!is_folder(snapshots / revision))
      fail_incomplete(repository, snapshots / revision, "no such snapshot");
    return snapshots / revision;
  }
  std::vector<files::path> found;
  std::error_code error;
  for (files::directory_iterator item(snapshots, error), end; !error && item != end; item.increment(error)) {
    if (is_folder(item->path())) found.push_back(item->path());
  }
  if (found.empty()) fail_incomplete(repository, snapshots, "no snapshot");
  if (found.size() > 1) {
    fail(ExitCode::unusable,
         "{}: {} snapshots and no refs/main, expected one; give one of them as --model DIR",
         snapshots.string(), found.size());
  }
  return found.front();
}

/// The snapshot of a cached repository, or nothing if the cache has none of it.
std::optional<files::path> find_cached(std::string_view repository, const files::path& hub_cache) {
  const files::path entry = cache_entry(repository, hub_cache);
  if (hub_cache.empty() || !is_folder(entry)) return std::nullopt;
  const files::path snapshot = model_in(find_snapshot(repository, entry));
  if (!is_folder(snapshot)) return snapshot;
  if (!is_there(snapshot / "config.json")) fail_incomplete(repository, snapshot, "no config.json");
  if (!is_there(snapshot / "model.safetensors") && !is_there(snapshot / "model.safetensors.index.json")) {
    fail_incomplete(repository, snapshot, "no model.safetensors");
  }
  return snapshot;
}

std::string where_cached(std::string_view repository, const SearchPaths& paths) {
  return paths.hub_cache.empty() ? "no Hugging Face cache (HF_HUB_CACHE, HF_HOME and HOME are not set)"
                                 : cache_entry(repository, paths.hub_cache).string();
}

Location locate_named(const std::string& spec, const SearchPaths& paths) {
  Location location{.spec = spec, .path = {}, .synthetic = {}, .seed = 0, .notice = {}};
  if (spec.starts_with(synthetic_prefix)) return locate_synthetic(spec);
  if (is_there(spec)) {
    if (!is_folder(spec) && !spec.ends_with(".safetensors") && !spec.ends_with(".gguf")) {
      fail(ExitCode::unusable, "{}: expected a directory, a .safetensors file or a .gguf file", spec);
    }
    location.path = is_folder(spec) ? model_in(spec) : files::path(spec);
    return location;
  }
  if (is_repository(spec)) {
    if (const auto snapshot = find_cached(spec, paths.hub_cache)) {
      location.path = *snapshot;
      return location;
    }
    fail(ExitCode::unusable,
         "{}: no such directory or file, and not in the Hugging Face cache: looked for {}", spec,
         where_cached(spec, paths));
  }
  fail(ExitCode::unusable,
       "{}: no such model, expected DIR, FILE.safetensors, FILE.gguf, ORG/NAME or synthetic:SHAPE[@SEED]",
       in_quotes(spec));
}

}  // namespace

SearchPaths SearchPaths::from_environment() {
  SearchPaths paths;
  paths.fs_model = environment("FS_MODEL");
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) {
    paths.hub_cache = cache;
  } else if (const std::string home = environment("HF_HOME"); !home.empty()) {
    paths.hub_cache = files::path(home) / "hub";
  } else if (const std::string user = environment("HOME"); !user.empty()) {
    paths.hub_cache = files::path(user) / ".cache" / "huggingface" / "hub";
  }
  std::error_code ignored;
  const files::path executable = files::read_symlink("/proc/self/exe", ignored);
  paths.bundled = executable.parent_path().parent_path() / "share" / "fs" / "tiny";
  return paths;
}

Location locate(const std::optional<std::string>& spec, const SearchPaths& paths) {
  if (spec) return locate_named(*spec, paths);
  if (!paths.fs_model.empty()) {
    try {
      return locate_named(paths.fs_model, paths);
    } catch (const Error& error) {
      fail(error.code(), "FS_MODEL: {}", error.what());
    }
  }
  Location location{
      .spec = std::string(default_repository), .path = {}, .synthetic = {}, .seed = 0, .notice = {}};
  if (const auto snapshot = find_cached(default_repository, paths.hub_cache)) {
    location.path = *snapshot;
    return location;
  }
  if (!is_folder(paths.bundled)) {
    fail(ExitCode::unusable,
         "no model: {} is not at {} and the bundled model is not at {}; give one with --model",
         default_repository, where_cached(default_repository, paths), paths.bundled.string());
  }
  location.spec = paths.bundled.string();
  location.path = paths.bundled;
  location.notice =
      fmt::format("{} is not in the Hugging Face cache; using the bundled tiny model", default_repository);
  return location;
}

}  // namespace fs::model
