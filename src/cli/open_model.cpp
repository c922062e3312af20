#include "cli/open_model.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/gguf_tokenizer.h"
#include "engine/session.h"
#include "model/locate.h"
#include "model/quantize.h"

namespace fs::cli {

model::Location locate_model(const CommonOptions& common) {
  model::Location location = model::locate(common.model);
  if (location.notice && !common.quiet) notice(*location.notice);
  return location;
}

std::optional<text::Tokenizer> load_tokenizer(const model::Checkpoint& checkpoint) {
  if (const model::GgufModel* const gguf = checkpoint.gguf()) {
    if (!gguf->vocabulary()) return std::nullopt;
    return gguf_tokenizer(*gguf->vocabulary(), checkpoint.location().path.string());
  }
  const auto& file = checkpoint.tokenizer_file();
  if (!file) return std::nullopt;
  auto tokenizer = text::Tokenizer::load(*file);
  const std::size_t vocab_size = checkpoint.config().vocab_size;
  if (tokenizer.size() > vocab_size) {
    fail(ExitCode::unusable,
         "{}: {} token ids, but config.json says vocab_size {}: they belong to different models",
         file->string(), tokenizer.size(), vocab_size);
  }
  return tokenizer;
}

std::size_t OpenModel::n_ids() const {
  return loaded_tokenizer ? loaded_tokenizer->size() : checkpoint.config().vocab_size;
}

void OpenModel::check_prompt(const std::vector<TokenId>& ids, std::size_t room) const {
  if (ids.empty()) fail(ExitCode::usage, "the prompt is empty: at least one token is needed");
  const std::size_t vocab_size = checkpoint.config().vocab_size;
  for (const TokenId id : ids) {
    if (id >= vocab_size)
      fail(ExitCode::usage, "token id {}: {} has ids 0 to {}", id, name(), vocab_size - 1);
  }
  if (ids.size() > context || room > context - ids.size()) {
    fail(ExitCode::usage, "the prompt has {} tokens{}, the context holds {}: shorten it{}", ids.size(),
         room > 0 ? " and leaves no room to generate" : "", context,
         context == checkpoint.config().max_positions
             ? ", as that is the model's limit"
             : fmt::format(" or raise --ctx (the model's limit is {})", checkpoint.config().max_positions));
  }
}

engine::BackendOptions backend_options(const ComputeOptions& compute) {
  engine::BackendOptions options;
  options.name = compute.backend;
  options.threads = compute.threads;
  options.isa = compute.isa;
  options.kv = compute.kv;
  options.act = compute.act;
  options.context = compute.context.value_or(0);
  options.prefill_chunk = compute.prefill_chunk;
  options.device = compute.device;
  options.step = compute.step;
  options.sync = compute.sync;
  return options;
}

namespace {

/// What --dtype names; nothing for auto.
std::optional<model::Dtype> wanted_dtype(const std::string& dtype) {
  if (dtype == "f32") return model::Dtype::f32;
  if (dtype == "f16") return model::Dtype::f16;
  if (dtype == "bf16") return model::Dtype::bf16;
  if (dtype == "q8_0") return model::Dtype::q8_0;
  if (dtype == "int4") return model::Dtype::int4;
  return std::nullopt;
}

}  // namespace

void check_compute(const OpenModel& model, const ComputeOptions& compute) {
  const engine::BackendOptions options = backend_options(compute);
  engine::check_options(options);
  engine::check_model(options, model.checkpoint.config());
  if (compute.act == "f32") return;  // for any weights
  const auto dtype = wanted_dtype(compute.dtype);
  for (const model::TensorInfo& tensor : model.checkpoint.tensors()) {
    if (tensor.shape.size() == 2)
      engine::check_weight(options, tensor.name, dtype ? model::name(*dtype) : tensor.dtype);
  }
}

OpenModel open_model(const CommonOptions& common, const ComputeOptions& compute) {
  engine::check_options(backend_options(compute));
  OpenModel model{model::Checkpoint::open(locate_model(common)), std::nullopt, 0, common.quiet};
  const model::Config& config = model.checkpoint.config();
  model.context = compute.context.value_or(config.max_positions);
  engine::check_context(model.context, config);
  check_compute(model, compute);
  model.loaded_tokenizer = load_tokenizer(model.checkpoint);
  const model::GgufModel* const gguf = model.checkpoint.gguf();
  if (const std::size_t bytes = gguf == nullptr ? 0 : gguf->dequantized_bytes(); bytes > 0 && !common.quiet) {
    notice(fmt::format("{}: its blocks are dequantised to fp32, which takes {} MiB", model.name(),
                       (bytes + 1048575) / 1048576));
  }
  return model;
}

model::Weights load_weights(const OpenModel& model, const ComputeOptions& compute, const Hooks& hooks,
                            ProgressBar& progress) {
  ThreadPool pool(compute.threads == 0 ? available_processors() : compute.threads);
  model::Weights weights = model.checkpoint.load(pool, progress.callback());
  progress.erase();
  throw_if_interrupted();
  if (hooks.after_load) hooks.after_load(weights);
  return weights;
}

model::Weights convert_weights(const OpenModel& model, const ComputeOptions& compute, model::Weights weights,
                               ProgressBar& progress) {
  const auto dtype = wanted_dtype(compute.dtype);
  if (!dtype) return weights;
  ThreadPool pool(compute.threads == 0 ? available_processors() : compute.threads);
  model::Weights converted =
      model::quantize(model.checkpoint.config(), weights, *dtype, pool, progress.callback());
  progress.erase();
  throw_if_interrupted();
  return converted;
}

std::unique_ptr<engine::Backend> make_backend(const OpenModel& model, const ComputeOptions& compute,
                                              model::Weights weights, const Hooks& hooks) {
  engine::BackendOptions options = backend_options(compute);
  options.notice = [&](const std::string& text) {
    if (!model.quiet && model.said.insert(text).second) notice(text);
  };
  auto backend = engine::make_backend(options, model.checkpoint.config(), weights);
  return hooks.after_make ? hooks.after_make(std::move(backend), weights) : std::move(backend);
}

std::unique_ptr<engine::Backend> load_backend(const OpenModel& model, const ComputeOptions& compute,
                                              const Hooks& hooks, ProgressBar& progress) {
  model::Weights stored = load_weights(model, compute, hooks, progress);
  return make_backend(model, compute, convert_weights(model, compute, std::move(stored), progress), hooks);
}

text::Tokenizer open_tokenizer(const CommonOptions& common) {
  namespace files = std::filesystem;
  constexpr const char* file_name = "tokenizer.json";
  std::optional<std::string> spec = common.model;
  if (const auto paths = model::SearchPaths::from_environment(); !spec && !paths.fs_model.empty()) {
    spec = paths.fs_model;
  }
  std::error_code none;
  if (spec && files::is_directory(*spec, none) && files::exists(files::path(*spec) / file_name, none)) {
    return text::Tokenizer::load(files::path(*spec) / file_name);
  }
  if (spec && spec->ends_with(".json") && files::is_regular_file(*spec, none)) {
    return text::Tokenizer::load(*spec);
  }

  const model::Location location = locate_model(common);
  const bool is_gguf = location.path.extension() == ".gguf";
  std::optional<text::Tokenizer> in_gguf;
  if (is_gguf) in_gguf = load_tokenizer(model::Checkpoint::open(location));
  if (in_gguf) return *std::move(in_gguf);
  if (is_gguf || !location.synthetic.empty()) {
    fail(ExitCode::usage, "{} has no tokenizer: {} takes token ids, which need none", location.spec,
         is_gguf ? "this model" : "a synthetic model");
  }
  const files::path directory =
      files::is_directory(location.path, none) ? location.path : location.path.parent_path();
  if (!files::exists(directory / file_name, none)) {
    fail(ExitCode::unusable, "{}: no {} there", directory.string(), file_name);
  }
  return text::Tokenizer::load(directory / file_name);
}

}  // namespace fs::cli
