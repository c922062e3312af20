#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/open_model.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/verify.h"
#include "model/checkpoint.h"
#include "model/synthetic.h"
#include "model/tensor.h"

namespace fs::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  std::optional<std::string> positional;  ///< MODEL, another way to write --model
  bool verify = false, json = false;
};

struct TokenizerFacts {
  std::string file;
  std::size_t ids = 0, special = 0;
};

/// What could be learnt of a checkpoint before a problem, if there is one, ended it.
struct Report {
  std::string model;
  std::optional<model::Config> config;
  std::vector<TokenId> eos_ids;
  std::optional<TokenizerFacts> tokenizer;
  std::vector<model::TensorInfo> tensors;
  std::size_t stored_parameters = 0, bytes = 0;
  std::optional<bool> head_identical;  ///< of a stored lm_head beside a tied embedding
  std::vector<PinCheck> pins;
  std::string problem;  ///< empty: usable
};

std::size_t elements(const model::TensorInfo& tensor) {
  std::size_t count = 1;  // validated against the file's size: cannot overflow
  for (const std::size_t size : tensor.shape) count *= size;
  return count;
}

/// The numbers of a config by the names that config.json has for them.
Json config_json(const model::Config& c) {
  return {{"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.intermediate},
          {"num_hidden_layers", c.n_layers},
          {"num_attention_heads", c.n_q_heads},
          {"num_key_value_heads", c.n_kv_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_positions},
          {"rms_norm_eps", c.rms_norm_eps},
          {"rope_theta", c.rope_theta},
          {"tie_word_embeddings", c.tie_word_embeddings}};
}

void verify_pins(const model::Checkpoint& checkpoint, const Progress& progress, Report& report) {
  const model::Location& location = checkpoint.location();
  if (!location.synthetic.empty() ||
      config_json(checkpoint.config()) != config_json(model::synthetic_config("qwen3-0.6b"))) {
    fail(ExitCode::usage, "--verify: only Qwen/Qwen3-0.6B is pinned, and {} has another shape",
         location.spec);
  }
  std::error_code none;
  const bool is_directory = std::filesystem::is_directory(location.path, none);
  report.pins = verify_qwen3_0_6b(is_directory ? location.path : location.path.parent_path(), progress);
}

/// Fills the report; throws at the first thing that makes the model unusable.
void examine(const InspectOptions& options, const Progress& progress, Report& report) {
  const model::Location location = locate_model(options.common);
  report.model = location.spec;
  const model::Checkpoint checkpoint = model::Checkpoint::open(location);
  report.config = checkpoint.config();
  report.eos_ids = checkpoint.generation().eos_ids;
  if (options.verify) verify_pins(checkpoint, progress, report);
  if (const auto tokenizer = load_tokenizer(checkpoint)) {
    report.tokenizer = {checkpoint.tokenizer_file()->string(), tokenizer->size(), 0};
    for (TokenId id = 0; id < tokenizer->size(); ++id) report.tokenizer->special += tokenizer->is_special(id);
  }
  report.tensors = checkpoint.tensors();
  for (const auto& tensor : report.tensors) {
    report.stored_parameters += elements(tensor);
    report.bytes += tensor.bytes;
  }
  report.head_identical = checkpoint.redundant_head_equals_embedding();
  for (const PinCheck& check : report.pins) {
    if (!check.problem.empty()) {
      fail(ExitCode::unusable, "{}: {} is not that of Qwen/Qwen3-0.6B: {}", location.spec, check.pin.file,
           check.problem);
    }
  }
}

std::string_view head_text(const Report& report) {
  if (report.head_identical)
    return *report.head_identical ? "tied; stored too, identical" : "tied; stored too, DIFFERENT (ignored)";
  return report.config->tie_word_embeddings ? "tied; not stored" : "its own table";
}

Json as_json(const Report& report) {
  Json document = {{"model", report.model}};
  if (report.config) {
    document["config"] = config_json(*report.config);
    document["eos_token_ids"] = report.eos_ids;
  }
  Json tensors = Json::array();
  for (const auto& tensor : report.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes},
                       {"file", tensor.file.filename().string()}});
  }
  document["tensors"] = std::move(tensors);
  if (!report.tensors.empty()) {
    document["totals"] = {{"tensors", report.tensors.size()},
                          {"bytes", report.bytes},
                          {"stored_parameters", report.stored_parameters},
                          {"logical_parameters", report.config->parameters()}};
    document["lm_head_identical"] = report.head_identical ? Json(*report.head_identical) : Json();
  }
  if (report.tokenizer) {
    document["tokenizer"] = {{"file", report.tokenizer->file},
                             {"ids", report.tokenizer->ids},
                             {"special", report.tokenizer->special},
                             {"padding_ids", report.config->vocab_size - report.tokenizer->ids}};
  } else {
    document["tokenizer"] = nullptr;
  }
  if (!report.pins.empty()) {
    Json files = Json::array();
    for (const PinCheck& check : report.pins) {
      files.push_back({{"file", check.pin.file},
                       {"matches", check.problem.empty()},
                       {"problem", check.problem.empty() ? Json() : Json(check.problem)}});
    }
    document["verify"] = {{"revision", qwen3_0_6b_revision}, {"files", std::move(files)}};
  }
  document["usable"] = report.problem.empty();
  document["problem"] = report.problem.empty() ? Json() : Json(report.problem);
  return document;
}

