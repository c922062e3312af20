#include "cli/help.h"

#include <fmt/format.h>

#include <string_view>

#include "cli/flags.h"

namespace fs::cli {
namespace {

constexpr std::size_t name_column = 2, text_column = 28, last_column = 100;

/// `text` in lines of at most `width` bytes, each but the first behind `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  while (text.size() > width) {
    const std::size_t blank = text.rfind(' ', width);
    if (blank == std::string_view::npos) break;
    out += fmt::format("{}\n{:{}}", text.substr(0, blank), "", indent);
    text.remove_prefix(blank + 1);
  }
  return out.append(text);
}

}  // namespace

HelpFormatter::HelpFormatter() { label("SUBCOMMAND", "COMMAND"); }

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string name = make_option_name(option, is_positional) + make_option_opts(option);
  const std::string text = wrapped(option->get_description(), text_column, last_column - text_column);
  const bool fits = name_column + name.size() + 2 <= text_column;
  return fmt::format("{:{}}{:<{}}{}{}\n", "", name_column, name, text_column - name_column,
                     fits ? "" : fmt::format("\n{:{}}", "", text_column), text);
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const bool is_flag = option->get_type_size() == 0 || option->get_items_expected_max() == 0;
  return is_flag || option->get_positional() ? "" : " " + option->get_type_name();
}

std::string HelpFormatter::make_footer(const CLI::App* app) const { return app->get_footer(); }

std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = "fs";
  if (const auto chosen = app.get_subcommands(); !chosen.empty()) {
    command = chosen.front();
    name += " " + command->get_name();
  }
  std::string message = error.what();
  const std::string option = message.substr(0, message.find(':'));
  const auto extras = command->remaining();
  const bool no_command = command == &app && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!extras.empty() && (no_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    const std::string first = verbatim(extras.front());
    const bool flag = first.size() > 1 && first.front() == '-';
    message = (flag              ? "unknown flag "
               : command == &app ? "unknown command "
                                 : "unexpected argument ") +
              first;
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (message.ends_with("missing")) message = option + " needs a value";
    if (message.find("required but received") != std::string::npos)
      message = option + " is given more than once";
    if (const std::size_t end = message.find(" was given a disallowed flag override");
        end != std::string::npos)
      message = "--" + message.substr(0, end) + " takes no value";
  } else if (no_command) {
    message = "no command given";
  }
  return fmt::format("{}; see {} --help", message, name);
}

}  // namespace fs::cli
