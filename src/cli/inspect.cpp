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
#include "cpu/isa.h"
#include "cpu/panels.h"
#include "model/checkpoint.h"
#include "model/synthetic.h"
#include "model/tensor.h"
#include "text/utf8.h"

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

/// What only a GGUF file has.
struct GgufFacts {
  std::uint32_t version = 0;
  Json metadata = Json::object();  ///< every pair; arrays as how many of what they hold
  std::size_t dequantized_bytes = 0;
};

/// What could be learnt of a checkpoint before a problem, if there is one, ended it.
struct Report {
  std::string model;
  std::optional<model::Config> config;
  std::vector<TokenId> eos_ids;
  std::optional<TokenizerFacts> tokenizer;
  std::optional<GgufFacts> gguf;
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

/// A metadata value as JSON has it: arrays, and numbers that JSON has not, in words.
Json metadata_json(const model::GgufMetadata& metadata, std::string_view key, const model::GgufValue& value) {
  if (value.type == model::GgufValueType::string) return metadata.text(key);
  const std::string words = model::describe(value);
  return Json::accept(words) ? Json::parse(words) : Json(words);
}

GgufFacts gguf_facts(const model::GgufModel& gguf) {
  GgufFacts facts{gguf.file().version, Json::object(), gguf.dequantized_bytes()};
  const model::GgufMetadata& metadata = gguf.file().metadata;
  for (const auto& [key, value] : metadata.values()) {
    facts.metadata[std::string(key)] = metadata_json(metadata, key, value);
  }
  return facts;
}

void verify_pins(const model::Checkpoint& checkpoint, const Progress& progress, Report& report) {
  const model::Location& location = checkpoint.location();
  if (checkpoint.gguf() != nullptr) {
    fail(ExitCode::usage,
         "--verify: {} is a GGUF file; the files that are pinned are those of Qwen/Qwen3-0.6B",
         location.spec);
  }
  if (!location.synthetic.empty() ||
      config_json(checkpoint.config()) != config_json(model::synthetic_config("qwen3-0.6b"))) {
    fail(ExitCode::usage,
         "--verify: only the published Qwen/Qwen3-0.6B is pinned, and {} is synthetic or of another shape",
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
  if (checkpoint.gguf() != nullptr) report.gguf = gguf_facts(*checkpoint.gguf());
  if (options.verify) verify_pins(checkpoint, progress, report);
  if (const auto tokenizer = load_tokenizer(checkpoint)) {
    report.tokenizer = {checkpoint.tokenizer_file().value_or(location.path).string(), tokenizer->size(), 0};
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

/// Bytes that the cpu backend copies at load, to read them in an order that pays for itself (cpu/panels.h).
std::size_t arranged_bytes(const Report& report) {
  const cpu::Kernels& kernels = cpu::choose_kernels("auto");
  std::size_t bytes = 0;
  for (const auto& tensor : report.tensors) {
    for (const model::Dtype dtype : {model::Dtype::bf16, model::Dtype::q8_0}) {
      if (tensor.dtype != model::name(dtype) || tensor.shape.size() != 2) continue;
      bytes += cpu::arranged_bytes(kernels, {dtype, tensor.shape[0], tensor.shape[1]});
    }
  }
  return bytes;
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
  if (report.gguf) {
    document["gguf"] = {{"version", report.gguf->version},
                        {"metadata", report.gguf->metadata},
                        {"dequantized_bytes", report.gguf->dequantized_bytes}};
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
                          {"bytes_copied_by_cpu_backend", arranged_bytes(report)},
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

void print_gguf(const GgufFacts& facts) {
  print(fmt::format("\nGGUF version {}\n", facts.version));
  for (const auto& [key, value] : facts.metadata.items()) {
    constexpr std::size_t most = 72;
    std::string text = value.is_string() ? text::quote(value.get<std::string>()) : value.dump();
    if (text.size() > most) {
      std::size_t cut = most;
      while ((static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
      text = text.substr(0, cut) + "…";
    }
    const std::string quoted = text::quote(key);
    print(fmt::format("  {:<40} {}\n", quoted.size() == key.size() + 2 ? key : quoted, text));
  }
  if (facts.dequantized_bytes > 0) {
    print(
        fmt::format("  {} bytes of blocks dequantised to fp32 at load\n", grouped(facts.dequantized_bytes)));
  }
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
  if (const std::size_t copied = arranged_bytes(report); copied > 0) {
    print(fmt::format("  {:<24} {} (--isa {})\n", "copied by cpu backend", grouped(copied),
                      cpu::choose_kernels("auto").name));
  }
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
  if (report.gguf) print_gguf(*report.gguf);
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
