#include "cli/generation_job.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"
#include "text/chat_template.h"

namespace fs::cli {
namespace {

using Element = simdjson::dom::element;

/// The value as a T. Throws Error(usage) naming the key.
template <class T>
T get(std::string_view key, Element value, std::string_view expected) {
  T result{};
  if (value.get(result) != simdjson::SUCCESS) {
    fail(ExitCode::usage, "\"{}\" is {}, expected {}", key, simdjson::minify(value), expected);
  }
  return result;
}

std::string get_text(std::string_view key, Element value) {
  return std::string(get<std::string_view>(key, value, "a string"));
}

bool get_bool(std::string_view key, Element value) { return get<bool>(key, value, "true or false"); }

float get_float(std::string_view key, Element value) {
  return static_cast<float>(get<double>(key, value, "a number"));  // infinite if huge: the sampler refuses it
}

std::vector<TokenId> get_tokens(std::string_view key, Element value) {
  std::vector<TokenId> ids;
  for (const Element item : get<simdjson::dom::array>(key, value, "an array of token ids")) {
    const auto id = get<std::uint64_t>(key, item, "token ids");
    if (id > std::numeric_limits<TokenId>::max())
      fail(ExitCode::usage, "\"{}\" has {}: no token id", key, id);
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

std::vector<std::string> get_stops(std::string_view key, Element value) {
  if (value.is_string()) return {get_text(key, value)};
  std::vector<std::string> stops;
  for (const Element item : get<simdjson::dom::array>(key, value, "a string or an array of strings")) {
    stops.push_back(get_text(key, item));
  }
  return stops;
}

std::optional<std::size_t> get_max_tokens(std::string_view key, Element value) {
  constexpr std::string_view expected = "a whole number, -1 for no limit";
  const auto count = get<std::int64_t>(key, value, expected);
  if (count < -1) fail(ExitCode::usage, "\"{}\" is {}, expected {}", key, count, expected);
  if (count == -1) return std::nullopt;
  return static_cast<std::size_t>(count);
}

void apply(GenerationJob& job, std::string_view key, Element value) {
  engine::SamplerOptions& sampler = job.sampler;
  if (key == "prompt") {
    job.text = get_text(key, value);
  } else if (key == "tokens") {
    job.tokens = get_tokens(key, value);
  } else if (key == "chat") {
    job.chat = get_bool(key, value);
  } else if (key == "system") {
    job.system = get_text(key, value);
  } else if (key == "think") {
    job.think = get_bool(key, value);
  } else if (key == "n") {
    job.max_tokens = get_max_tokens(key, value);
  } else if (key == "ignore_eos") {
    job.ignore_eos = get_bool(key, value);
  } else if (key == "stop") {
    job.stops = get_stops(key, value);
  } else if (key == "seed") {
    job.seed = get<std::uint64_t>(key, value, "a whole number from 0 to 2^64 - 1");
  } else if (key == "temp" || key == "temperature") {
    sampler.temperature = get_float(key, value);
  } else if (key == "topk" || key == "top_k") {
    sampler.top_k = get<std::uint64_t>(key, value, "a whole number of at least 0");
  } else if (key == "topp" || key == "top_p") {
    sampler.top_p = get_float(key, value);
  } else if (key == "minp" || key == "min_p") {
    sampler.min_p = get_float(key, value);
  } else if (key == "repeat_penalty" || key == "repetition_penalty") {
    sampler.repetition_penalty = get_float(key, value);
  } else if (key == "presence_penalty") {
    sampler.presence_penalty = get_float(key, value);
  } else {
    fail(ExitCode::usage,
         "unknown key \"{}\"; known: prompt, tokens, chat, system, think, n, ignore_eos, stop, seed, temp, "
         "top_k, "
         "top_p, min_p, repeat_penalty, presence_penalty",
         key);
  }
  if (const auto fault = engine::find_fault(sampler)) {  // the flags had none
    fail(ExitCode::usage, "\"{}\" is {}, expected {}", key, simdjson::minify(value), fault->expected);
  }
}

/// `work` with its errors as usage errors that name the line.
template <class Work>
auto at_line(const std::string& where, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (message.starts_with(where)) throw Error(ExitCode::usage, error.what());
    fail(ExitCode::usage, "{}: {}", where, message);
  }
}

GenerationJob parse_job(std::string_view line, const std::string& where, const GenerationJob& defaults) {
  const JsonDocument document = JsonDocument::parse(line, where);
  simdjson::dom::object object;
  if (document.root().get(object) != simdjson::SUCCESS) {
    fail(ExitCode::usage, "expected a JSON object such as {{\"prompt\": \"…\"}}");
  }
  GenerationJob job = defaults;
  job.is_line = true;
  std::set<std::string_view> seen;
  for (const auto& [key, value] : object) {
    if (!seen.insert(key).second) fail(ExitCode::usage, "key \"{}\" appears twice, expected once", key);
    apply(job, key, value);
  }
  return job;
}

std::uint64_t random_seed() { return std::random_device{}(); }

}  // namespace

std::vector<NumberedRequest> read_requests(const std::string& path, const GenerationJob& defaults,
                                           const OpenModel& model) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  check_job(defaults, model);
  const std::string text = read_input(path);
  std::vector<NumberedRequest> requests;
  std::size_t number = 1;
  for (std::size_t at = text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0; at < text.size();
       ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", path == "-" ? "standard input" : path, number);
    requests.push_back(
        {where, at_line(where, [&] { return make_request(parse_job(line, where, defaults), model); })});
  }
  if (requests.empty()) fail(ExitCode::usage, "{}: no prompts in it", path);
  return requests;
}

void check_job(const GenerationJob& job, const OpenModel& model) {
  for (const std::string& stop : job.stops) {
    if (stop.empty()) {
      fail(ExitCode::usage, "{}: an empty stop text would end every answer",
           job.is_line ? "\"stop\"" : "--stop");
    }
  }
  engine::Sampler(job.sampler, model.n_ids());  // refuses what is out of range
}

GenerationRequest make_request(const GenerationJob& job, const OpenModel& model) {
  if (job.text.has_value() == job.tokens.has_value()) {
    fail(ExitCode::usage, "{}",
         job.text ? "both \"prompt\" and \"tokens\": give one of them" : "no \"prompt\" and no \"tokens\"");
  }
  if (!job.chat && (job.system || job.think)) {
    fail(ExitCode::usage, "{} is only for a chat: \"chat\" is not true",
         job.system ? "\"system\"" : "\"think\"");
  }
  GenerationRequest request;
  if (job.tokens) {
    if (job.chat) {
      fail(ExitCode::usage, "{} applies to text, not to token ids",
           job.is_line ? "\"chat\"" : "the chat template");
    }
    request.prompt = *job.tokens;
  } else {
    if (job.is_line && model.tokenizer() == nullptr) {
      fail(ExitCode::usage, "\"prompt\": {} has no tokenizer: give \"tokens\": [785, 6722, 315]",
           model.name());
    }
    const text::Tokenizer& tokenizer = require_tokenizer(model.tokenizer(), model.name());
    std::string text = *job.text;
    if (job.chat) {
      if (!tokenizer.added_token("<|im_start|>")) {
        fail(ExitCode::usage, "{}: the tokenizer has no <|im_start|>: this model knows no chat",
             model.name());
      }
      std::vector<text::Message> messages;
      if (job.system) messages.push_back({"system", *job.system});
      messages.push_back({"user", text});
      text = text::render_chat(messages, job.think.value_or(true));
    }
    request.prompt = tokenizer.encode(text);
  }
  const bool generates = job.max_tokens != std::size_t{0};
  model.check_prompt(request.prompt, generates ? 1 : 0);

  request.max_tokens = job.max_tokens;
  if (!job.ignore_eos) request.eos_ids = model.checkpoint.generation().eos_ids;
  request.stops = job.stops;
  request.sampler = job.sampler;
  const bool draws = job.sampler.temperature != 0;
  request.sampler.seed = job.seed ? *job.seed : draws ? random_seed() : 0;
  check_job(job, model);
  return request;
}

}  // namespace fs::cli
