#include "cli/diff_side.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/numbers.h"
#include "cli/verify.h"
#include "model/locate.h"
#include "model/safetensors.h"

namespace fs::cli {
namespace {

std::string metadata_of(const model::Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

/// The bundled recording of a model, for these tokens if any are given.
std::string find_golden(const OpenModel& model, const std::string& hash,
                        const std::optional<std::vector<TokenId>>& tokens) {
  namespace files = std::filesystem;
  const files::path directory = model::SearchPaths::from_environment().bundled.parent_path() / "golden";
  std::set<files::path> candidates;
  std::error_code none;
  for (const auto& entry : files::directory_iterator(directory, none)) {
    if (entry.path().extension() == ".safetensors") candidates.insert(entry.path());
  }
  std::vector<std::string> prompts;
  for (const files::path& path : candidates) {
    const auto metadata = model::parse_metadata(MappedFile::open(path).bytes(), path.string());
    if (metadata_of(metadata, "model_hash") != hash) continue;
    prompts.push_back(metadata_of(metadata, "tokens"));
    if (!tokens || prompts.back() == fmt::format("{}", fmt::join(*tokens, ","))) return path.string();
  }
  if (!prompts.empty()) {
    fail(ExitCode::unusable, "golden: {} has no recording of this prompt; there is one of --tokens {}",
         model.name(), fmt::join(prompts, ", of "));
  }
  fail(ExitCode::unusable,
       "golden: {} holds no recording of {} ({}); make one with tools/dump_hf.py and use dump:FILE",
       directory.string(), model.name(), hash);
}

void check_recording(const Side& side, const std::string& hash, std::string_view model) {
  const std::string found = metadata_of(side.recording->metadata(), "model_hash");
  if (found == hash) return;
  fail(ExitCode::unusable, "{}: recorded of model_hash {}, but {} is {}; --force compares them all the same",
       *side.file, found.empty() ? "(not said)" : found, model, hash);
}

void check_same_shape(const model::Config& a, const model::Config& b) {
  const auto shape = [](const model::Config& c) {
    return std::vector{c.n_layers,   c.hidden,   c.intermediate, c.n_q_heads,
                       c.n_kv_heads, c.head_dim, c.vocab_size};
  };
  if (shape(a) != shape(b)) {
    fail(ExitCode::usage,
         "the two models have different shapes, {} and {} (layers, hidden, intermediate, heads, kv heads, "
         "head_dim, "
         "vocabulary): nothing to compare",
         shape(a), shape(b));
  }
}

}  // namespace

Side parse_side(std::string_view text, std::string_view flag, const ComputeSpec& defaults) {
  constexpr std::string_view dump = "dump:";
  Side side;
  side.text = text;
  side.spec = defaults;
  if (text == "golden") {
    side.file.emplace();
  } else if (text.starts_with(dump)) {
    side.file = text.substr(dump.size());
    if (side.file->empty())
      fail(ExitCode::usage, "{} {}: expected a file, dump:FILE.safetensors", flag, text);
  } else {
    side.spec = parse_spec(text, flag, defaults);
  }
  return side;
}

void open_sides(Sides& sides, const std::optional<std::vector<TokenId>>& tokens, bool force,
                const Progress& progress) {
  Side &a = sides.a, &b = sides.b;
  const auto open = [](const Side& side) {
    return std::make_shared<const OpenModel>(open_model(side.spec.common, side.spec.compute));
  };
  const bool two_files = a.recorded() && b.recorded() && !a.file->empty() && !b.file->empty();
  if (!two_files) {
    // A recorded side is held against the model that runs.
    b.model = open(b.recorded() ? a : b);
    const bool same = a.recorded() || b.recorded() || a.spec.common.model == b.spec.common.model;
    a.model = same ? b.model : open(a);
    check_same_shape(a.model->checkpoint.config(), b.model->checkpoint.config());
    if (same && !a.recorded()) check_compute(*a.model, a.spec.compute);
  }
  std::string hash;
  if (!two_files && (a.recorded() || b.recorded())) hash = model_hash(sides.model()->checkpoint, progress);
  for (Side* side : {&a, &b}) {
    if (!side->recorded()) continue;
    if (side->file->empty()) side->file = find_golden(*sides.model(), hash, tokens);
    side->recording = engine::Recording::read(*side->file);
    if (!two_files && !force) check_recording(*side, hash, sides.model()->name());
  }
  if (two_files && !force) {
    check_recording(b, metadata_of(a.recording->metadata(), "model_hash"), *a.file);
    if (recorded_tokens(a) != recorded_tokens(b)) {
      fail(ExitCode::unusable,
           "{} and {} are recorded of different tokens; --force compares them all the same", *a.file,
           *b.file);
    }
  }
}

void load_sides(Sides& sides, const Hooks& hooks, ProgressBar& progress) {
  Side &a = sides.a, &b = sides.b;
  std::optional<model::Weights> stored, weights;
  if (!b.recorded()) {
    stored = load_weights(*b.model, b.spec.compute, hooks, progress);
    weights = convert_weights(*b.model, b.spec.compute, *stored, progress);
    b.backend = make_backend(*b.model, b.spec.compute, *weights, hooks);
  }
  if (!a.recorded()) {
    const bool same_model = stored && a.model == b.model;
    if (!same_model) stored = load_weights(*a.model, a.spec.compute, hooks, progress);
    if (!same_model || a.spec.compute.dtype != b.spec.compute.dtype) {
      weights = convert_weights(*a.model, a.spec.compute, *stored, progress);
    }
    a.backend = make_backend(*a.model, a.spec.compute, *weights, hooks);
  }
}

std::vector<TokenId> recorded_tokens(const Side& side) {
  const std::string tokens = metadata_of(side.recording->metadata(), "tokens");
  if (tokens.empty()) {
    fail(ExitCode::unusable, "{}: no metadata tokens; expected a file of fs or tools/dump_hf.py", *side.file);
  }
  try {
    return parse_token_ids(tokens, "tokens");
  } catch (const Error& error) {
    fail(ExitCode::unusable, "{}: metadata {}; expected a file of fs or tools/dump_hf.py", *side.file,
         error.what());
  }
}

}  // namespace fs::cli