/// 596049920 as "596,049,920".
std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

void print_tensors(const Report& report) {
  std::size_t name_width = 4, shape_width = 5;
  for (const auto& tensor : report.tensors) {
    name_width = std::max(name_width, tensor.name.size());
    shape_width = std::max(shape_width, model::shape_text(tensor.shape).size());
  }
  print(fmt::format("\n  {:<{}}  DTYPE  {:<{}}  {:>13}\n", "TENSOR", name_width, "SHAPE", shape_width,
                    "BYTES"));
  for (const auto& tensor : report.tensors) {
    print(fmt::format("  {:<{}}  {:<5}  {:<{}}  {:>13}\n", tensor.name, name_width, tensor.dtype,
                      model::shape_text(tensor.shape), shape_width, grouped(tensor.bytes)));
  }
  print(fmt::format("\ntotals\n  {:<24} {}\n  {:<24} {}\n", "tensors", report.tensors.size(), "bytes",
                    grouped(report.bytes)));
  print(fmt::format("  {:<24} {}\n  {:<24} {}\n  {:<24} {}\n", "stored parameters",
                    grouped(report.stored_parameters), "logical parameters",
                    grouped(report.config->parameters()), "lm_head", head_text(report)));
}

void print_tokenizer(const Report& report) {
  if (!report.tokenizer) {
    print("\ntokenizer: none; prompts are given as ids with --tokens\n");
    return;
  }
  const TokenizerFacts& facts = *report.tokenizer;
  print(fmt::format("\ntokenizer {}\n  {:<24} {}\n  {:<24} {}\n  {:<24} {}\n", one_line(facts.file), "ids",
                    facts.ids, "special", facts.special, "embedding rows unused",
                    report.config->vocab_size - facts.ids));
}

void print_report(const Report& report) {
  if (report.config) {
    print(fmt::format("model {}\n", one_line(report.model)));
    const Json config = config_json(*report.config);
    for (const auto& [key, value] : config.items()) {
      print(fmt::format("  {:<24} {}\n", key, value.dump()));
    }
    print(fmt::format("  {:<24} {}\n", "eos_token_id",
                      report.eos_ids.empty() ? "none" : fmt::format("{}", fmt::join(report.eos_ids, " "))));
  }
  if (!report.tensors.empty()) {
    print_tensors(report);
    print_tokenizer(report);
  }
  if (!report.pins.empty()) print(fmt::format("\nQwen/Qwen3-0.6B at {}\n", qwen3_0_6b_revision));
  for (const PinCheck& check : report.pins) {
    print(fmt::format("  {:<24} {}\n", check.pin.file, check.problem.empty() ? "identical" : check.problem));
  }
  print(fmt::format("{}verdict: {}\n", report.config ? "\n" : "",
                    report.problem.empty() ? "usable" : "NOT usable"));
}

ExitCode inspect(InspectOptions options) {
  if (options.positional) options.common.model = options.positional;
  const InterruptScope interrupt;
  ProgressBar progress(options.common.quiet);
  Report report;
  try {
    examine(options, progress.callback(), report);
  } catch (const Error& error) {
    if (error.code() != ExitCode::unusable) throw;
    report.problem = error.what();
  }
  progress.erase();
  if (options.json) {
    print_json(as_json(report));
  } else {
    print_report(report);
  }
  if (!report.problem.empty()) throw Error(ExitCode::unusable, report.problem);
  return ExitCode::ok;
}

}  // namespace

void add_inspect(CommandLine& line) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App& command =
      *line.app.add_subcommand("inspect", "What a checkpoint holds, and whether it can be used");
  command.footer(
      "Weights are checked, not loaded. Exits with 3 if the checkpoint cannot be used.\n\n"
      "Examples:\n"
      "  fs inspect\n"
      "  fs inspect synthetic:qwen3-0.6b\n"
      "  fs inspect --verify Qwen/Qwen3-0.6B\n"
      "  fs inspect --json synthetic:tiny-odd\n");
  CLI::Option* positional =
      add_text(command, "MODEL", options->positional, "The checkpoint, as --model takes it");
  command.add_flag("--verify", options->verify,
                   "Compare sha256 of every file with the published Qwen/Qwen3-0.6B; exit 3 if one differs");
  command.add_flag("--json", options->json, "One JSON object");
  add_common(command, options->common);
  positional->excludes(command.get_option("--model"));
  command.callback([&line, options] { line.action = [options] { return inspect(*options); }; });
}

}  // namespace fs::cli
