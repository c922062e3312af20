#include "engine/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/terminal.h"

namespace fs::cli {
namespace {

struct DevicesOptions {
  std::string backend = "cuda";
  bool json = false, quiet = false;
};

void print_devices_json(const engine::Devices& found) {
  Json devices = Json::array();
  for (std::size_t i = 0; i < found.all.size(); ++i) {
    const engine::Device& device = found.all[i];
    Json one = {{"device", i},
                {"name", device.name},
                {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                {"memory", device.memory},
                {"usable", device.unusable_because.empty()}};
    if (!device.unusable_because.empty()) one["because"] = device.unusable_because;
    devices.push_back(one);
  }
  Json document = {{"devices", devices}};
  if (found.all.empty()) document["because"] = found.none_because;
  print_json(document);
}

void print_devices_table(const engine::Devices& found) {
  std::size_t width = 4;
  for (const engine::Device& device : found.all) width = std::max(width, device.name.size());
  print(fmt::format("DEVICE  {:<{}}  CAPABILITY      MEMORY\n", "NAME", width));
  for (std::size_t i = 0; i < found.all.size(); ++i) {
    const engine::Device& device = found.all[i];
    print(fmt::format("{:>6}  {:<{}}  {:>10}  {:>6.1f} GiB  {}\n", i, one_line(device.name), width,
                      fmt::format("{}.{}", device.major, device.minor),
                      static_cast<double>(device.memory) / (1U << 30U),
                      device.unusable_because.empty() ? "usable" : device.unusable_because));
  }
}

ExitCode devices(const DevicesOptions& options) {
  const engine::Devices found = engine::cuda_devices(options.backend);
  if (options.json) {
    print_devices_json(found);
  } else if (found.all.empty()) {
    print(fmt::format("no CUDA device: {}\n", one_line(found.none_because)));
  } else {
    print_devices_table(found);
  }
  return ExitCode::ok;
}

}  // namespace

void add_devices(CommandLine& line) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App& command = *line.app.add_subcommand("devices", "List the CUDA cards of this machine");
  command.footer(
      "One line a card: the number that --device takes, whether it can be used, and if not, why. Where there "
      "is no\ncard, or no driver, one line says so; the exit code is 0 all the same.\n");
  add_choice(command, "--backend", options->backend, {"cuda", "cuda-emulated"},
             "Whose cards: this machine's, or what the emulator stands in for");
  command.add_flag("--json", options->json, "One JSON object");
  command.add_flag("-q,--quiet", options->quiet, "As everywhere; there is nothing to leave out");
  command.callback([&line, options] { line.action = [options] { return devices(*options); }; });
}

}  // namespace fs::cli
